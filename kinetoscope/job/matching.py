"""Match the calls of a collective over the ranks of a job, and a send with its receive.

A call is one rank's kernel. Ranks share a collective if their calls have one step, group, operation and number in the
group: its sequence number, else its place among the calls of the step. A group is known by its members where the trace
lists them, else by name and size: groups of different ranks may have one name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, structs

from kinetoscope.trace.communication import WAITING, collective_kind, collectives
from kinetoscope.trace.events import Collective, GpuActivity, Step
from kinetoscope.trace.intervals import Interval, ns

PAIR = "sendrecv"
"""The operation of a send and its receive, which are one transfer between two ranks."""
SAME_END_NS = 100_000
"""The ends of a collective on ranks of one host are no further apart, as its clocks agree."""
Key = tuple[int, tuple[int, ...], str, int, str, int]


class Call(Struct, frozen=True, gc=False):
    """One rank's kernel of a collective, or of a send or a receive; times on the clock of the rank's trace."""

    rank: int
    step: int
    operation: str  # of WAITING, or PAIR
    group: str  # name of the process group
    members: tuple[int, ...]  # () if the trace does not tell; of a pair: sender, receiver
    size: int  # of the group; 0 if the trace does not tell
    index: int
    start_ns: int
    duration_ns: int
    elements_in: int = 0
    elements_out: int = 0
    type: str = ""

    @property
    def key(self) -> Key:
        """Equal on all ranks of the collective."""
        return self.step, self.members, "" if self.members else self.group, self.size, self.operation, self.index

    @property
    def end_ns(self) -> int:
        """The end, on the clock of `start_ns`."""
        return self.start_ns + self.duration_ns


class Matched(Struct, frozen=True, gc=False):
    """The calls of one collective on several ranks, in the order of the ranks."""

    calls: tuple[Call, ...]
    transfer_ns: int
    """The most that the transfer takes: the shortest call, of the rank that arrives last and waits for nobody."""
    last: int
    """The rank that arrives last; the lowest of several."""

    @classmethod
    def of(cls, calls: Iterable[Call]) -> Matched:
        """The collective of these calls, of different ranks."""
        ordered = tuple(sorted(calls, key=lambda call: call.rank))
        shortest = min(ordered, key=lambda call: call.duration_ns)
        return cls(ordered, shortest.duration_ns, shortest.rank)

    @property
    def waited_ns(self) -> int:
        """The time by which the other ranks' calls exceed the shortest call, summed over the ranks."""
        return sum(call.duration_ns for call in self.calls) - len(self.calls) * self.transfer_ns

    @property
    def longest_wait_ns(self) -> int:
        """The time by which the longest call exceeds the shortest; 0 if nobody waited."""
        return max(call.duration_ns for call in self.calls) - self.transfer_ns


def calls_of(
    steps: Iterable[Step], rank: int, groups: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[list[Call], int]:
    """The calls of a rank at which it may wait for another, in start order, and the number of calls left out.

    `groups`: name of a process group -> its members, for calls that do not list them. Left out are calls whose
    operation or other rank is unknown, and broadcasts, at which some ranks need not wait.
    """
    found: list[Call] = []
    left_out = 0
    kernels = [(step, kernel) for step in steps for kernel in collectives(step)]
    inherited = _groups_of_streams(kernel for _, kernel in kernels)
    are_numbered = _numbered_groups(kernel for _, kernel in kernels)
    seen: Counter[object] = Counter()
    for step, kernel in kernels:
        collective = kernel.collective or Collective("")
        if not collective.group and not collective.ranks:
            collective = inherited.get((kernel.device, kernel.stream), collective)
        members = collective.ranks or (groups or {}).get(collective.group, ())
        operation: str = collective_kind(kernel)
        stated = kernel.collective or collective
        if operation in ("send", "recv") and stated.peer is not None:
            members = (rank, stated.peer) if operation == "send" else (stated.peer, rank)
            operation = PAIR
        elif operation not in WAITING:
            left_out += 1
            continue
        size = max(0, len(members) or collective.group_size or 0)
        place = step.number, members, collective.group, operation
        number = _number(stated) if operation != PAIR and (collective.group, collective.ranks) in are_numbered else None
        index = seen[place] if number is None else number
        seen[place] += 1
        found.append(
            Call(
                rank, step.number, operation, collective.group, members, size, max(0, index), ns(kernel.start_us),
                ns(kernel.duration_us), max(0, stated.elements_in or 0), max(0, stated.elements_out or 0), stated.type,
            )
        )  # fmt: skip
    return found, left_out


def _groups_of_streams(kernels: Iterable[GpuActivity]) -> dict[tuple[int, int], Collective]:
    """The group of each stream that only one group uses: PyTorch gives each group a stream of its own."""
    groups: dict[tuple[int, int], dict[object, Collective]] = defaultdict(dict)
    for kernel in kernels:
        if (stated := kernel.collective) is not None and (stated.group or stated.ranks):
            groups[kernel.device, kernel.stream][stated.group, stated.ranks] = stated
    return {
        stream: structs.replace(next(iter(known.values())), peer=None, sequence=None)
        for stream, known in groups.items()
        if len(known) == 1
    }


def _numbered_groups(kernels: Iterable[GpuActivity]) -> set[object]:
    """The groups, by name and members, in which each collective has a number of its own."""
    numbers: dict[object, list[int | None]] = defaultdict(list)
    for kernel in kernels:
        if kernel.collective is not None:
            numbers[kernel.collective.group, kernel.collective.ranks].append(_number(kernel.collective))
    return {group for group, found in numbers.items() if None not in found and len(set(found)) == len(found)}


def _number(collective: Collective) -> int | None:
    """The sequence number in the group, or the identifier that newer traces have: both are the same on all ranks."""
    if collective.sequence is not None:
        return collective.sequence
    return None if collective.comms_id is None else collective.comms_id % 2**62


def match(calls: Iterable[Call], ranks: int, origins_ns: Mapping[int, int] | None = None) -> list[Matched]:
    """The collectives and pairs that several of the given ranks have, in the order of their keys.

    Without a group's members, calls whose ends coincide in several sets of ranks are of several groups, if all traces
    tell in `origins_ns` when their clocks began. Without members or size, all `ranks` must have a collective.
    """
    together: dict[Key, list[Call]] = defaultdict(list)
    for call in calls:
        together[call.key].append(call)
    origins = origins_ns or {}
    found = []
    for key in sorted(together):
        sets = _sets_by_end(together[key], origins)
        is_split = len(sets) > 1
        found += [Matched.of(each) for each in sets if _is_one(each, 0 if is_split else ranks)]
    return found


def _sets_by_end(calls: Sequence[Call], origins_ns: Mapping[int, int]) -> list[list[Call]]:
    """The calls, or several sets of them, each of several ranks and with ends at one time."""
    if calls[0].members or len(calls) < 4 or not all(origins_ns.get(call.rank) for call in calls):
        return [list(calls)]
    ordered = sorted(calls, key=lambda call: origins_ns[call.rank] + call.end_ns)
    sets = [[ordered[0]]]
    for before, call in pairwise(ordered):
        if origins_ns[call.rank] + call.end_ns - origins_ns[before.rank] - before.end_ns > SAME_END_NS:
            sets.append([])
        sets[-1].append(call)
    return [list(calls)] if any(len(each) < 2 for each in sets) else sets


def _is_one(calls: Sequence[Call], ranks: int) -> bool:
    """Whether the calls can be of one collective: each rank once, members of the group, no more than its size."""
    present = {call.rank for call in calls}
    members, size = calls[0].members, calls[0].size
    if len(present) < 2 or len(present) < len(calls) or (calls[0].operation == PAIR and len(members) != 2):
        return False
    if members:
        return present <= set(members)
    return len(present) <= size if size else ranks in (0, len(present))


def components(matched: Iterable[Matched]) -> list[tuple[int, ...]]:
    """The ranks that wait for each other, directly or through others: sets of ranks without a common collective."""
    parent: dict[int, int] = {}

    def root(rank: int) -> int:
        while parent.setdefault(rank, rank) != rank:
            parent[rank] = rank = parent[parent[rank]]
        return rank

    for each in matched:
        first = root(each.calls[0].rank)
        for call in each.calls[1:]:
            parent[root(call.rank)] = first = root(first)
    together: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(parent):
        together[root(rank)].append(rank)
    return sorted(tuple(ranks) for ranks in together.values())


def waiting_intervals(matched: Iterable[Matched]) -> dict[int, list[Interval]]:
    """The time that each rank waits in its calls, each on the clock of its trace; may overlap and have no order.

    A call waits at its start: it lasts until the transfer after the last arrival is done.
    """
    waits: dict[int, list[Interval]] = defaultdict(list)
    for each in matched:
        transfer_ns = each.transfer_ns
        for call in each.calls:
            waits[call.rank].append((call.start_ns, call.end_ns - transfer_ns))
    return waits
