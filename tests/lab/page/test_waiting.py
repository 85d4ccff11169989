"""The opening figure out of hand-made recordings: one scale, the wait in numbers, all three times in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.finding.device import Device
from snippets.lab.page.waiting import waiting
from snippets.lab.recording.schema import NotRecorded, NotTimed, Timings
from tests.lab import samples
from tests.lab.samples import EVIL, Markup, assert_only_text, point, sample, save_all

SIZES = {"1 token": {"eager": "mlp/eager"}, "8,192 tokens": {"compiled": "mlp/compiled"}}


def timed(enqueue_us: float, interleaved_us: float, from_python_us: float) -> Timings:
    return Timings(
        interleaved=samples.timing(interleaved_us, interleaved_us),
        cold=samples.timing(1.0, 1.0),
        from_python=samples.timing(from_python_us, from_python_us),
        enqueue=samples.timing(enqueue_us, enqueue_us),
        input_sets=4,
        rotated_bytes=1_000_000,
    )


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(
        tmp_path,
        sample("mlp/eager", points=(point(timed=timed(90, 20, 100)),)),
        sample("mlp/compiled", points=(point(timed=timed(50, 194, 200)),)),
    )


def test_the_longest_wait_sets_the_scale_of_all_panels(device: Device) -> None:
    content = waiting(device, SIZES, "The wait")
    assert re.findall(r'<(?:rect class="(\w+)" y="\d+" width|line x1)="([\d.]+%)"', content) == [
        *(("cpu", "43.65%"), ("gpu", "9.70%"), ("", "48.50%")),
        *(("cpu", "24.25%"), ("gpu", "94.09%"), ("", "97.00%")),
    ]


def test_what_is_written(device: Device) -> None:
    content = waiting(device, SIZES, "The wait")
    assert Markup(content).text == (
        "The wait1 tokeneager100 µs8,192 tokenscompiled200 µsthe CPU submitsthe GPU computesyou wait"
    )
    assert [value for name, value in Markup(content).attributes if name == "aria-label"] == [
        "eager: the CPU submits 90.0 µs, the GPU computes 20.0 µs, you wait 100 µs",
        "compiled: the CPU submits 50.0 µs, the GPU computes 194 µs, you wait 200 µs",
    ]


def test_what_cannot_be_drawn(device: Device) -> None:
    with pytest.raises(ValueError, match=r"^The wait: nothing to draw$"):
        waiting(device, {"1 token": {}}, "The wait")
    with pytest.raises(NotRecorded):
        waiting(device, {"": {"Liger": "mlp/liger"}})
    save_all(device.root, sample("mlp/liger", points=(point(timed=None),)))
    with pytest.raises(NotTimed):
        waiting(device, {"": {"Liger": "mlp/liger"}})


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_names(device: Device, name: str) -> None:
    assert_only_text(waiting(device, {name: {name: "mlp/eager"}}, name), name)
