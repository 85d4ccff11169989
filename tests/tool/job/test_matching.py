"""Collectives matched over ranks: by members, name and number; sends with receives."""

from __future__ import annotations

from typing import Any

import pytest

from kinetoscope.job.matching import PAIR, Call, Matched, calls_of, components, match, waiting_intervals
from kinetoscope.trace.events import Collective, GpuActivity, Step

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def kernel(start: float, duration: float, stated: Collective | None = None, *, stream: int = 20) -> GpuActivity:
    name = ALL_REDUCE if stated is None else "ncclDevKernel_SendRecv"
    return GpuActivity(name, start, duration, "kernel", 0, stream, collective=stated)


def calls(rank: int, *kernels: GpuActivity, **more: Any) -> list[Call]:
    step = Step(3, "ProfilerStep#3", 0.0, 1000.0, (), (), kernels)
    return calls_of([step], rank, **more)[0]


def stated(name: str = "allreduce", ranks: tuple[int, ...] = (0, 1), **more: Any) -> Collective:
    return Collective(name, group="1", group_size=len(ranks) or 2, ranks=ranks, **more)


def test_waiting_is_what_exceeds_the_shortest() -> None:
    (found,) = match([*calls(0, kernel(10, 90, stated())), *calls(1, kernel(60, 40, stated()))], 2)
    assert (found.transfer_ns, found.last, found.waited_ns) == (40_000, 1, 50_000)
    assert waiting_intervals([found]) == {0: [(10_000, 60_000)], 1: [(60_000, 60_000)]}


def test_groups_of_one_name_are_told_apart_by_their_members() -> None:
    """Ranks 0 and 2 share no group, though both call theirs "1"."""
    members = [(0, 1), (0, 1), (2, 3), (2, 3)]
    every = [calls(rank, kernel(0, 10.0 + rank, stated(ranks=ranks))) for rank, ranks in enumerate(members)]
    assert match([*every[0], *every[2]], 2) == []
    found = match([call for of_rank in every for call in of_rank], 4)
    assert [(each.last, len(each.calls)) for each in found] == [(0, 2), (2, 2)]
    assert components(found) == [(0, 1), (2, 3)]


def test_ranks_of_a_mesh_are_connected_through_others() -> None:
    groups = {0: ((0, 1), (0, 2)), 1: ((0, 1), (1, 3)), 2: ((2, 3), (0, 2)), 3: ((2, 3), (1, 3))}
    every = [calls(rank, *(kernel(0, 9, stated(ranks=group)) for group in of)) for rank, of in groups.items()]
    found = match([call for of_rank in every for call in of_rank], 4)
    assert len(found) == 4
    assert components(found) == [(0, 1, 2, 3)]


@pytest.mark.parametrize(
    ("size", "ranks", "count"),
    [(2, 2, 1), (2, 3, 0), (3, 2, 1), (0, 2, 1), (0, 3, 1)],
    ids=["whole group", "more ranks than members", "a member is missing", "all ranks", "all three ranks"],
)
def test_groups_without_members(size: int, ranks: int, count: int) -> None:
    collective = Collective("allreduce", group="dp", group_size=size)
    every = [call for rank in range(ranks) for call in calls(rank, kernel(0, 9, collective))]
    assert len(match(every, ranks)) == count


def test_without_a_group_all_ranks_must_have_it() -> None:
    every = [*calls(0, kernel(0, 9), kernel(20, 9)), *calls(1, kernel(0, 9))]
    assert [each.calls[0].index for each in match(every, 2)] == [0]
    assert match(every, 3) == []


@pytest.mark.parametrize("field", ["sequence", "comms_id"])
def test_numbers_of_the_group_match_calls_that_are_missing_on_a_rank(field: str) -> None:
    """Rank 1 lost the first of three: its order would match the wrong ones."""
    every = [kernel(at, 9, stated(**{field: number})) for at, number in ((0, 7), (20, 8), (40, 9))]
    found = match([*calls(0, *every), *calls(1, *every[1:])], 2)
    assert [each.calls[0].index for each in found] == [8, 9]


def test_a_kernel_without_arguments_has_the_group_of_its_stream() -> None:
    lost = calls(1, kernel(0, 9), kernel(20, 9, stated()), kernel(40, 9, stream=7))
    assert [call.members for call in lost] == [(0, 1), (0, 1), ()]
    assert len(match([*lost, *calls(0, kernel(0, 9, stated()), kernel(20, 9, stated()))], 2)) == 2


def test_members_from_the_head_of_the_file() -> None:
    (call,) = calls(0, kernel(0, 9, stated(ranks=())), groups={"1": (0, 4)})
    assert (call.members, call.size) == ((0, 4), 2)


@pytest.mark.parametrize("size", [0, 2])
def test_groups_without_members_are_told_apart_by_their_ends(size: int) -> None:
    """Four ranks, ends at 19 and 19.05 us, and at 300 and 300.09 us; rank 3's clock began 1,000 us later."""
    group = Collective("allreduce", group="tp", group_size=size) if size else None
    ends = {0: 19.0, 1: 19.05, 2: 300.0, 3: 300.09 - 1000.0}
    every = [call for rank, end in ends.items() for call in calls(rank, kernel(end - 9, 9.0, group))]
    origins = {0: 5_000_000, 1: 5_000_000, 2: 5_000_000, 3: 6_000_000}
    found = match(every, 4, origins)
    assert [[call.rank for call in each.calls] for each in found] == [[0, 1], [2, 3]]
    assert len(match(every, 4)) == (0 if size else 1)
    assert len(match(every, 4, {**origins, 3: 5_000_000})) == (0 if size else 1), "rank 3 ends alone"


def test_a_send_and_its_receive_are_a_pair() -> None:
    """The third send of rank 1 has no receive."""

    def transfer(name: str, peer: int, start: float, duration: float) -> GpuActivity:
        return kernel(start, duration, stated(name, (0, 1, 2), peer=peer))

    first = calls(0, transfer("recv", 1, 0, 90), transfer("recv", 1, 100, 10))
    second = calls(1, transfer("send", 0, 80, 10), transfer("send", 0, 90, 20), transfer("send", 0, 110, 5))
    other = calls(2, transfer("recv", 1, 0, 9))
    found = match([*first, *second, *other], 3)
    assert [(each.calls[0].operation, each.calls[0].members, each.last) for each in found] == [
        (PAIR, (1, 0), 1),
        (PAIR, (1, 0), 0),
    ]
    assert [each.waited_ns for each in found] == [80_000, 10_000]


@pytest.mark.parametrize("name", ["broadcast", "send", "coalesced", "gather"])
def test_calls_at_which_nobody_is_known_to_wait_are_left_out(name: str) -> None:
    step = Step(3, "ProfilerStep#3", 0.0, 1000.0, (), (), (kernel(0, 9, stated(name)),))
    assert calls_of([step], 0) == ([], 1)


def test_a_rank_that_has_a_call_twice_is_not_matched() -> None:
    (call,) = calls(0, kernel(0, 9, stated()))
    assert match([call, call], 2) == []


def test_of_two_equal_calls_the_lower_rank_is_last() -> None:
    found = Matched.of([*calls(5, kernel(0, 9, stated(ranks=(2, 5)))), *calls(2, kernel(0, 9, stated(ranks=(2, 5))))])
    assert (found.last, [call.rank for call in found.calls]) == (2, [2, 5])
