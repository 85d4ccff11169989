"""Bars from the floor up: amounts, multiples of the floor, and what cannot be drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.charts.floor_charts import floor_bars
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from tests.lab.samples import EVIL, Markup, assert_only_text, sample, save_all

FLOOR = ("the floor: bytes / bandwidth", Figure(490.0, "us"))


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def test_each_amount_on_one_scale(device: Device) -> None:
    rungs = {"static: compiled": Figure(3070.0, "us"), "generate": Figure(14_600.0, "us")}
    drawn = floor_bars(device, FLOOR, rungs, "One token", conditions="Batch 1.")
    assert re.findall(r"--(top|amount): ([\d.]+)", drawn) == [
        ("top", "14600"),
        ("amount", "490"),
        ("amount", "3070"),
        ("amount", "14600"),
    ]
    assert Markup(drawn).text == (
        "One tokenBatch 1.the floor bytes / bandwidth490 µsstatic compiled3.07 ms · 6.27xgenerate14.6 ms · 29.8x"
    )


@pytest.mark.parametrize(
    ("rung", "problem"),
    [
        (Figure(0.0, "us"), r"^One token: must be above zero: \{'a': 0\.0\}$"),
        (Figure(1.0, "bytes"), r"^One token: amounts in bytes and us have no common scale$"),
    ],
)
def test_what_cannot_be_drawn(device: Device, rung: Figure, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        floor_bars(device, FLOOR, {"a": rung}, "One token")


@pytest.mark.parametrize("name", EVIL)
def test_names_are_text(device: Device, name: str) -> None:
    assert_only_text(floor_bars(device, FLOOR, {name: Figure(1.0, "us")}, "One token"), name.replace(": ", " "))
