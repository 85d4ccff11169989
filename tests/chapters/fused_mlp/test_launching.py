"""Dependent launch and the CPU's part of a call, on numbers by hand."""

from __future__ import annotations

from typing import Any

import pytest

from snippets.fused_mlp.findings import launching
from snippets.fused_mlp.findings.launching import ALONE, EARLY, LATE
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import measured, status, statuses, text_of
from tests.lab.samples import sample


def put(device: AlteredDevice, experiment: str, data: dict[str, Any]) -> None:
    name = f"fused_mlp/{experiment}"
    device.recordings[name] = sample(name, points=(), data=data, has_trace=False)


def traces(first_us: float, alone_us: float) -> dict[str, list[list[list[float]]]]:
    """Five equal steps of each variant; launched early, the second kernel starts 10 us before the first ends."""
    first = [-8.0, 0.0, first_us]
    early = [first, [50.0, first_us - 10.0, first_us + 60.0]]
    late = [first, [50.0, first_us + 2.0, first_us + 62.0]]
    return {EARLY: [early] * 5, LATE: [late] * 5, ALONE: [[[-8.0, 0.0, alone_us]]] * 5}


def launches(device: AlteredDevice, rested_us: float, loaded_us: float, alone_us: float, steady_us: float) -> None:
    steady = {"samples_us": [steady_us] * 3, "clock_mhz": 1500.0, "watts": 700.0}
    put(
        device,
        "launches",
        {
            "interleaved": {name: [170.0] * 3 for name in (EARLY, LATE, ALONE)},
            "steady": dict.fromkeys((EARLY, LATE, ALONE), steady),
            "rested": traces(rested_us, alone_us),
            "loaded": traces(loaded_us, alone_us),
        },
    )


def test_the_clock_lengthens_the_trace(device: AlteredDevice) -> None:
    launches(device, rested_us=112.0, loaded_us=130.0, alone_us=112.0, steady_us=190.0)
    assert statuses(device, "F33", "F34", "F39") == ["holds"] * 3
    assert measured(device, "F33").value == pytest.approx(130 / 112)


def test_the_early_launch_lengthens_the_trace(device: AlteredDevice) -> None:
    launches(device, rested_us=130.0, loaded_us=131.0, alone_us=112.0, steady_us=170.0)
    assert statuses(device, "F33", "F34", "F39") == ["differs"] * 3


def test_one_of_five_steps_that_is_shorter_makes_it_inconclusive(device: AlteredDevice) -> None:
    launches(device, rested_us=112.0, loaded_us=130.0, alone_us=112.0, steady_us=190.0)
    loaded = traces(130.0, 112.0)
    loaded[EARLY] = [*loaded[EARLY][1:], traces(112.0, 112.0)[EARLY][0]]
    device.data("fused_mlp/launches", loaded=loaded)
    assert status(device, "F33") == "inconclusive"


def test_the_table_of_launches(device: AlteredDevice) -> None:
    launches(device, rested_us=112.0, loaded_us=130.0, alone_us=111.0, steady_us=190.0)
    text = text_of(launching.launches_table(device))
    assert "traced after a rest: first kernel 112 µs" in text
    assert "traced after a load: overlap 10.0 µs 0 µs 0 µs" in text
    assert "clock, steady 1,500 MHz 1,500 MHz 1,500 MHz" in text


def test_what_is_left_of_a_call(device: AlteredDevice) -> None:
    times = {"an empty operator": 20.0, "without kernels and descriptors": 70.0, "without kernels": 110.0}
    put(device, "enqueued", {name: [us] * 3 for name, us in {**times, launching.WHOLE: 200.0}.items()})
    assert (measured(device, "F58").value, status(device, "F58")) == (35, "holds")
    assert "our operator without launches 110 µs" in text_of(launching.calls_table(device))
    device.data("fused_mlp/enqueued", **{launching.WHOLE: [139.0] * 3})
    assert status(device, "F58") == "differs"
