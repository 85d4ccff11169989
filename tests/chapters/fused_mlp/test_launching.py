"""Dependent launch, on numbers by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from snippets.fused_mlp.findings import launching
from snippets.fused_mlp.findings.launching import ALONE, EARLY, LATE
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import measured, status, text_of
from tests.lab.samples import sample

VARIANTS = (EARLY, LATE, ALONE)
replace = msgspec.structs.replace


def put(device: AlteredDevice, experiment: str, data: dict[str, Any]) -> None:
    name = f"fused_mlp/{experiment}"
    device.recordings[name] = sample(name, points=(), data=data, has_trace=False)


def steps(first_us: float, second_starts_us: float) -> list[list[list[float]]]:
    """Five equal steps of two kernels."""
    return [[[-8.0, 0.0, first_us], [50.0, second_starts_us, second_starts_us + 60.0]]] * 5


def launches(device: AlteredDevice, rested_us: float = 100.0, early_us: float = 100.0, alone_us: float = 130.0) -> None:
    """Traces after a rest, and after a load: launched early, one after the other (100 us), and alone."""
    steady = {"samples_us": [190.0] * 3, "clock_mhz": 1500.0, "watts": 700.0}
    one = [[-8.0, 0.0, rested_us]]
    rested = {EARLY: steps(rested_us, rested_us), LATE: steps(rested_us, rested_us + 2), ALONE: [one] * 5}
    loaded = {EARLY: steps(early_us, early_us - 10), LATE: steps(100.0, 102.0), ALONE: [[[-8.0, 0.0, alone_us]]] * 5}
    interleaved = {name: [170.0] * 3 for name in VARIANTS}
    data = {"interleaved": interleaved, "steady": dict.fromkeys(VARIANTS, steady), "rested": rested, "loaded": loaded}
    put(device, "launches", data)


def shown(device: AlteredDevice, experiment: str, us: float) -> None:
    """Give every kernel of a trace the same duration."""
    device.kernels(f"fused_mlp/{experiment}", lambda kernel: replace(kernel, duration_us=us))


@pytest.mark.parametrize(("shown_us", "expected"), [(111.0, "holds"), (109.0, "differs")])
def test_the_shown_trace_against_one_after_a_rest(device: AlteredDevice, shown_us: float, expected: Status) -> None:
    launches(device)
    shown(device, "fused", shown_us)
    assert (measured(device, "F39").value, status(device, "F39")) == (pytest.approx(shown_us / 100), expected)


@pytest.mark.parametrize(("early_us", "expected"), [(93.0, "differs"), (95.0, "holds"), (107.0, "differs")])
def test_the_early_launch_may_change_the_first_kernel(device: AlteredDevice, early_us: float, expected: Status) -> None:
    launches(device, early_us=early_us)
    assert (measured(device, "F34").value, status(device, "F34")) == (pytest.approx(early_us / 100), expected)


@pytest.mark.parametrize(("alone_us", "expected"), [(111.0, "holds"), (109.0, "differs")])
def test_a_load_may_lengthen_what_follows(device: AlteredDevice, alone_us: float, expected: Status) -> None:
    launches(device, alone_us=alone_us)
    assert (measured(device, "F33").value, status(device, "F33")) == (pytest.approx(alone_us / 100), expected)


def test_one_of_five_steps_makes_it_inconclusive(device: AlteredDevice) -> None:
    launches(device)
    loaded = device["fused_mlp/launches"].data["loaded"]
    device.data("fused_mlp/launches", loaded={**loaded, ALONE: [*loaded[ALONE][1:], [[-8.0, 0.0, 100.0]]]})
    assert status(device, "F33") == "inconclusive"


@pytest.mark.parametrize(("packaged_us", "expected"), [(56.0, "holds"), (54.0, "differs")])
def test_the_same_cublas_kernel_in_two_traces(device: AlteredDevice, packaged_us: float, expected: Status) -> None:
    last = device["fused_mlp/eager"].step.kernels[-1].name
    device.kernels("fused_mlp/kernelized", lambda kernel: replace(kernel, name=last, duration_us=packaged_us / 2))
    shown(device, "eager", 50.0)
    assert (measured(device, "F82").value, status(device, "F82")) == (pytest.approx(packaged_us / 50), expected)
    device.kernels("fused_mlp/kernelized", lambda kernel: replace(kernel, name="pingpong_kernel"))
    assert status(device, "F82") == "not measured"


def test_the_table_of_launches(device: AlteredDevice) -> None:
    launches(device)
    text = text_of(launching.launches_table(device))
    assert "traced after a rest: first kernel 100 µs" in text
    assert "traced after a load: overlap 10.0 µs 0 µs 0 µs" in text
    assert "clock, steady 1,500 MHz 1,500 MHz 1,500 MHz" in text
