"""The rank that is late: what it costs, and why it is late, from the kernels of the late rank and of the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kinetoscope.ranks.compared import Compared
from kinetoscope.ranks.digest import RankDigest
from kinetoscope.trace.lateness import Late, RankParts, WaitsFor, late_ranks
from kinetoscope.trace.matching import PAIR, Matched
from kinetoscope.trace.units import format_value

MIN_SHARE = 0.05
"""A rank is late if a step would be shorter by this share without it: GPUs of one type differ by up to about 3 %."""
MIN_STAGE_SHARE = 0.15
"""... of a pipeline, whose stages are seldom equal."""
MIN_EXCESS = 0.01
"""Work or idle time explains a late rank if it is this share of a step above the others' median."""
UNEVEN = 1.1
"""A rank gets more elements by all-to-all than the others from this ratio on."""


@dataclass(frozen=True)
class OperationTimes:
    """The kernels of one operation, or the copies, of a late rank and of the others: a mean step, medians of the
    others."""

    operation: str
    calls: float
    us: float
    others_calls: float
    others_us: float


@dataclass(frozen=True)
class Straggler:
    """A late rank, with what it costs and why it is late."""

    rank: int
    also_late: tuple[int, ...]
    """Other ranks that are late like this one."""
    among: tuple[int, ...]
    """The ranks that wait for each other, directly or through others, with the late ones."""
    share: float
    """Share of the waiting of `among`, hidden or not, that is at collectives at which the late ranks arrive last."""
    saving_us: float
    """The time by which a step would be shorter if the late ranks were on time."""
    step_us: float
    """The time of a step on the late rank's GPU."""
    is_shared_out: bool
    """Whether an all-to-all gives the late rank more than the others, so that they would get what it loses."""
    excess_us: float
    """The own work of the late rank beyond the median of the others."""
    stalled_us: float
    """The time beyond the median of the others in which the late rank's GPU is idle and no launch is to blame."""
    operations: tuple[OperationTimes, ...]
    """By operation, the largest difference first."""
    why: str


def stragglers(compared: Compared) -> list[Straggler]:
    """The late rank of each set of ranks that wait for each other, the most expensive first."""
    found = []
    waits, later_waits = compared.waits_us(), compared.waits_us(without_first=True)
    for among in compared.components:
        matched = [each for each in compared.matched if each.calls[0].rank in among]
        parts = [part for part in compared.parts if part.rank in among]
        late = _late(parts, matched, waits)
        later = _late([part for part in compared.later_parts if part.rank in among], matched, later_waits)
        if late is not None and later is not None and late.ranks[0] in later.ranks:
            found.append(_straggler(late, parts, matched, compared))
    return sorted(found, key=lambda each: (-each.saving_us, each.rank))


def _late(parts: Sequence[RankParts], matched: Sequence[Matched], waits: WaitsFor) -> Late | None:
    """The late ranks, if they cost enough."""
    late = late_ranks(parts, waits)
    if late is not None and _gets_more(late.ranks[0], matched):
        late = late_ranks(parts, waits, is_shared_out=True)
    if late is None:
        return None
    step_us = next(part.step_us for part in parts if part.rank == late.ranks[0])
    is_pipeline = sum(each.calls[0].operation == PAIR for each in matched) > len(matched) / 2
    return late if late.saving_us >= (MIN_STAGE_SHARE if is_pipeline else MIN_SHARE) * step_us else None


def _straggler(found: Late, parts: Sequence[RankParts], matched: Sequence[Matched], compared: Compared) -> Straggler:
    ranks = found.ranks
    late = next(part for part in parts if part.rank == ranks[0])
    others = [part for part in parts if part.rank not in ranks]
    excess_us = round(late.own_us - median(part.own_us for part in others), 3)
    stalled_us = round(late.stalled_us - median(part.stalled_us for part in others), 3)
    operations = _operations(compared.ranks[late.rank], [compared.ranks[part.rank] for part in others])
    total = sum(each.waited_ns for each in matched) or 1
    return Straggler(
        rank=late.rank,
        also_late=ranks[1:],
        among=tuple(part.rank for part in parts),
        share=sum(each.waited_ns for each in matched if each.last in ranks) / total,
        saving_us=found.saving_us,
        step_us=late.step_us,
        is_shared_out=_gets_more(late.rank, matched),
        excess_us=excess_us,
        stalled_us=stalled_us,
        operations=operations,
        why=_why(excess_us, stalled_us, late.step_us, operations),
    )


def _gets_more(rank: int, matched: Sequence[Matched]) -> bool:
    """Whether all-to-alls give a rank more elements than the mean of the other ranks."""
    elements: dict[int, int] = defaultdict(int)
    for each in matched:
        if each.calls[0].operation == "alltoall":
            for call in each.calls:
                elements[call.rank] += call.elements_in + call.elements_out
    others = [count for other, count in elements.items() if other != rank]
    return bool(others) and elements[rank] * len(others) > UNEVEN * sum(others) > 0


def _operations(late: RankDigest, others: Sequence[RankDigest]) -> tuple[OperationTimes, ...]:
    names = sorted({name for rank in (late, *others) for name in rank.operations_ns} - {"communication"})
    rows = [
        OperationTimes(
            name,
            round(late.operation_calls.get(name, 0) / late.step_count, 1),
            round(late.operations_ns.get(name, 0) / late.step_count / 1000, 3),
            round(median(other.operation_calls.get(name, 0) / other.step_count for other in others), 1),
            round(median(other.operations_ns.get(name, 0) / other.step_count for other in others) / 1000, 3),
        )
        for name in names
    ]
    return tuple(sorted(rows, key=lambda row: (row.others_us - row.us, row.operation)))


def _why(excess_us: float, stalled_us: float, step_us: float, operations: Sequence[OperationTimes]) -> str:
    if max(excess_us, stalled_us) < MIN_EXCESS * step_us:
        return "neither its kernels nor its gaps are longer than those of the others: it starts its steps later"
    if stalled_us > excess_us:
        return (
            f"its GPU is idle for {us_text(stalled_us)} more per step than the others' median, and launching does not "
            "take that time: look for reading of data, logging, saving or sleeping"
        )
    text = f"its own kernels take {us_text(excess_us)} more per step than the others' median: "
    more = [row for row in operations if row.calls > row.others_calls and row.us > row.others_us]
    more_us = sum(row.us - row.others_us for row in more)
    if more_us < excess_us / 2:
        count = sum(row.calls for row in operations)
        return f"{text}the same {count:,.0f} kernels and copies, but longer: more data, or a slower GPU"
    first = more[0]
    return f"{text}it runs {first.calls:g} of the kind {first.operation}, the others {first.others_calls:g}"


def us_text(us: float) -> str:
    """A time with three digits and its unit."""
    return format_value(us, "us")
