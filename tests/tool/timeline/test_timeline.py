"""A step drawn: exact lanes, places and rows from hand-made events; names that stay text."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import msgspec
import pytest

from kinetoscope.html import Html
from kinetoscope.timeline import canvas
from kinetoscope.timeline.canvas import fitted, ticks_us
from kinetoscope.timeline.draw import BUDGET, TracedStep, draw_steps
from kinetoscope.trace.events import Step
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.lanes import Lane, lanes
from tests.tool.events import annotation, gpu_annotation, kernel, launch, memcpy, memset, op, step, trace_bytes
from tests.tool.markup import EVIL, Markup, text_of
from tests.tool.recorded import PROJECT

SCRIPT = (PROJECT / "kinetoscope/report/timeline.js").read_text(encoding="utf-8")
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
STEP = (
    step(3, 1000, 200, external=1),
    annotation("fwd", 1010, 150, external=2),
    op("aten::linear", 1020, 60, external=3),
    op("aten::t", 1022, 5, external=4),
    op("aten::mm", 1030, 45, external=5),
    op("aten::add", 1090, 40, external=6),
    launch(11, 1040, 10, external=5, name="cuLaunchKernelEx"),
    launch(12, 1100, 10, external=6),
    launch(13, 1150, 20, name="cudaDeviceSynchronize"),
    kernel(GEMM, 11, 1060, 100, **{"External id": 5}),
    kernel(ADD, 12, 1160, 90, **{"External id": 6}),
)
"""200 us on the CPU, 250 us with the GPU: on a scale of 251 us (0.4 % more), a microsecond is 0.398 %."""


def first_step(*events: Any) -> Step:
    return read_trace(trace_bytes(*events)).steps[0]


def drawn(*events: Any, label: str = "fwd", heading: str = "eager", caption: str = "A step") -> Html:
    return draw_steps({heading: traced(*events, label=label)}, caption, ident="ident")


def traced(*events: Any, label: str = "", index: int = 0) -> TracedStep:
    trace = read_trace(trace_bytes(*events))
    return TracedStep(trace, trace.steps[index], label)


def listed(step_lanes: tuple[Lane, ...]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        lane.name: [(one.name, one.kind, one.row, one.start_us, one.duration_us, one.pair) for one in lane.slices]
        for lane in step_lanes
    }


def lanes_of(*events: Any, label: str = "") -> dict[str, list[tuple[Any, ...]]]:
    return listed(lanes(first_step(*events), label))


def svg(content: str) -> Element:
    """The drawing, read as XML is read: what is not well-formed fails."""
    return ElementTree.fromstring(content[content.index('<svg class="drawing"') : content.index("</svg></div>") + 6])


def group(content: str, name: str) -> Element:
    return next(one for one in svg(content).iter("g") if one.get("class") == name)


def slices(content: str) -> list[Element]:
    return drawn_as(content, "slice")


def drawn_as(content: str, role: str) -> list[Element]:
    """The rectangles of slices, ghosts or gaps."""
    return [one for one in svg(content).iter("rect") if (one.get("class") or "").split(" ")[0] == role]


def said(piece: Element) -> list[str]:
    """What the script says of it: a line each."""
    return (piece.get("data-said") or "").split("\n")


def name_of(content: str, piece: Element) -> str:
    """The name written in it; empty where none fits."""
    parent = next(one for one in svg(content).iter() if any(same(each, piece) for each in one))
    each = next(index for index, one in enumerate(parent) if same(one, piece))
    rest = [one for one in parent[each + 1 : each + 3] if one.get("class") != "overlap"]
    return (rest[0].text or "") if rest and rest[0].tag == "text" else ""


def same(one: Element, other: Element) -> bool:
    return one.attrib == other.attrib


def rows(content: str) -> list[list[str]]:
    """The text of each row's cells, heads of tables left out."""
    found = re.findall(r"<tr>(.*?)</tr>", content, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in found]
    return [[text_of(cell) for cell in row] for row in cells if row]


def test_a_step_in_lanes() -> None:
    assert lanes_of(*STEP, label="fwd") == {
        "CPU": [
            ("fwd", "label", 0, 10, 150, None),
            ("aten::linear", "op", 1, 20, 60, None),
            ("aten::t", "op", 2, 22, 5, None),
            ("aten::mm", "op", 2, 30, 45, None),
            ("aten::add", "op", 1, 90, 40, None),
            ("cuLaunchKernelEx", "call", 3, 40, 10, 0),
            ("cudaLaunchKernel", "call", 3, 100, 10, 1),
            ("cudaDeviceSynchronize", "call", 3, 150, 20, None),
        ],
        "GPU stream 7": [(GEMM, "gemm", 0, 60, 100, 0), (ADD, "pointwise", 0, 160, 90, 1)],
    }


def test_a_label_is_marked_where_it_is_asked_for() -> None:
    assert lanes_of(*STEP)["CPU"][0][:2] == ("fwd", "annotation")
    assert lanes_of(*STEP, label="bwd")["CPU"][0][:2] == ("fwd", "annotation")


def test_threads_streams_and_devices_are_lanes() -> None:
    found = lanes_of(
        step(1, 0, 100),
        op("forward", 10, 20),
        op("backward", 40, 20, tid=99),
        launch(1, 15),
        launch(2, 45, tid=99),
        launch(3, 47, tid=99, name="cudaMemcpyAsync"),
        kernel("a", 1, 60, 5, stream=7),
        kernel("b", 2, 62, 5, stream=20),
        memcpy(3, 64, 5, 1024, stream=7),
    )
    assert list(found) == ["CPU thread 412", "CPU thread 99", "GPU stream 7", "GPU stream 20"]
    assert [one[0] for one in found["CPU thread 99"]] == ["backward", "cudaLaunchKernel", "cudaMemcpyAsync"]
    assert [one[0] for one in found["GPU stream 7"]] == ["a", "Memcpy DtoD (Device -> Device)"]
    two = lanes_of(step(1, 0, 9), launch(1, 1), launch(2, 4), kernel("a", 1, 5, 1), kernel("b", 2, 5, 1, device=1))
    assert list(two) == ["CPU", "GPU 0, stream 7", "GPU 1, stream 7"]


def test_what_overlaps_takes_a_row_of_its_own() -> None:
    found = lanes_of(
        step(1, 0, 100),
        launch(1, 10, 8),
        launch(2, 12, 4, name="cuLaunchKernel"),
        launch(3, 20, 8),
        kernel("a", 1, 30, 10),
        kernel("b", 2, 39, 10),
        kernel("c", 3, 40, 10),
    )
    assert [(one[0], one[2]) for one in found["CPU"]] == [
        ("cudaLaunchKernel", 0),
        ("cuLaunchKernel", 1),
        ("cudaLaunchKernel", 0),
    ]
    assert [(one[0], one[2]) for one in found["GPU stream 7"]] == [("a", 0), ("b", 1), ("c", 0)]


def test_one_launch_of_a_graph_is_paired_with_all_it_started() -> None:
    events = [step(1, 0, 50), launch(5, 10, name="cudaGraphLaunch")]
    events += [kernel(f"k{place}", 5, 60 + 10 * place, 8) for place in range(5)]
    assert [one[5] for each in lanes_of(*events).values() for one in each] == [0] * 6
    content = drawn(*events)
    assert len(group(content, "arrows")) == 5
    assert rows(content)[0][3] == "5 activities"


def test_work_whose_call_is_not_in_the_trace_has_no_pair() -> None:
    events = (step(1, 0, 50), gpu_annotation("ProfilerStep#1", 60, 30), kernel("lone", 77, 70, 10))
    assert lanes_of(*events) == {"GPU stream 7": [("lone", "other", 0, 70, 10, None)]}
    assert "data-pair" not in drawn(*events)
    none_known = (step(1, 0, 50), launch(0, 10), kernel("lone", 0, 20, 10), gpu_annotation("ProfilerStep#1", 5, 40))
    assert lanes_of(*none_known)["CPU"][0][5] is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (GEMM, "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn", "gemm"),
        (ADD, "pointwise"),
        ("triton_poi_fused_add_0", "pointwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)", "other"),
        ("somebody's kernel", "other"),
    ],
)
def test_a_kernel_is_drawn_by_what_it_does(name: str, kind: str) -> None:
    assert lanes_of(step(1, 0, 9), launch(1, 1), kernel(name, 1, 5, 1))["GPU stream 7"][0][1] == kind


def test_copies_and_fills() -> None:
    events = (step(1, 0, 9), launch(1, 1), launch(2, 4), memcpy(1, 5, 1, 64), memset(2, 7, 1, 4))
    assert [one[1] for one in lanes_of(*events)["GPU stream 7"]] == ["copy", "fill"]


def test_places_are_shares_of_one_scale() -> None:
    found = [(one.get("class"), one.get("x"), one.get("width")) for one in slices(drawn(*STEP))]
    scale = 250 * 1.004

    def share(time: float) -> str:
        return f"{round(100 * time / scale, 4):g}%"

    assert found[0] == ("slice label", share(10), share(150))
    assert found[5:] == [
        ("slice call", share(40), share(10)),
        ("slice call", share(100), share(10)),
        ("slice call", share(150), share(20)),
        ("slice gemm", share(60), share(100)),
        ("slice pointwise", share(160), share(90)),
    ]
    assert share(150) == "59.761%"
    regions = drawn_as(drawn(*STEP), "region")
    assert [(one.get("x"), one.get("width")) for one in regions] == [(share(10), share(150))]


def test_two_steps_have_one_scale_and_what_is_late_is_on_it() -> None:
    short = traced(step(1, 0, 50), op("a", 0, 50))
    late = traced(step(1, 5000, 50), launch(1, 5010), kernel("k", 1, 5940, 60))
    found = slices(draw_steps({"short": short, "late": late}, "Two", ident="ident"))
    assert [one.get("x") for one in found] == ["0%", "0.996%", "93.6255%"]
    assert found[0].get("width") == f"{round(50 / 10.04, 4):g}%"
    heights = [int(one.get("y") or 0) for one in found]
    assert heights == sorted(heights)
    assert len(set(heights)) == 3


def test_what_takes_next_to_no_time_is_wide_enough_to_be_drawn() -> None:
    for lasting in (0, 0.1):
        content = drawn(step(1, 0, 9e4), op("a", 50, lasting), op("b", 60, 1), launch(1, 70, 0), kernel("k", 1, 80, 0))
        assert [one.get("width") for one in slices(content)] == ["0.001%", "0.0011%", "0.001%", "0.001%"]
    at_zero = drawn(step(1, 0, 100), launch(1, 0), kernel("k", 1, 0, 10))
    assert [one.get("x") for one in slices(at_zero)] == ["0%", "0%"]


def test_gpu_work_before_its_step_moves_the_scale_not_its_zero() -> None:
    content = drawn(step(1, 1000, 90), launch(1, 1010), kernel("early", 1, 990, 10), label="")
    assert slices(content)[1].get("x") == "0%"
    assert (svg(content).get("data-begin"), svg(content).get("data-span")) == ("-10.0", "100.4")
    first = group(content, "axis").find("text")
    assert first is not None
    assert (first.text, first.get("x")) == ("0 µs", "9.9602%")


def test_arrows_run_from_the_start_of_a_call_to_the_start_of_its_work() -> None:
    arrows = group(drawn(*STEP), "arrows")
    by_pair: dict[str | None, list[Element]] = {}
    for one in slices(drawn(*STEP)):
        by_pair.setdefault(one.get("data-pair"), []).append(one)
    assert arrows.get("marker-end") == "url(#ident-arrow)"
    assert len(arrows) == 2
    for arrow in arrows:
        call, work = by_pair[arrow.get("data-pair")]
        assert (arrow.get("x1"), arrow.get("x2")) == (call.get("x"), work.get("x"))
        assert arrow.get("y1") == str(int(call.get("y") or 0) + int(call.get("height") or 0))
        assert arrow.get("y2") == work.get("y")


def test_what_a_slice_is_and_the_name_that_fits() -> None:
    content = drawn(*STEP)
    found = slices(content)
    assert [said(one) for one in found[:2]] == [
        ["fwd", "150 µs, begins after 10.0 µs"],
        ["aten::linear", "60.0 µs, begins after 20.0 µs"],
    ]
    gemm = "cuBLAS GEMM bf16 · 256x128x64 · TNT"
    assert said(found[8]) == [gemm, "100 µs, begins after 60.0 µs"], "the tables have the name of the trace"
    assert [name_of(content, one) for one in found] == [
        "fwd",
        "aten::linear",
        "t",
        "aten::mm",
        "aten::add",
        "cu…",
        "cu…",
        "cudaDe…",
        gemm,
        "add (ATen, vectorized)",
    ]


@pytest.mark.parametrize(
    ("width", "content"),
    [
        (200, "aten::linear"),
        (84, "aten::linear"),
        (83.9, "linear"),
        (45, "linear"),
        (44.9, "line…"),
        (25.5, "li…"),
        (25, ""),
    ],
)
def test_a_name_is_shortened_to_what_fits(width: float, content: str) -> None:
    assert fitted(("aten::linear", "linear"), width) == content


def test_capitals_are_wider() -> None:
    assert [fitted(("GEMM",), 44), fitted(("gemm",), 44), fitted(("GEMM",), 43.9)] == ["GEMM", "gemm", "GEM…"]


@pytest.mark.parametrize(
    ("begin", "span", "ticks"),
    [
        (0, 100.4, [0, 20, 40, 60, 80]),
        (0, 704.5, [0, 200, 400, 600]),
        (0, 6, [0, 1, 2, 3, 4, 5]),
        (0, 0.5, [0, 0.1, 0.2, 0.3, 0.4]),
        (-12, 60, [-10, 0, 10, 20, 30, 40]),
        (0, 3312, [0, 1000, 2000, 3000]),
    ],
)
def test_ticks_are_round_and_few(begin: float, span: float, ticks: list[float]) -> None:
    assert ticks_us(begin, span) == ticks


def test_the_axis_has_a_unit() -> None:
    def axis(end: float) -> list[str | None]:
        content = drawn(step(1, 0, end), op("a", 0, end))
        return [one.text for one in group(content, "axis").iter("text")]

    assert axis(100) == ["0 µs", "20 µs", "40 µs", "60 µs", "80 µs"]
    assert axis(4000) == ["0 ms", "1 ms", "2 ms", "3 ms"]


def test_the_tables_say_what_is_drawn_in_its_order() -> None:
    content = drawn(*STEP)
    found = rows(content)
    assert found[0] == ["fwd", "labeled region", "eager: CPU", "–", "10.0 µs", "150 µs"]
    assert found[5] == ["cuLaunchKernelEx", "CUDA call", "eager: CPU", "GEMM", "40.0 µs", "10.0 µs"]
    gemm = ["cuBLAS GEMM bf16 · 256x128x64 · TNT", GEMM, "eager: GPU stream 7", "aten::mm", "cuLaunchKernelEx"]
    assert found[8] == [*gemm, "60.0 µs", "100 µs", "20.0 µs", "4x2x1", "384x1x1", "168", "164,308", "–"]
    assert [row[0] for row in found] == [said(one)[0] for one in slices(content)]
    fill = rows(drawn(step(1, 0, 9), launch(1, 1, name="cudaMemsetAsync"), memset(1, 5, 1, 4)))[1]
    assert fill[1:5] == ["Memset (Device)", "eager: GPU stream 7", "ProfilerStep#1", "cudaMemsetAsync"]
    assert fill[-1] == "4"


def test_the_part_of_a_kernel_that_overlaps_is_drawn_and_told() -> None:
    overlapping = (
        step(1, 0, 50),
        launch(1, 5),
        launch(2, 8),
        kernel("first", 1, 10, 20),
        kernel("second", 2, 26, 16),
    )
    content = drawn(*overlapping)
    second = slices(content)[-1]
    (overlap,) = drawn_as(content, "overlap")
    assert [overlap.get(key) for key in ("x", "y", "height")] == [second.get(key) for key in ("x", "y", "height")]
    assert overlap.get("width") == f"{round(4 / 0.502, 4):g}%"
    lasts = "16.0 µs, of it 4.00 µs overlapping the kernel before"
    assert said(second)[-1] == f"{lasts}, begins after 26.0 µs"
    assert [row[6] for row in rows(content)[-2:]] == ["20.0 µs", lasts]
    assert "2 kernels, GPU busy 32.0 µs" in (svg(content).get("aria-label") or "")
    assert content.count('<li class="overlap">') == 1
    assert "overlap" not in drawn(*STEP)


BUSY = (
    step(1, 0, 100),
    step(2, 100, 100),
    launch(1, 10),
    launch(2, 20),
    launch(3, 110),
    launch(4, 120),
    kernel("before", 1, 40, 40),
    kernel("lagging", 2, 80, 60),
    kernel("own", 3, 160, 30),
    kernel("late", 4, 190, 20),
)
"""The second step begins while the GPU works for the first, which it does for 40 us more; then it has nothing to do."""


def test_the_work_of_the_step_before_is_there_and_pale() -> None:
    content = draw_steps({"second": traced(*BUSY, index=1)}, "Two", ident="ident")
    (ghost,) = drawn_as(content, "ghost")
    assert (ghost.get("x"), ghost.get("width")) == ("0%", f"{round(100 * 40 / (110 * 1.004), 4):g}%")
    assert said(ghost) == ["lagging", "another step's work, 40.0 µs, begins after 0.0 µs"]
    own = slices(content)[-2:]
    assert ghost.get("y") == own[0].get("y") == own[1].get("y")
    assert [said(one)[0] for one in own] == ["own", "late"]
    assert len(rows(content)) == len(slices(content)) == 4
    assert content.count('<li class="ghost">') == 1


def test_a_gap_is_hatched_and_says_how_long_it_is() -> None:
    content = draw_steps({"second": traced(*BUSY, index=1)}, "Two", ident="ident")
    (gap,) = drawn_as(content, "gap")
    assert (gap.get("class"), gap.get("fill")) == ("gap idle", "url(#ident-idle)")
    assert said(gap) == ["20.0 µs idle", "begins after 40.0 µs"]
    assert name_of(content, gap) == "20.0 µs idle"
    assert '<li class="idle">' in content


def test_before_the_first_recorded_work_nothing_is_known() -> None:
    content = draw_steps({"first": traced(*BUSY)}, "One", ident="ident")
    before = drawn_as(content, "gap")
    assert [(one.get("class"), one.get("fill"), said(one)[0]) for one in before] == [
        ("gap unrecorded", None, "not recorded")
    ]
    assert (before[0].get("x"), name_of(content, before[0])) == ("0%", "not recorded")
    assert drawn_as(content, "ghost") == [], "what comes later does not run in its time"


def test_a_gap_too_short_to_see_is_not_drawn() -> None:
    def gaps(length: float) -> int:
        events = (step(1, 0, 500), launch(1, 5), launch(2, 8), kernel("a", 1, 0, 200))
        return len(drawn_as(drawn(*events, kernel("b", 2, 200 + length, 300 - length)), "gap"))

    assert (gaps(2.1), gaps(1.9)) == (1, 0)


def test_on_two_streams_one_that_works_is_enough() -> None:
    events = (step(1, 0, 100), launch(1, 5), launch(2, 8), kernel("a", 1, 0, 40), kernel("b", 2, 30, 50, stream=9))
    (gap,) = drawn_as(drawn(*events), "gap")
    assert said(gap) == ["20.0 µs idle", "begins after 80.0 µs"]


def test_what_the_script_needs_to_align_steps() -> None:
    content = draw_steps({"one": traced(*BUSY), "two": traced(*BUSY, index=1)}, "Two", ident="ident")
    steps = [one for one in svg(content).iter("svg") if one.get("class") == "step"]
    assert [(one.get("data-shown"), one.get("data-gpu")) for one in steps] == [
        ("0.0 140.0", "40.0"),
        ("0.0 110.0", "60.0"),
    ]
    assert re.findall(r'name="ident-align" value="(\w+)"( checked)?', content) == [("launch", " checked"), ("gpu", "")]
    assert "align" not in drawn(*STEP)
    without = draw_steps({"a": traced(step(1, 0, 50), op("x", 1, 2)), "b": traced(*BUSY)}, "Two", ident="ident")
    assert next(one.get("data-gpu") for one in svg(without).iter("svg") if one.get("class") == "step") == ""


def test_a_large_step_is_drawn_in_blocks_and_says_so() -> None:
    events = [step(1, 0, 50_000)]
    for index in range(5_000):
        at = index * 10.0
        events += [launch(index + 1, at + 1, 3), kernel("k", index + 1, at + 6, 2.5 + index % 5)]
    content = draw_steps({"large": traced(*events), "small": traced(*BUSY)}, "Large", ident="ident")
    drawn_slices = slices(content)
    assert 300 < len(drawn_slices) == len(rows(content)) <= BUDGET
    blocks = [one for one in drawn_slices if "block" in (one.get("class") or "").split()]
    merged = sum(int(said(one)[0].split(" ")[0].replace(",", "")) for one in blocks)
    alone = len(drawn_slices) - len(blocks) - 4
    assert merged + alone == 10_000, "nothing is lost"
    assert f"large: {merged:,} slices too short to see are drawn as {len(blocks):,} blocks" in content
    assert len(content) < 600_000


def test_its_name_tells_what_there_is_to_see() -> None:
    content = svg(drawn(*STEP))
    said = "A step. eager: 2 kernels, GPU busy 190 µs; GPU done after 250 µs, CPU done after 200 µs"
    assert (content.get("role"), content.get("aria-label")) == ("img", said)
    one = drawn(step(1, 0, 9), launch(1, 1), launch(2, 2), kernel("a", 1, 5, 2), memcpy(2, 6, 3, 64))
    assert "1 kernel, 1 copy, GPU busy 4.00 µs; GPU done after 9.00 µs" in (svg(one).get("aria-label") or "")


def test_a_trace_of_the_cpu_alone() -> None:
    content = drawn(step(1, 0, 50), op("aten::add", 10, 20))
    assert "nothing on the GPU; CPU done after 50.0 µs" in (svg(content).get("aria-label") or "")
    assert rows(content) == [["aten::add", "operator", "eager: CPU", "–", "10.0 µs", "20.0 µs"]]
    assert "GPU</caption>" not in content


def test_an_empty_step_is_an_empty_drawing() -> None:
    content = drawn(step(1, 0, 50))
    assert slices(content) == []
    assert rows(content) == []


def test_the_legend_names_what_occurs() -> None:
    legend = re.findall(r'<li class="(\w+)">.*?</svg>([^<]+)</li>', drawn(*STEP))
    said = {"label": "labeled region", "op": "operator", "call": "CUDA call", "gemm": "GEMM"}
    assert dict(legend) == said | {"pointwise": "pointwise kernel", "unrecorded": "before the recording"}
    assert '<li class="ghost">' not in drawn(*STEP)


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        draw_steps({}, "None", ident="ident")


@pytest.mark.parametrize("name", EVIL)
def test_names_stay_text(name: str) -> None:
    events = (
        step(1, 0, 500),
        annotation(name, 5, 400),
        op(f"aten::{name}", 10, 390),
        launch(1, 20, 300, name=name),
        kernel(name, 1, 30, 450),
    )
    content = drawn(*events, label=name, heading=name, caption=name)
    drawing = svg(content)
    allowed = {"svg", "defs", "marker", "path", "pattern", "rect", "circle", "g", "line", "text", "tspan"}
    assert {one.tag for one in drawing.iter()} <= allowed
    assert [said(one)[0] for one in slices(content)][:3] == [name, f"aten::{name}", name]
    assert name in (drawing.get("aria-label") or "")
    page = Markup(content)
    assert not {"script", "img", "b"} & set(page.elements)
    assert [given for given, _ in page.attributes if given.startswith("on") or given == "src"] == []
    assert page.text.count(name) > 6


def test_ids_are_the_drawings_own_and_all_that_is_referred_to() -> None:
    found = Markup(drawn(*STEP))
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert all(one and one.startswith("ident-") for one in ids)
    used = {one for _, value in found.attributes for one in re.findall(r"url\(#([^)]+)\)", value or "")}
    assert used
    assert used <= set(ids)


def test_a_pattern_is_defined_where_its_kind_is_drawn() -> None:
    """A GEMM needs none; before the first kernel, the GPU is idle."""
    alone = (step(1, 0, 200), launch(1, 10, 10), kernel(GEMM, 1, 30, 100))
    two = draw_steps({"first": traced(*alone), "second": traced(*STEP)}, "Two", ident="ident")
    patterns = [[one.get("class") for one in svg(each).iter("pattern")] for each in (drawn(*alone, label=""), two)]
    assert patterns == [["idle"], ["pointwise", "idle"]]


def test_the_script_is_small_and_shortens_as_we_do() -> None:
    assert len(gzip.compress(SCRIPT.encode(), 6)) <= 12_000
    assert not re.search(r"innerHTML|insertAdjacent|https?:|eval\(", SCRIPT)
    constants = dict(re.findall(r"\b([A-Z_]{5,}) = ([\d.]+)", SCRIPT))
    ours = {"PADDING": "_PADDING_PX", "LEAST_LETTERS": "_LEAST_LETTERS", "MOST_TICKS": "_MOST_TICKS"}
    for theirs, name in ours.items():
        assert float(constants[theirs]) == vars(canvas)[name]


def test_what_a_reduced_step_leaves_out_is_not_the_work_of_another_step() -> None:
    found = traced(step(1, 0, 50), launch(1, 1), kernel("a", 1, 5, 10), launch(2, 3), kernel("b", 2, 15, 10))
    first, _ = found.step.activities
    run = msgspec.structs.replace(first, duration_us=20.0)
    reduced = msgspec.structs.replace(found.step, activities=(run,))
    drawing = draw_steps({"x": replace(found, reduced=reduced)}, "c", ident="i")
    assert 'class="slice other"' in drawing
    assert 'class="ghost' not in drawing
