"""Fewer slices for a large step: nothing is lost from counts, evidence stays, blocks keep their place."""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

import pytest

from kinetoscope.report.timeline import step_timeline
from kinetoscope.timeline.draw import BUDGET
from kinetoscope.timeline.merging import MOST_LANES, left_out, reduce_lanes
from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.lanes import whole_lane
from kinetoscope.trace.placing import PlacedLane
from tests.tool.events import kernel, launch, op, step, trace_bytes

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"


class Piece(NamedTuple):
    start: float
    duration: float
    kind: str = "gemm"
    row: int = 0
    anchor: str = ""
    is_ghost: bool = False

    @property
    def source(self) -> CpuOp | CudaCall | GpuActivity:
        if self.kind == "op":
            return CpuOp("name", self.start, self.duration, "1/1")
        if self.kind == "call":
            return CudaCall("name", self.start, self.duration, "1/1", 0)
        return GpuActivity(GEMM, self.start, self.duration, "kernel" if self.kind == "gemm" else "memcpy", 0, 7)


def placed(name: str, is_gpu: bool, *pieces: Piece) -> PlacedLane:
    return PlacedLane(
        name,
        is_gpu,
        [each.source for each in pieces],
        array("d", [each.start for each in pieces]),
        array("d", [each.duration for each in pieces]),
        array("I", [each.row for each in pieces]),
        calls=sum(each.kind == "call" for each in pieces),
        ghosts=frozenset(index for index, each in enumerate(pieces) if each.is_ghost),
        anchors={index: each.anchor for index, each in enumerate(pieces) if each.anchor},
    )


def gpu(*pieces: Piece) -> PlacedLane:
    return placed("GPU stream 7", True, *pieces)


def test_a_small_step_stays_as_it_is() -> None:
    lane = gpu(Piece(0, 10), Piece(10, 20, "copy"))
    assert reduce_lanes([lane], 100, 10).lanes == (whole_lane(lane),)


def test_neighbors_become_a_block() -> None:
    lane = gpu(Piece(0, 40), *(Piece(40 + index / 100, 0.005, "copy") for index in range(3)), Piece(60, 40))
    drawn = reduce_lanes([lane], 100, 3)
    assert drawn.merged == 3
    block = drawn.lanes[0].slices[1]
    assert (block.name, block.kind, block.merged) == ("3 copies, 15.0 ns together", "copy", 3)
    assert (block.start_us, block.end_us, block.filled) == (40, 40.025, 0.6)


def test_a_lane_looks_as_full_as_it_is() -> None:
    """The painted area of blocks, by width and filled height, is the time in which their slices run."""
    lane = gpu(*(Piece(index, 0.06) for index in range(3000)))
    slices = reduce_lanes([lane], 3000, 100).lanes[0].slices
    assert len(slices) < 120
    assert sum(each.duration_us for each in slices) > 2900
    assert sum(each.duration_us * each.filled for each in slices) == pytest.approx(180, abs=0.5)


def test_a_block_names_the_same_sum_in_every_python() -> None:
    """Python 3.12 sums floats with less error than 3.11; the page that reads traces has 3.14."""
    lane = gpu(Piece(0, 4000), Piece(4000, 0.3), Piece(4001, 0.355), Piece(4002, 0.82), Piece(6000, 4000))
    block = reduce_lanes([lane], 10_000, 3).lanes[0].slices[1]
    assert (block.name, 0.3 + 0.355 + 0.82) == ("3 kernels, 1.47 µs together", 1.4750000000000001)


def test_a_block_has_the_kind_with_the_most_time() -> None:
    lane = gpu(Piece(0, 0.01), Piece(0.01, 0.03, "copy"), Piece(0.04, 0.01), Piece(50, 50))
    block = reduce_lanes([lane], 100, 2).lanes[0].slices[0]
    assert (block.name, block.kind) == ("3 activities, 50.0 ns together", "copy")


def test_the_work_of_other_steps_has_blocks_of_its_own() -> None:
    ghosts = [Piece(index / 100, 0.005, is_ghost=True) for index in range(3)]
    lane = gpu(*ghosts, *(Piece(0.03 + index / 100, 0.005) for index in range(3)), Piece(50, 50))
    blocks = reduce_lanes([lane], 100, 3).lanes[0].slices
    assert [(each.merged, each.is_ghost) for each in blocks] == [(3, True), (3, False), (1, False)]


def test_what_is_left_out_is_said() -> None:
    lane = gpu(*(Piece(index / 100, 0.005) for index in range(3)), Piece(50, 50))
    assert left_out(reduce_lanes([lane], 100, 2)) == (
        "3 slices too short to see are drawn as one block. Each block shows the count and time of its slices, and the "
        "filled part of a block shows how long its slices run. Perfetto shows them all."
    )
    assert left_out(reduce_lanes([gpu(Piece(0, 50))], 100, 2)) == ""


def test_evidence_is_never_merged() -> None:
    slices = [Piece(index / 100, 0.005, anchor="event-1" if index == 50 else "") for index in range(10_000)]
    drawn = reduce_lanes([gpu(*slices)], 100, 20)
    shown = drawn.lanes[0].slices
    assert [each.start_us for each in shown if each.anchor] == [0.5]
    assert len(shown) <= 20
    assert drawn.merged + 1 == 10_000


def test_blocks_show_where_a_lane_is_busy() -> None:
    slices = [Piece(index / 100, 0.005) for index in range(10_000)]
    assert 100 < len(reduce_lanes([gpu(*slices)], 100, 400).lanes[0].slices) <= 400


def test_deep_operators_are_left_out_and_calls_move_up() -> None:
    ops = [Piece(index, 100 - index, "op", index) for index in range(10)]
    evidence = Piece(20, 60, "op", 10, "event-1")
    lane = placed("CPU", False, *ops, evidence, Piece(30, 5, "call", 11))
    drawn = reduce_lanes([lane], 100, 100)
    assert drawn.deep == 6
    assert [(each.kind, each.row) for each in drawn.lanes[0].slices[-2:]] == [("op", 3), ("call", 4)]


def test_the_lanes_with_the_most_time_are_drawn_in_their_order() -> None:
    lanes = [placed(f"CPU thread {index}", False, Piece(0, 1 + index % 30, "op")) for index in range(30)]
    streams = [gpu(Piece(0, 0.5)), gpu(Piece(0, 2))]
    drawn = reduce_lanes([*lanes, *streams], 100, 100)
    assert drawn.lanes_left_out == 32 - MOST_LANES
    assert [lane.name for lane in drawn.lanes[:-2]] == [f"CPU thread {index}" for index in range(18, 30)]
    assert drawn.lanes[-2:] == tuple(map(whole_lane, streams))


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
