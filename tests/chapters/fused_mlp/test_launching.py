"""Dependent launch, on numbers by hand."""

from __future__ import annotations

from typing import Any

import pytest

from snippets.fused_mlp.findings import launching
from snippets.fused_mlp.findings.launching import ALONE, EARLY, LATE
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import measured, status, text_of
from tests.lab.samples import sample

VARIANTS = (EARLY, LATE, ALONE)


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


@pytest.mark.parametrize(("early_us", "expected"), [(104.0, "differs"), (106.0, "holds")])
def test_the_early_launch_lengthens_the_first_kernel(device: AlteredDevice, early_us: float, expected: Status) -> None:
    launches(device, early_us=early_us)
    assert (measured(device, "F34").value, status(device, "F34")) == (pytest.approx(early_us / 100), expected)


@pytest.mark.parametrize(("rested_us", "expected"), [(90.0, "holds"), (92.0, "differs")])
def test_a_load_may_lengthen_what_follows(device: AlteredDevice, rested_us: float, expected: Status) -> None:
    launches(device, rested_us=rested_us)
    assert (measured(device, "F33").value, status(device, "F33")) == (pytest.approx(100 / rested_us), expected)


def test_the_first_two_steps_do_not_count(device: AlteredDevice) -> None:
    """Of the others, one that differs makes it inconclusive."""
    launches(device, rested_us=80.0)
    rested = device["fused_mlp/launches"].data["rested"]
    (slow,) = steps(100.0, 102.0)[:1]
    device.data("fused_mlp/launches", rested={**rested, LATE: [slow, slow, *rested[LATE][2:]]})
    assert status(device, "F33") == "holds"
    device.data("fused_mlp/launches", rested={**rested, LATE: [*rested[LATE][:4], slow]})
    assert status(device, "F33") == "inconclusive"


def test_the_table_of_launches(device: AlteredDevice) -> None:
    launches(device)
    text = text_of(launching.launches_table(device))
    assert "traced after a rest: first kernel 100 µs" in text
    assert "traced after a load: overlap 10.0 µs 0 µs 0 µs" in text
    assert "clock, steady 1,500 MHz 1,500 MHz 1,500 MHz" in text
