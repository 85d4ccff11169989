"""The memory of a step, and maps of segments, from hand-made data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.finding.device import Device
from snippets.training_memory.findings.charts import memory_map, memory_timeline
from snippets.training_memory.findings.drawn import ACROSS, HELD, PANEL, HeldStep, Segment, corners
from tests.lab.charts.drawings import boxes, description, drawing, texts
from tests.lab.samples import EVIL, Markup, cells

ANY = Device(Path("nowhere"), "nvidia-sample")
MB = 1_000_000
STEP = HeldStep(
    base={"parameters": 100 * MB, "states": 200 * MB},
    events=(
        ("temporaries", 50 * MB),
        ("activations", 400 * MB),
        ("temporaries", -50 * MB),
        ("gradients", 100 * MB),
        ("activations", -400 * MB),
        ("gradients", -100 * MB),
    ),
    phases={"forward": 3, "backward": 5, "optimizer": 6},
)


def test_levels_and_the_peak() -> None:
    totals = [sum(level.values()) // MB for level in STEP.levels()]
    assert totals == [300, 350, 750, 700, 800, 400, 300]
    at, level = STEP.peak()
    assert (at, STEP.phase_at(at)) == (4, "backward")
    assert {kind: size // MB for kind, size in level.items() if size} == {
        "parameters": 100,
        "states": 200,
        "gradients": 100,
        "activations": 400,
    }


def test_of_two_equal_peaks_the_first_counts() -> None:
    step = HeldStep({}, (("temporaries", 8), ("temporaries", -8), ("temporaries", 8)), {"forward": 1, "backward": 3})
    assert step.peak()[0] == 1
    assert step.phase_at(1) == "forward"


def test_a_step_without_events_is_at_its_base() -> None:
    step = HeldStep({"parameters": 8}, (), {"forward": 0})
    assert step.peak() == (0, {kind: 8 * (kind == "parameters") for kind in HELD})


def test_corners_are_where_a_line_turns() -> None:
    assert corners([1, 1, 3, 3], 10.0) == [(0.0, 1), (20.0, 1), (20.0, 3), (30.0, 3)]
    assert corners([5], 10.0) == [(0.0, 5), (0.0, 5)]


def test_what_a_timeline_says() -> None:
    content = memory_timeline(ANY, {"eager": STEP}, "One step")
    said = texts(content)
    assert {"eager: 800 MB, in backward", "forward", "backward", "allocations and releases, in order"} <= set(said)
    assert description(content).startswith(
        "eager: at most 800 MB, in backward, of it activations, kept for backward 400 MB"
    )
    assert re.findall(r'<li class="(\w+)"><span>(\w)</span>', content) == [
        ("parameters", "A"),
        ("states", "B"),
        ("gradients", "D"),
        ("activations", "E"),
        ("temporaries", "F"),
    ]


def test_the_numbers_of_a_timeline() -> None:
    rows = cells(memory_timeline(ANY, {"eager": STEP}, "One step"))
    assert [row[1:3] for row in rows[1:]] == [
        ["before", "300 MB"],
        ["at the peak", "800 MB"],
        ["after forward", "700 MB"],
        ["after backward", "400 MB"],
        ["after optimizer", "300 MB"],
    ]


def test_areas_are_as_high_as_their_bytes() -> None:
    """Those that change lie between what is always there and the peak, and reach from edge to edge."""
    paths = [path.get("d", "") for path in drawing(memory_timeline(ANY, {"eager": STEP}, "One step")).iter("path")]
    areas = [[float(x) for x in re.findall(r"-?[\d.]+", path)] for path in paths if path.count("L") > 4]
    assert {round(max(points[::2]) - min(points[::2])) for points in areas} == {round(ACROSS)}
    heights = [height for points in areas for height in points[1::2]]
    assert max(heights) - min(heights) == pytest.approx(PANEL / 1.04 * (800 - 300) / 800, abs=0.5)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (HeldStep({"parameters": 8}, (("gradients", 8),), {}), "end at"),
        (HeldStep({"parameters": 8}, (("gradients", 8),), {"forward": 0}), "not at its 1 events"),
        (HeldStep({"parameters": 8}, (("gradients", 8),), {"forward": 2, "backward": 1}), "end at"),
        (HeldStep({}, (), {"forward": 0}), "nothing to draw"),
    ],
)
def test_a_step_that_cannot_be_drawn(step: HeldStep, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        memory_timeline(ANY, {"eager": step}, "c")


SEGMENTS = [Segment("cut", ((60, False), (2, True), (38, False))), Segment("whole", ((50, False),))]


def test_blocks_are_as_wide_as_their_bytes() -> None:
    drawn = boxes(memory_map(ANY, SEGMENTS, "c"))
    widths = [width for _, _, width, _ in drawn]
    assert widths == pytest.approx([0.6 * 344, 0.02 * 344, 0.38 * 344, 0.5 * 344], abs=0.2)
    lefts = [left for left, *_ in drawn]
    assert lefts == pytest.approx([3, 3 + 0.6 * 344, 3 + 0.62 * 344, 3], abs=0.2)


def test_what_a_map_says() -> None:
    assert "8 of them" in memory_map(ANY, [Segment("a", ((8, True),))], "c", size_text="{} of them".format)
    content = memory_map(ANY, SEGMENTS, "c")
    assert texts(content) == ["cut", "whole"]
    assert description(content) == (
        "cut: 2 bytes of 100 bytes in use, largest free block 60 bytes. "
        "whole: 0 bytes of 50 bytes in use, largest free block 50 bytes."
    )
    assert cells(content)[1] == ["cut", "100 bytes", "1", "2 bytes", "2", "60 bytes"]


@pytest.mark.parametrize("segments", [[], [Segment("empty", ())], [Segment("nothing", ((0, True),))]])
def test_a_map_of_nothing(segments: list[Segment]) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        memory_map(ANY, segments, "c")


@pytest.mark.parametrize("name", EVIL)
def test_names_are_no_markup(name: str) -> None:
    for content in (memory_timeline(ANY, {name: STEP}, name), memory_map(ANY, [Segment(name, ((8, True),))], name)):
        assert not {*Markup(content).elements} & {"script", "img", "b"}
