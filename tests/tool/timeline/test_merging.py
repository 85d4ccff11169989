"""Fewer slices for a large step: nothing is lost from counts, evidence stays, blocks keep their place."""

from __future__ import annotations

import re

from msgspec.structs import replace

from kinetoscope.report.timeline import BUDGET, step_timeline
from kinetoscope.timeline.merging import MOST_LANES, left_out, reduce_lanes
from kinetoscope.trace.events import Span
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.lanes import Kind, Lane, Slice
from tests.tool.events import kernel, launch, op, step, trace_bytes


def piece(start: float, duration: float, kind: Kind = "gemm", row: int = 0, anchor: str = "") -> Slice:
    return Slice("name", kind, row, start, duration, None, Span("name", start, duration), anchor=anchor)


def gpu(*slices: Slice) -> Lane:
    return Lane("GPU stream 7", True, slices)


def test_a_small_step_stays_as_it_is() -> None:
    lane = gpu(piece(0, 10), piece(10, 20, "copy"))
    assert reduce_lanes([lane], 100, 10).lanes == (lane,)


def test_neighbors_become_a_block() -> None:
    lane = gpu(piece(0, 40), *(piece(40 + index / 100, 0.005, "copy") for index in range(3)), piece(60, 40))
    drawn = reduce_lanes([lane], 100, 3)
    assert drawn.merged == 3
    block = drawn.lanes[0].slices[1]
    assert (block.name, block.kind, block.merged) == ("3 copies, 15.0 ns together", "copy", 3)
    assert (block.start_us, block.end_us) == (40, 40.025)


def test_a_block_has_the_kind_with_the_most_time() -> None:
    lane = gpu(piece(0, 0.01), piece(0.01, 0.03, "copy"), piece(0.04, 0.01), piece(50, 50))
    block = reduce_lanes([lane], 100, 2).lanes[0].slices[0]
    assert (block.name, block.kind) == ("3 activities, 50.0 ns together", "copy")


def test_the_work_of_other_steps_has_blocks_of_its_own() -> None:
    ghosts = [replace(piece(index / 100, 0.005), is_ghost=True) for index in range(3)]
    lane = gpu(*ghosts, *(piece(0.03 + index / 100, 0.005) for index in range(3)), piece(50, 50))
    blocks = reduce_lanes([lane], 100, 3).lanes[0].slices
    assert [(each.merged, each.is_ghost) for each in blocks] == [(3, True), (3, False), (1, False)]


def test_what_is_left_out_is_said() -> None:
    lane = gpu(*(piece(index / 100, 0.005) for index in range(3)), piece(50, 50))
    assert left_out(reduce_lanes([lane], 100, 2)) == (
        "3 slices too short to see are drawn as one block with their count and time. Perfetto shows them all."
    )
    assert left_out(reduce_lanes([gpu(piece(0, 50))], 100, 2)) == ""


def test_evidence_is_never_merged() -> None:
    slices = [piece(index / 100, 0.005, anchor="event-1" if index == 50 else "") for index in range(10_000)]
    drawn = reduce_lanes([gpu(*slices)], 100, 20)
    shown = drawn.lanes[0].slices
    assert [each.start_us for each in shown if each.anchor] == [0.5]
    assert len(shown) <= 20
    assert drawn.merged + 1 == 10_000


def test_blocks_show_where_a_lane_is_busy() -> None:
    slices = [piece(index / 100, 0.005) for index in range(10_000)]
    assert 100 < len(reduce_lanes([gpu(*slices)], 100, 400).lanes[0].slices) <= 400


def test_deep_operators_are_left_out_and_calls_move_up() -> None:
    ops = [piece(index, 100 - index, "op", index) for index in range(10)]
    evidence = replace(piece(20, 60, "op", 10), anchor="event-1")
    lane = Lane("CPU", False, (*ops, evidence, piece(30, 5, "call", 11)))
    drawn = reduce_lanes([lane], 100, 100)
    assert drawn.deep == 6
    assert [(each.kind, each.row) for each in drawn.lanes[0].slices[-2:]] == [("op", 3), ("call", 4)]


def test_the_lanes_with_the_most_time_are_drawn_in_their_order() -> None:
    lanes = [Lane(f"CPU thread {index}", False, (piece(0, 1 + index % 30, "op"),)) for index in range(30)]
    streams = [gpu(piece(0, 0.5)), gpu(piece(0, 2))]
    drawn = reduce_lanes([*lanes, *streams], 100, 100)
    assert drawn.lanes_left_out == 32 - MOST_LANES
    assert [lane.name for lane in drawn.lanes[:-2]] == [f"CPU thread {index}" for index in range(18, 30)]
    assert drawn.lanes[-2:] == tuple(streams)


def test_a_step_of_five_thousand_kernels() -> None:
    events = [step(1, 0, 50_000)]
    for index in range(5_000):
        at = index * 10.0
        events += [
            op("aten::mul", at + 1, 8, external=index + 1),
            launch(index + 1, at + 3, 3, external=index + 1),
            kernel("k", index + 1, at + 6, 2.5 + index % 7),
        ]
    trace = read_trace(trace_bytes(*events))
    html, _ = step_timeline(trace.steps[0], trace.activities, {}, is_one_of_several=False)
    assert html.count('class="slice') <= BUDGET
    assert len(html) < 700_000
    shown = sum(int(count.replace(",", "")) for count in re.findall(r'data-said="([\d,]+) (?:kernels|oper|CUDA)', html))
    assert shown > 11_000
    assert f"{shown:,} slices too short to see are drawn as" in html
