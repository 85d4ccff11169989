"""One step of several ranks on one time axis: when each works, transfers, waits and idles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from kinetoscope.job.compared import Compared
from kinetoscope.job.matching import PAIR, Call, Matched
from kinetoscope.trace.intervals import Interval, intersect, subtract, union

MAX_LANES, FEW_LANES = 16, 8
"""Of more ranks, half of the few have the most own work, half the most waiting."""
LaneKind = Literal["own", "transfer", "waiting", "idle", "hidden", "waiting-hidden"]


@dataclass(frozen=True)
class LanePiece:
    """A time of one kind on one rank."""

    kind: LaneKind
    start_us: float
    """From the start of the first rank's step."""
    end_us: float
    last: int | None = None
    """Of waiting: the rank that arrives last."""
    number: int | None = None
    """Of own work between sends and receives: the number, from 1, of the last receive before, else of the next send."""


@dataclass(frozen=True)
class LaneCall:
    """One rank's kernel of a collective, or of a send or its receive."""

    number: int
    """Of the collective in the step, from 1 in the order of the ends; the same on all of its ranks."""
    operation: str
    start_us: float
    """From the start of the first rank's step, as the other times."""
    arrived_us: float
    """The last rank has arrived; before that, the kernel waits."""
    end_us: float
    last: int
    """The rank that arrives last."""


@dataclass(frozen=True)
class RankLane:
    """One rank's step; the pieces cover it without gaps."""

    rank: int
    pieces: tuple[LanePiece, ...]
    beside: tuple[LanePiece, ...] = ()
    """Transfer and waiting beside own work: `hidden` and `waiting-hidden`."""
    calls: tuple[LaneCall, ...] = ()
    """Its part of each collective, in the order of their numbers."""


@dataclass(frozen=True)
class StepLanes:
    """One step of several ranks, in the order of the ranks.

    Clocks are shifted so that collectives end on all ranks at the same time, in the median.
    """

    step: int
    lanes: tuple[RankLane, ...]
    spread_us: float
    """The largest distance that remains between the ends of a collective on these ranks."""

    @property
    def end_us(self) -> float:
        """The end of the last rank's step."""
        return max(piece.end_us for lane in self.lanes for piece in lane.pieces)


def step_lanes(compared: Compared, step: int, rank: int) -> StepLanes | None:
    """The ranks that wait for `rank` and for each other, in one step; None if fewer than two have this step."""
    among = next((ranks for ranks in compared.components if rank in ranks), ())
    matched = [each for each in compared.matched if each.calls[0].step == step and each.calls[0].rank in among]
    tied = [each for each in matched if _ends_at_once(each)]
    shifts = _shifts(tied, rank)
    if len(shifts) < len(known := _shifts(matched, rank)):
        tied, shifts = matched, known
    windows = {
        number: window
        for number in _shown(compared, among)
        if number in shifts
        for window in compared.ranks[number].windows
        if window.number == step
    }
    if len(windows) < 2:
        return None
    origin = min(window.start_ns + shifts[number] for number, window in windows.items())
    lanes = []
    matched.sort(key=lambda each: min(call.end_ns + shifts.get(call.rank, 0) for call in each.calls))
    for number, window in sorted(windows.items()):
        span, shift = (window.start_ns, window.end_ns), shifts[number] - origin
        pieces = tuple(_pieces(compared, matched, number, span, shift))
        beside, calls = _beside(compared, number, span, shift), _calls(matched, number, shift)
        lanes.append(RankLane(number, pieces, tuple(beside), tuple(calls)))
    return StepLanes(step, tuple(lanes), _spread_us(tied, {number: shifts[number] for number in windows}))


def _shown(compared: Compared, among: Sequence[int]) -> Sequence[int]:
    if len(among) <= MAX_LANES:
        return among
    parts = [part for part in compared.parts if part.rank in among]
    by_work = sorted(parts, key=lambda part: (-part.work_us, part.rank))[: FEW_LANES // 2]
    chosen = {part.rank for part in by_work}
    waiting = sorted(
        (part for part in parts if part.rank not in chosen), key=lambda part: (-part.waiting_us, part.rank)
    )
    return [*chosen, *(part.rank for part in waiting[: FEW_LANES - len(chosen)])]


def _ends_at_once(each: Matched) -> bool:
    """Whether a collective ends on its ranks at the same time.

    NCCL buffers a small send, which then ends before its receive; not so if one of both waited for the other.
    """
    return each.calls[0].operation != PAIR or each.longest_wait_ns > each.transfer_ns


def _shifts(matched: Sequence[Matched], first: int) -> Mapping[int, int]:
    """Rank -> nanoseconds to add to its clock, so that collectives end at once; only ranks that are connected."""
    shifts = {first: 0}
    while True:
        distances: dict[int, list[int]] = defaultdict(list)
        for each in matched:
            known = next((call for call in each.calls if call.rank in shifts), None)
            if known is not None:
                for call in each.calls:
                    if call.rank not in shifts:
                        distances[call.rank].append(known.end_ns + shifts[known.rank] - call.end_ns)
        if not distances:
            return shifts
        shifts.update((rank, round(median(found))) for rank, found in distances.items())


def _spread_us(matched: Sequence[Matched], shifts: Mapping[int, int]) -> float:
    spread = 0
    for each in matched:
        ends = [call.end_ns + shifts[call.rank] for call in each.calls if call.rank in shifts]
        if ends:
            spread = max(spread, max(ends) - min(ends))
    return spread / 1000


def _pieces(
    compared: Compared, matched: Sequence[Matched], rank: int, span: Interval, shift: int
) -> Iterable[LanePiece]:
    """The pieces of one rank's step in start order."""
    waits, transfers = compared.waits_and_transfers(rank)
    exposed = intersect([span], list(compared.ranks[rank].exposed))
    waiting = intersect(subtract(waits, transfers), exposed)
    idle = intersect([span], list(compared.ranks[rank].idle))
    times: dict[LaneKind, list[Interval]] = {
        "own": subtract([span], union([*exposed, *idle])),
        "transfer": subtract(exposed, waiting),
        "waiting": waiting,
        "idle": subtract(idle, exposed),
    }
    own_calls = [(each, call) for each in matched for call in each.calls if call.rank == rank]
    pairs = sorted((call for _, call in own_calls if call.operation == PAIR), key=lambda call: call.end_ns)
    for (start, end), kind in sorted((time, kind) for kind, found in times.items() for time in found):
        yield LanePiece(
            kind,
            (start + shift) / 1000,
            (end + shift) / 1000,
            last=_waits_for(own_calls, start, end) if kind == "waiting" else None,
            number=_transfer_number(pairs, start) if kind == "own" and pairs else None,
        )


def _beside(compared: Compared, rank: int, span: Interval, shift: int) -> Iterable[LanePiece]:
    """The transfer and the waiting of one rank's step beside own work, in start order."""
    waits, transfers = compared.waits_and_transfers(rank)
    own = subtract([span], union([*compared.ranks[rank].exposed, *compared.ranks[rank].idle]))
    times: dict[LaneKind, list[Interval]] = {
        "hidden": intersect(transfers, own),
        "waiting-hidden": intersect(subtract(waits, transfers), own),
    }
    for (start, end), kind in sorted((time, kind) for kind, found in times.items() for time in found):
        yield LanePiece(kind, (start + shift) / 1000, (end + shift) / 1000)


def _calls(matched: Sequence[Matched], rank: int, shift: int) -> Iterable[LaneCall]:
    for number, each in enumerate(matched, 1):
        for call in each.calls:
            if call.rank == rank:
                start, end = call.start_ns + shift, call.end_ns + shift
                arrived = (end - each.transfer_ns) / 1000
                yield LaneCall(number, call.operation, start / 1000, arrived, end / 1000, each.last)


def _waits_for(own_calls: Sequence[tuple[Matched, Call]], start: int, end: int) -> int | None:
    """The rank that arrives last at the call that covers most of a time."""
    covered = [(min(end, call.end_ns) - max(start, call.start_ns), each.last) for each, call in own_calls]
    return max(covered, default=(0, None), key=lambda each: each[0])[1]


def _transfer_number(pairs: Sequence[Call], start: int) -> int | None:
    received = [call for call in pairs if call.members[1] == call.rank and call.end_ns <= start]
    sent = [call for call in pairs if call.members[0] == call.rank and call.end_ns > start]
    call = received[-1] if received else sent[0] if sent else None
    return None if call is None else call.index + 1
