"""Single collectives of a job, each on a time axis that its end closes on every rank, and the waiting in each group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kinetoscope.job.compared import Compared
from kinetoscope.job.matching import Matched

SHOWN_COLLECTIVES, SHOWN_RANKS, SHOWN_WAITS = 200, 64, 1000
"""Collectives of one step, ranks of one collective, and pairs of ranks: those that wait most."""
_ITEM_BYTES = {
    "float": 4, "int": 4, "double": 8, "long": 8, "half": 2, "bfloat16": 2, "byte": 1, "char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "uint8": 1, "int8": 1,
}  # fmt: skip


@dataclass(frozen=True)
class RankCall:
    """One rank's kernel of a collective. Times count from the end of the collective on this rank, in us."""

    rank: int
    start_us: float
    """Start of the kernel, a negative number."""
    waiting_us: float
    """Time that the kernel waits, from its start on."""
    exposed_waiting_us: float
    """The part of `waiting_us` in which nothing else runs on the rank's GPU."""
    beside: tuple[tuple[float, float], ...]
    """Start and end of the rank's own work during the kernel; empty in a list of calls of many collectives."""


@dataclass(frozen=True)
class CollectiveTimes:
    """One collective, or a send and its receive."""

    step: int
    operation: str
    """`allreduce`, `allgather`, `reducescatter`, `alltoall`, `barrier` or `sendrecv`."""
    group: str
    members: tuple[int, ...]
    """Ranks of the group; empty if the traces do not list the ranks."""
    index: int
    """Number of the collective within its group."""
    bytes: int | None
    """Bytes of the whole array on the rank with the largest array; null if the traces do not contain the size."""
    transfer_us: float
    """The most time that the transfer can take, which is the time of the shortest call."""
    last: int
    """The rank that arrives last."""
    exposed_waiting_us: float
    """The longest exposed waiting of a rank."""
    calls: tuple[RankCall, ...]


@dataclass(frozen=True)
class GroupWaiting:
    """One rank's waiting in one group for one other rank that arrives last, a mean step."""

    group: str
    members: tuple[int, ...]
    rank: int
    last: int
    collectives: float
    """Number of collectives per step."""
    waiting_us: float
    exposed_waiting_us: float


@dataclass(frozen=True)
class ShownCollectives:
    """The collectives that a report shows singly."""

    costliest: CollectiveTimes
    """The collective with the longest exposed waiting of a rank."""
    longest: CollectiveTimes
    """The collective with the longest kernel."""
    of_step: tuple[CollectiveTimes, ...]
    """All collectives in the step and group of the costliest, in their order; at most 200."""


def shown_collectives(compared: Compared) -> ShownCollectives | None:
    """The costliest and the longest collective; None if no rank waits."""
    costs = {id(each): _cost_ns(each, compared) for each in compared.matched}
    waiting = [each for each in compared.matched if each.waited_ns]
    if not waiting:
        return None
    costliest = max(waiting, key=lambda each: (costs[id(each)], each.waited_ns))
    longest = max(waiting, key=lambda each: max(call.duration_ns for call in each.calls))
    first = costliest.calls[0]
    of_step = [
        each
        for each in compared.matched
        if (each.calls[0].step, each.calls[0].members, each.calls[0].group) == (first.step, first.members, first.group)
    ]
    of_step.sort(key=lambda each: each.calls[0].start_ns)
    return ShownCollectives(
        _times(costliest, compared, is_alone=True),
        _times(longest, compared, is_alone=True),
        tuple(_times(each, compared, is_alone=False) for each in of_step[:SHOWN_COLLECTIVES]),
    )


def _cost_ns(matched: Matched, compared: Compared) -> int:
    return max(compared.exposed_waiting_ns(call) for call in matched.calls)


def _times(matched: Matched, compared: Compared, *, is_alone: bool) -> CollectiveTimes:
    first, transfer_ns = matched.calls[0], matched.transfer_ns
    order = sorted(matched.calls, key=lambda call: (-call.duration_ns, call.rank))
    shown = order if len(order) <= SHOWN_RANKS else [*order[: SHOWN_RANKS - 1], order[-1]]
    return CollectiveTimes(
        step=first.step,
        operation=first.operation,
        group=first.group,
        members=first.members,
        index=first.index,
        bytes=bytes_of(matched),
        transfer_us=transfer_ns / 1000,
        last=matched.last,
        exposed_waiting_us=_cost_ns(matched, compared) / 1000,
        calls=tuple(
            RankCall(
                rank=call.rank,
                start_us=-call.duration_ns / 1000,
                waiting_us=(call.duration_ns - transfer_ns) / 1000,
                exposed_waiting_us=compared.exposed_waiting_ns(call) / 1000,
                beside=tuple(compared.beside_us(call)) if is_alone else (),
            )
            for call in shown
        ),
    )


def bytes_of(matched: Matched) -> int | None:
    """The bytes of the whole array of a collective; None if the traces do not tell."""
    elements = max(max(call.elements_in, call.elements_out) for call in matched.calls)
    item = _ITEM_BYTES.get(matched.calls[0].type.lower())
    return elements * item if elements and item else None


def group_waiting(compared: Compared) -> tuple[GroupWaiting, ...]:
    """Who waits for whom in which group, the longest exposed waiting first; at most 1,000 pairs."""
    sums: dict[tuple[str, tuple[int, ...], int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in compared.matched:
        first, last = each.calls[0], each.last
        for call in each.calls:
            if call.rank != last:
                entry = sums[first.group, first.members, call.rank, last]
                entry[0] += 1
                entry[1] += call.duration_ns - each.transfer_ns
                entry[2] += compared.exposed_waiting_ns(call)
    rows = [
        GroupWaiting(group, members, rank, last, *_means(entry, compared.step_count([rank, last])))
        for (group, members, rank, last), entry in sums.items()
    ]
    rows.sort(key=lambda row: (-row.exposed_waiting_us, row.rank, row.last, row.group))
    return tuple(rows[:SHOWN_WAITS])


def _means(entry: Sequence[int], steps: int) -> Iterable[float]:
    count, waiting_ns, exposed_ns = entry
    return count / steps, round(waiting_ns / steps / 1000, 3), round(exposed_ns / steps / 1000, 3)
