"""The chapter mlp: claims about the launch configuration that Inductor chooses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import format_value
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded
from snippets.mlp.findings import choices, fused_kernels
from tests.chapters.altered import measured, status, verdict
from tests.chapters.mlp.changes import HIDDEN_BYTES, figure, lasting, replace
from tests.chapters.mlp.probes import FAST, LOGS, SLOW, probed, trial


def test_configurations_by_hand() -> None:
    device = probed()
    assert {launch: (timing.median_us, timing.samples_us) for launch, timing in choices.draws(device).items()} == {
        FAST: (40.0, (40.0, 40.0, 41.0)),
        SLOW: (61.0, (60.0, 62.0, 61.0)),
    }
    assert measured(device, "O-P17").value == "1024 elements for 128 threads, 512 elements for 256 threads"
    assert measured(device, "O-P18").value == pytest.approx(61 / 40)
    assert measured(device, "O-P18").spread == pytest.approx((60 / 41, 62 / 40))
    assert (figure("slow_choices", device).value, measured(device, "O-P19").text) == (3, "3 of 4")
    slow = figure("slow_us", device)
    assert (slow.value, slow.spread) == (61.0, (60.0, 62.0))
    assert figure("fast_speedup", device).value == pytest.approx(1.2)
    assert figure("slow_speedup", device).value == pytest.approx(242.4 / 222)
    assert figure("fast_saved_us", device).value == pytest.approx(40.4)
    assert (measured(device, "O-P24").text, measured(device, "O-P25").text) == ("2 of 2", "57 copies, with room 0")
    assert (measured(device, "O-P26").value, figure("benchmark_slow_us", device).value) == (1000 / 990, 90.0)
    assert (figure("room_fast_us", device).value, figure("room_slow_us", device).value) == (65.0, 85.0)
    assert (figure("coordinate_slowest_us", device).value, measured(device, "O-P34").text) == (60.0, "1 of 1")
    assert measured(device, "O-P38").value == pytest.approx(222 / 212)
    assert [status(device, f"O-P{number}") for number in (17, 18, 19, 24, 25, 26, 34, 38)] == ["holds"] * 8


@pytest.mark.parametrize(
    ("slow", "share", "expected"), [(0, 100.0, "holds"), (2, 60.0, "holds"), (3, 40.0, "differs"), (5, 0.0, "differs")]
)
def test_room_is_judged_by_most_compilations(slow: int, share: float, expected: Status) -> None:
    device = probed()
    device.data("mlp/tuned", trials={"room": trial(*(slow * [(SLOW, 60.0)] + (5 - slow) * [(FAST, 40.0)]))})
    assert (status(device, "O-P24"), measured(device, "O-P24").value) == (expected, share)
    assert measured(device, "O-P24").text == f"{5 - slow} of 5"


@pytest.mark.parametrize(("mul_us", "expected"), [(40.0, "holds"), (32.0, "differs"), (61.0, "differs")])
def test_gelu_is_free_if_the_faster_kernel_takes_as_long_as_the_product(mul_us: float, expected: Status) -> None:
    device = probed()
    device.kernels("mlp/eager", lasting("MulFunctor", mul_us))
    free = measured(device, "O-P5")
    assert (status(device, "O-P5"), free.value, free.spread) == (expected, 40 / mul_us, (40 / mul_us, 41 / mul_us))


def test_the_time_of_a_configuration_is_not_that_of_another_with_as_many_warps() -> None:
    device = probed()
    device.data("mlp/tuned", benchmark_us=[{**LOGS, "256 elements, 4 warps": 1.0, "64 elements, 8 warps": 1.0}] * 4)
    assert [figure(f"benchmark_{which}_us", device).value for which in ("fast", "slow")] == [1000.0, 90.0]


def test_what_tuning_does_is_not_measured_without_its_recording() -> None:
    device = probed()
    device.data("mlp/tuned", trials={}, while_tuning={"default": {}, "room": {}})
    assert "nothing was copied" in verdict(device, "O-P26").reason
    assert (status(device, "O-P24"), "no trial 'room'" in verdict(device, "O-P24").reason) == ("not measured", True)
    for missing in ("forward_us", "while_tuning", "benchmark_us"):
        device.record("mlp/tuned", data={key: of for key, of in device["mlp/tuned"].data.items() if key != missing})
    assert [status(device, f"O-P{number}") for number in (25, 26)] == ["not measured"] * 2
    with pytest.raises(NotRecorded, match="no forwards"):
        figure("slow_speedup", device)


def test_a_compiler_that_always_chooses_the_same() -> None:
    device = probed()
    device.record("mlp/tuned", data=trial((FAST, 40.0), (FAST, 41.0)))
    assert (figure("slow_choices", device).value, measured(device, "O-P19").value) == (0, 0)
    assert [status(device, f"O-P{number}") for number in (17, 18, 19)] == ["differs", "not measured", "differs"]
    assert "chose the same configuration" in verdict(device, "O-P18").reason


def test_the_configurations_of_the_page_s_forwards() -> None:
    device = probed()
    slow = "512 elements for 256 threads"
    assert [figure(name, device).text for name in ("shown_launch", "wide_launch")] == [slow, slow]
    assert [figure(name, device).text for name in ("shown_choice", "wide_choice")] == ["slower", "slower"]
    device.kernels("mlp/compiled_4096", lambda kernel: replace(kernel, grid=(32768, 1, 1), block=(128, 1, 1)))
    assert figure("wide_launch", device).text == "1024 elements for 128 threads"
    assert [figure(name, device).text for name in ("shown_choice", "wide_choice")] == ["slower", "faster"]
    device.kernels("mlp/compiled", lambda kernel: replace(kernel, block=(64, 1, 1)))
    assert figure("shown_choice", device).text == "neither"


def test_the_fused_kernel_on_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, bare = probed(), Device(tmp_path, "nvidia-bare")
    device.kernels("mlp/liger", lasting("geglu", 48.0))
    copy = device["mlp/compiled"].ceiling("copy")
    copy_us = 3 * HIDDEN_BYTES / copy.rate * 1e6
    shares = [f"{us:.1f} µs, {format_value(100 * copy_us / us, '%')}" for us in (40.0, 61.0, 48.0)]
    monkeypatch.setattr(fused_kernels, "all_devices", lambda root: (device, bare))
    listed = str(fused_kernels.on_each_device(device))
    assert re.findall(r"<td[^>]*>([^<]*)", listed) == ["H200", "132", format_value(copy.rate, "bytes/s"), *shares]
    monkeypatch.setattr(fused_kernels, "all_devices", lambda root: (Device(tmp_path, DEFAULT_DEVICE), bare))
    with pytest.raises(NotRecorded):
        fused_kernels.on_each_device(device)


def test_either_configuration_beside_other_kernels() -> None:
    device = probed()
    device.kernels("mlp/eager", lasting("elementwise", 40.0))
    device.kernels("mlp/liger", lasting("geglu", 48.0))
    assert (status(device, "O-P5"), measured(device, "O-P5").value) == ("holds", 1.0)
    assert figure("fast_pointwise_speedup", device).value == 2.0
    assert (status(device, "O-P36"), measured(device, "O-P36").value) == ("holds", 1.2)
    copy_us = 3 * HIDDEN_BYTES / device["mlp/compiled"].ceiling("copy").rate * 1e6
    assert measured(device, "O-P35").value == pytest.approx(100 * copy_us / 40)
    assert figure("slow_percent", device).value == pytest.approx(100 * copy_us / 61)
