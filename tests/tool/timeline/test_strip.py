"""Strips: what is drawn where, out of hand-written events."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from kinetoscope.timeline.strip import SMALL, Scale, gaps, merged, selected, strip, strip_kinds, strip_legend
from kinetoscope.trace.events import Step
from kinetoscope.trace.kineto import read_trace
from tests.tool import events
from tests.tool.markup import EVIL

WHOLE = Scale(10, 100)
"""From the annotation's start on."""


@pytest.fixture
def step(tmp_path: Path) -> Step:
    """A linear layer, a GELU and a wait: a GEMM, a pointwise kernel, gaps of 20, 10 and 20 us."""
    trace = events.trace_bytes(
        events.step(3, 0, 120),
        events.annotation("mlp_fwd", 10, 100),
        events.op("aten::linear", 12, 20, external=1),
        events.op("aten::addmm", 14, 16, external=2),
        events.launch(1, 20, 4, external=2),
        events.op("aten::gelu", 40, 10, external=3),
        events.launch(2, 44, 4, external=3),
        events.op("aten::item", 60, 40, external=4),
        events.launch(3, 62, 36, name="cudaStreamSynchronize"),
        events.launch(4, 52, 2, name="cudaEventQuery"),
        events.kernel("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 1, 30, 25, **{"External id": 2}),
        events.kernel("void at::native::vectorized_elementwise_kernel<8, A>(int)", 2, 65, 20, **{"External id": 3}),
    )
    path = tmp_path / "trace.json"
    path.write_bytes(trace)
    return read_trace(path).steps[0]


def drawn(svg: str) -> list[tuple[str, str, str, str]]:
    """Kind, x, width and text of each slice."""
    expression = (
        r'<svg class="slice (\w+)" x="(.*?)" y=".*?" width="(.*?)" height.*?<title>.*?</title>.*?'
        r"(?:<text[^>]*>(.*?)</text>)?</svg>"
    )
    slices = re.findall(expression, svg, re.DOTALL)
    return [(kind, x, width, text) for kind, x, width, text in slices]


def test_outermost_operators_calls_that_launch_or_wait_and_gpu_work(step: Step) -> None:
    ops, calls, work = selected(step, WHOLE)
    assert [each.name for each in ops] == ["aten::linear", "aten::gelu", "aten::item"]
    assert [each.name for each in calls] == ["cudaLaunchKernel", "cudaLaunchKernel", "cudaStreamSynchronize"]
    assert [each.kind for each in work] == ["gemm", "pointwise"]
    assert strip_kinds(step, WHOLE) == {"op", "call", "gemm", "pointwise", "idle"}


def test_only_what_the_scale_shows(step: Step) -> None:
    ops, calls, work = selected(step, Scale(33, 20))
    assert ([each.name for each in ops], len(calls), len(work)) == (["aten::gelu"], 1, 1)


def test_gaps_up_to_the_last_work(step: Step) -> None:
    _, _, work = selected(step, WHOLE)
    assert list(gaps(work, WHOLE)) == [(10, 30), (55, 65)]
    assert list(gaps(work, Scale(10, 10_000))) == []


def test_places_are_percent_of_the_scale(step: Step) -> None:
    assert drawn(strip(step, WHOLE, ident="s", described="d")) == [
        ("op", "2%", "20%", "aten::linear"),
        ("op", "30%", "10%", "aten::gelu"),
        ("op", "50%", "40%", "aten::item"),
        ("call", "10%", "4%", ""),
        ("call", "34%", "4%", ""),
        ("call", "52%", "36%", ""),
        ("idle", "0%", "20%", "20.0 µs"),
        ("idle", "45%", "10%", "10.0 µs"),
        ("gemm", "20%", "25%", "GEMM"),
        ("pointwise", "55%", "20%", "gelu"),
    ]


def test_arrows_lead_from_calls_to_their_work(step: Step) -> None:
    svg = strip(step, WHOLE, ident="s", described="d")
    assert re.findall(r'<line x1="(.*?)" y1="74" x2="(.*?)" y2="108"/>', svg) == [("12%", "20%"), ("36%", "55%")]


def test_a_small_strip_has_no_text_but_titles(step: Step) -> None:
    svg = strip(step, WHOLE, ident="s", described="d", rows=SMALL)
    assert "<text" not in svg
    assert svg.count("<title>") == 10


@pytest.mark.parametrize("evil", EVIL)
def test_names_are_escaped(step: Step, evil: str) -> None:
    ops = tuple(replace(op, name=evil, parent=None) for op in step.ops)
    svg = strip(replace(step, ops=ops), WHOLE, ident="s", described=evil)
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == evil
    assert {element.tag for element in root.iter()} <= {
        "svg",
        "defs",
        "marker",
        "path",
        "pattern",
        "rect",
        "g",
        "line",
        "text",
        "title",
    }


def test_the_legend_has_the_kinds_in_their_order() -> None:
    legend = strip_legend({"gemm", "pointwise"}, "s")
    assert re.findall(r'<li class="(\w+)">', legend) == ["gemm", "pointwise"]
    assert 'fill="url(#s-pointwise)"' in legend


def test_runs_of_short_slices_are_one_of_the_kind_of_most(step: Step) -> None:
    _, _, (gemm, pointwise) = selected(step, WHOLE)
    short = [
        replace(piece, start_us=start, duration_us=lasts)
        for piece, start, lasts in ((gemm, 0, 2), (pointwise, 3, 3), (gemm, 7, 2), (pointwise, 20, 9), (gemm, 29, 2))
    ]
    drawn = merged(short, 5)
    assert [(each.kind, each.start_us, each.duration_us, each.merged) for each in drawn] == [
        ("gemm", 0, 9, 3),
        ("pointwise", 20, 9, 1),
        ("gemm", 29, 2, 1),
    ]
    assert merged(short, 1) == short
