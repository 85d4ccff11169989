"""One step of several ranks on one time axis: exact pieces, and clocks that are shifted."""

from __future__ import annotations

import msgspec
import pytest

from kinetoscope.ranks.digest import Digest, digest
from kinetoscope.ranks.lanes import FEW_LANES, MAX_LANES, LaneCall, LanePiece
from kinetoscope.ranks.ranks import ranks_report
from kinetoscope.trace.events import Collective, GpuActivity, Step, Trace
from tests.tool.runs import ADD, ALL_REDUCE, GEMM, trace_of

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def late_job(count: int, late: int, clock_us: float = 0.0) -> list[Digest]:
    """All work for 100 us, the late rank for 160, and leave the allreduce at 200; 10 us idle, 20 us of work follow.

    The clock of each rank is `clock_us` ahead of that of the rank before.
    """
    digests = []
    for rank in range(count):
        own, ahead = 160.0 if rank == late else 100.0, 50 + clock_us * rank
        work = [(GEMM, ahead, own), (ALL_REDUCE, ahead + own, 200.0 - own), (ADD, ahead + 210.0, 20.0)]
        digests.append(digest(trace_of([work], rank=rank, world_size=count, group="dp")))
    return digests


@pytest.mark.parametrize("clock_us", [0.0, 77.0])
def test_pieces_of_a_step_whatever_the_clocks(clock_us: float) -> None:
    report = ranks_report(late_job(3, 1, clock_us))
    lanes = report.lanes
    assert lanes is not None
    assert (lanes.step, lanes.spread_us, lanes.end_us) == (0, 0.0, 230.0)
    after = LanePiece("idle", 200.0, 210.0), LanePiece("own", 210.0, 230.0)
    waits = (
        LanePiece("own", 0.0, 100.0),
        LanePiece("waiting", 100.0, 160.0, last=1),
        LanePiece("transfer", 160.0, 200.0),
        *after,
    )
    assert {lane.rank: lane.pieces for lane in lanes.lanes} == {
        0: waits,
        1: (LanePiece("own", 0.0, 160.0), LanePiece("transfer", 160.0, 200.0), *after),
        2: waits,
    }


def test_calls_of_a_collective_and_what_is_beside_own_work() -> None:
    """An addition runs beside the first 30 us of each all-reduce, and beside its last 10."""
    digests = []
    for rank, own in ((0, 100.0), (1, 160.0)):
        work = [(GEMM, 0.0, own), (ALL_REDUCE, own, 200.0 - own), (ADD, own, 30.0), (ADD, 190.0, 30.0)]
        digests.append(digest(trace_of([work], rank=rank, world_size=2, group="dp")))
    lanes = ranks_report(digests).lanes
    assert lanes is not None
    first, second = lanes.lanes
    assert first.beside == (LanePiece("waiting-hidden", 100.0, 130.0), LanePiece("hidden", 190.0, 200.0))
    assert second.beside == (LanePiece("hidden", 160.0, 200.0),)
    assert first.calls == (LaneCall(1, "allreduce", 100.0, 160.0, 200.0, last=1),)
    assert second.calls == (LaneCall(1, "allreduce", 160.0, 160.0, 200.0, last=1),)


def test_of_many_ranks_the_late_rank_is_drawn() -> None:
    lanes = ranks_report(late_job(MAX_LANES + 1, MAX_LANES)).lanes
    assert lanes is not None
    assert len(lanes.lanes) == FEW_LANES
    assert lanes.lanes[-1].rank == MAX_LANES


def test_without_waiting_there_are_no_lanes() -> None:
    assert ranks_report(late_job(1, 0)).lanes is None


def stage(rank: int, peer: int, name: str, work: list[tuple[str, float, float]]) -> Trace:
    trace = trace_of([work], rank=rank, world_size=2)
    stated = Collective(name, group="pp", group_size=2, ranks=(0, 1), peer=peer)
    kernels = tuple(
        msgspec.structs.replace(each, collective=stated) if "nccl" in each.name else each for each in trace.activities
    )
    (step,) = trace.steps
    return with_activities(trace, step, kernels)


def with_activities(trace: Trace, step: Step, kernels: tuple[GpuActivity, ...]) -> Trace:
    replace = msgspec.structs.replace
    return replace(trace, steps=(replace(step, activities=kernels),), activities=kernels)


def test_work_of_a_stage_has_the_number_of_its_micro_batch() -> None:
    """The second stage receives twice, and works after each; the first stage works before each of its sends."""
    first = stage(0, 1, "send", [(GEMM, 0, 50), (SEND_RECV, 50, 10), (GEMM, 60, 50), (SEND_RECV, 110, 10)])
    second = stage(1, 0, "recv", [(SEND_RECV, 0, 60), (GEMM, 60, 30), (SEND_RECV, 90, 30), (GEMM, 120, 30)])
    lanes = ranks_report([digest(first), digest(second)]).lanes
    assert lanes is not None
    own = [[(piece.start_us, piece.number) for piece in lane.pieces if piece.kind == "own"] for lane in lanes.lanes]
    assert own == [[(0.0, 1), (60.0, 2)], [(60.0, 1), (120.0, 2)]]


def test_a_send_that_ends_before_its_receive_does_not_shift_the_clocks() -> None:
    """The second stage waits for the first send. NCCL buffers the two other sends, which it receives much later."""
    sends = [(GEMM, 0, 50), (SEND_RECV, 50, 10), (GEMM, 60, 50), (SEND_RECV, 110, 10), (SEND_RECV, 120, 10)]
    receives = [(SEND_RECV, 0, 60), (GEMM, 60, 200), (SEND_RECV, 260, 8), (GEMM, 268, 200), (SEND_RECV, 468, 8)]
    lanes = ranks_report([digest(stage(0, 1, "send", sends)), digest(stage(1, 0, "recv", receives))]).lanes
    assert lanes is not None
    assert (lanes.spread_us, lanes.end_us) == (0.0, 476.0)


def test_sends_tie_the_clocks_if_nothing_waits_for_them() -> None:
    sends = [(GEMM, 0, 50), (SEND_RECV, 50, 10), (GEMM, 60, 50), (SEND_RECV, 110, 10)]
    receives = [(SEND_RECV, 50, 11), (GEMM, 61, 40), (SEND_RECV, 110, 11)]
    lanes = ranks_report([digest(stage(0, 1, "send", sends)), digest(stage(1, 0, "recv", receives))]).lanes
    assert lanes is not None
    assert [lane.rank for lane in lanes.lanes] == [0, 1]
