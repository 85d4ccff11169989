"""Ranks of a job compared: collectives and pairs matched, the time that each call waits, the parts of each rank."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import median

from kinetoscope.job.matching import PAIR, Call, Matched, components, match, waiting_intervals
from kinetoscope.job.rank_parts import RankParts, rank_parts
from kinetoscope.job.windows import Window
from kinetoscope.trace.intervals import Interval, subtract, union

MAX_SPREAD_US = 200.0
"""Clocks of ranks can be compared if the ends of a collective on them are no further apart, in the median."""

WaitsFor = Mapping[tuple[int, int], float]
"""A rank, and another with which it takes part in collectives -> its exposed waiting at those at which the other
arrives last, in us per step."""


@dataclass(frozen=True)
class RankWork:
    """What is compared of one rank; times on the clock of its trace, which starts at `origin_ns`."""

    rank: int
    windows: Sequence[Window]
    exposed: Sequence[Interval]
    """Times in which only communication runs."""
    calls: Sequence[Call]
    are_calls_left_out: bool = False
    """Whether `calls` has only the first."""
    origin_ns: int = 0
    idle: Sequence[Interval] = ()
    """The longest times in which nothing runs."""


@dataclass(frozen=True)
class Clocks:
    """How well the clocks of the ranks agree: a collective ends on all of its ranks at nearly one time.

    A send may end before its receive, as NCCL buffers it. The distances are 0 without a collective, or if a trace does
    not tell when its clock began.
    """

    are_comparable: bool
    """Whether starts on different ranks can be compared."""
    spread_us: float
    """Median distance of the first and the last end of a collective."""
    largest_spread_us: float


class Alone:
    """The time in which a rank only communicates: how much of it lies in an interval."""

    def __init__(self, exposed: Sequence[Interval]) -> None:
        self._starts = [start for start, _ in exposed]
        self._lengths = [max(0, end - start) for start, end in exposed]
        self._before = [0, *accumulate(self._lengths)]

    def within(self, start: int, end: int) -> int:
        """The time from `start` to `end`, in ns."""
        return max(0, self._until(end) - self._until(start))

    def _until(self, time: int) -> int:
        index = bisect_right(self._starts, time)
        if not index:
            return 0
        return self._before[index - 1] + min(self._lengths[index - 1], time - self._starts[index - 1])


class Compared:
    """Ranks of one job, compared."""

    def __init__(self, ranks: Iterable[RankWork]) -> None:
        self.ranks = {work.rank: work for work in ranks}
        self.calls = [call for work in self.ranks.values() for call in work.calls]
        origins_ns = {number: work.origin_ns for number, work in self.ranks.items()}
        self.matched = match(self.calls, len(self.ranks), origins_ns)
        self.alone = {number: Alone(work.exposed) for number, work in self.ranks.items()}

    @cached_property
    def components(self) -> list[tuple[int, ...]]:
        """The ranks that wait for each other, directly or through others."""
        return components(self.matched)

    @cached_property
    def steps(self) -> Mapping[int, frozenset[int]]:
        """Rank -> the steps that all ranks of its component have wholly in their digests."""
        common: dict[int, frozenset[int]] = {}
        for ranks in (*self.components, *((rank,) for rank in self.ranks)):
            shared = frozenset.intersection(*(_whole_steps(self.ranks[rank]) for rank in ranks if rank in self.ranks))
            for rank in ranks:
                common.setdefault(rank, shared)
        return common

    @cached_property
    def later_steps(self) -> Mapping[int, frozenset[int]]:
        """The same without the first; with it if it is the only."""
        return {rank: frozenset(sorted(steps)[1:]) or steps for rank, steps in self.steps.items()}

    @cached_property
    def parts(self) -> tuple[RankParts, ...]:
        """The parts of each rank's steps, in the order of the ranks; without ranks that have no step in common."""
        return self._parts(self.steps)

    @cached_property
    def later_parts(self) -> tuple[RankParts, ...]:
        """The same without the first step, which may set up what later steps only use; with it if it is the only."""
        return self._parts(self.later_steps)

    def _parts(self, steps: Mapping[int, frozenset[int]]) -> tuple[RankParts, ...]:
        found = (
            rank_parts(number, rank.windows, rank.exposed, self._waits[number], self._transfers[number], steps[number])
            for number, rank in self.ranks.items()
        )
        return tuple(part for part in found if part is not None)

    @cached_property
    def _waits(self) -> Mapping[int, list[Interval]]:
        return waiting_intervals(self.matched)

    @cached_property
    def _transfers(self) -> Mapping[int, list[Interval]]:
        """The times in which a rank's calls do not wait, as far as the ranks tell."""
        transfers: dict[int, list[Interval]] = defaultdict(list)
        known: set[int] = set()
        for each in self.matched:
            for call in each.calls:
                known.add(id(call))
                transfers[call.rank].append((call.end_ns - each.transfer_ns, call.end_ns))
        for call in self.calls:
            if id(call) not in known:
                transfers[call.rank].append((call.start_ns, call.end_ns))
        return transfers

    def waits_and_transfers(self, rank: int) -> tuple[list[Interval], list[Interval]]:
        """The times in which a rank's calls wait, and in which they transfer; of different calls, they may overlap."""
        return union(self._waits[rank]), union(self._transfers[rank])

    def waits_us(self, *, without_first: bool = False) -> WaitsFor:
        """Who waits for whom with nothing beside it, in us per step."""
        steps = self.later_steps if without_first else self.steps
        sums: dict[tuple[int, int], int] = defaultdict(int)
        for each in self.matched:
            last = each.last
            for call in each.calls:
                if call.rank != last and call.step in steps[call.rank]:
                    sums[call.rank, last] += self.exposed_waiting_ns(call)
        return {pair: total / (len(steps[pair[0]]) or 1) / 1000 for pair, total in sums.items()}

    def step_count(self, ranks: Iterable[int]) -> int:
        """The number of steps in which these ranks are compared, at least 1."""
        return max((len(self.steps[rank]) for rank in ranks), default=0) or 1

    def exposed_waiting_ns(self, call: Call) -> int:
        """The time that a matched call waits with nothing beside it on its GPU."""
        return self._exposed_waiting_ns[id(call)]

    @cached_property
    def _exposed_waiting_ns(self) -> Mapping[int, int]:
        return {
            id(call): self.alone[call.rank].within(call.start_ns, call.end_ns - each.transfer_ns)
            for each in self.matched
            for call in each.calls
        }

    def beside_us(self, call: Call) -> Iterable[tuple[float, float]]:
        """The times of a call in which its rank's GPU also works, counted in us from the end of the call."""
        span = [(call.start_ns, call.end_ns)]
        for start, end in subtract(span, self.ranks[call.rank].exposed):
            yield (start - call.end_ns) / 1000, (end - call.end_ns) / 1000

    @cached_property
    def clocks(self) -> Clocks:
        """How well the clocks of the ranks agree."""
        spreads = []
        for each in self.collectives:
            ends = [self.ranks[call.rank].origin_ns + call.end_ns for call in each.calls]
            spreads.append((max(ends) - min(ends)) / 1000)
        if not spreads or not all(work.origin_ns for work in self.ranks.values()):
            return Clocks(False, 0.0, 0.0)
        usual = round(median(spreads), 3)
        return Clocks(usual <= MAX_SPREAD_US, usual, round(max(spreads), 3))

    @property
    def collectives(self) -> list[Matched]:
        """The matched collectives, without sends and receives."""
        return [each for each in self.matched if each.calls[0].operation != PAIR]

    @property
    def pairs(self) -> list[Matched]:
        """The matched sends and receives."""
        return [each for each in self.matched if each.calls[0].operation == PAIR]


def _whole_steps(work: RankWork) -> frozenset[int]:
    """The steps of a rank with all of their calls; the last may lack some if calls were left out."""
    steps = {window.number for window in work.windows}
    if work.are_calls_left_out and len(steps) > 1:
        last = max((call.step for call in work.calls), default=0)
        steps = {step for step in steps if step < last} or steps
    return frozenset(steps)
