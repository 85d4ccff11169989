"""The axis that a bar chart hands to the script, against the bars that it draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.html import Html
from snippets.lab.charts.axis import LinearAxis
from snippets.lab.charts.bar_charts import stacked_bars, timing_bars
from snippets.lab.charts.bars import ACROSS, EDGE, pairs_axis, pairs_height, stacks_axis
from snippets.lab.finding.device import Device
from tests.lab import samples
from tests.lab.samples import DEVICE, Markup

STACKS = {"eager": [("gemm", 30.0), ("gelu", 20.0)], "fused": [("gemm", 25.0)]}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, DEVICE)


def axis(content: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(dict(Markup(content).attributes)["data-axis"] or "")
    return decoded


def test_the_longest_bar_takes_the_width(device: Device) -> None:
    assert stacks_axis(STACKS, "us") == LinearAxis("us", EDGE, 50.0, ACROSS, 120)
    assert stacks_axis(STACKS, "us").scale == ACROSS / 50
    assert axis(stacked_bars(device, STACKS, "Bars")) == {
        "unit": "us",
        "zero": 3,
        "amount": 50.0,
        "length": ACROSS,
        "height": 120,
    }
    assert axis(stacked_bars(device, {"a": [("b", 7)]}, "Bytes", unit="bytes"))["unit"] == "bytes"


def test_the_longest_of_timings_with_its_spread_leaves_room_for_its_name(device: Device) -> None:
    groups = {"eager": {"GPU": samples.timing(10.0, 20.0, 40.0), "CPU": samples.timing(5.0, 5.0)}}
    across = pairs_axis(groups)
    assert (across.unit, across.zero, across.amount) == ("us", EDGE, 30.0)
    assert across.length == ACROSS - 110
    assert across.height == pairs_height(1, 2) - 44
    assert axis(timing_bars(device, groups, "Pairs"))["length"] == 234


def test_a_drawing_keeps_all_else() -> None:
    drawn = LinearAxis("us", 3, 1234.567, 99.99, 118).written_into(Html('<svg viewBox="0 0 1 1"><svg ></svg></svg>'))
    assert drawn.count("data-axis") == 1
    assert axis(drawn) == {"unit": "us", "zero": 3, "amount": 1234.57, "length": 100.0, "height": 118}
    assert drawn.endswith('" viewBox="0 0 1 1"><svg ></svg></svg>')
