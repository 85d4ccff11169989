"""The rank that is late: what it costs, and why it is late, from the kernels of the late rank and of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kinetoscope.job.compared import Compared
from kinetoscope.job.lateness import Late, find_late, gets_more
from kinetoscope.ranks.digest import RankDigest
from kinetoscope.trace.text import slow_steps
from kinetoscope.trace.units import format_value

MIN_EXCESS = 0.01
"""Work or idle time explains a late rank if it is this share of a step above the others' median."""


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
    waited_us: float
    """The mean time that each partner waits for the late ranks in a step, beside own work or not."""
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
    slow_steps: str
    """`, most of it in 1 of 8 steps`, if few steps have most of the waiting for the late ranks; else empty."""


def stragglers(compared: Compared, digests: Mapping[int, RankDigest]) -> list[Straggler]:
    """The late rank of each set of ranks that wait for each other, the most expensive first."""
    return [_straggler(late, compared, digests) for late in find_late(compared)]


def _straggler(found: Late, compared: Compared, digests: Mapping[int, RankDigest]) -> Straggler:
    ranks = found.ranks
    matched = [each for each in compared.matched if each.calls[0].rank in found.among]
    parts = [part for part in compared.parts if part.rank in found.among]
    late = next(part for part in parts if part.rank == ranks[0])
    others = [part for part in parts if part.rank not in ranks]
    excess_us = round(late.own_us - median(part.own_us for part in others), 3)
    stalled_us = round(late.stalled_us - median(part.stalled_us for part in others), 3)
    operations = _operations(digests[late.rank], [digests[part.rank] for part in others])
    total = sum(each.waited_ns for each in matched) or 1
    for_late = [each for each in matched if each.last in ranks]
    waited = Counter[int]()
    for each in for_late:
        waited[each.calls[0].step] += each.waited_ns
    partners = {call.rank for each in for_late for call in each.calls} - set(ranks)
    waited_us = sum(each.waited_ns for each in for_late) / 1000 / (len(partners) or 1) / compared.step_count(ranks)
    return Straggler(
        rank=late.rank,
        also_late=ranks[1:],
        among=found.among,
        share=sum(each.waited_ns for each in for_late) / total,
        waited_us=round(waited_us, 3),
        saving_us=found.saving_us,
        step_us=late.step_us,
        is_shared_out=gets_more(late.rank, matched),
        excess_us=excess_us,
        stalled_us=stalled_us,
        operations=operations,
        why=_why(excess_us, stalled_us, late.step_us, operations),
        slow_steps=slow_steps([float(waited[step]) for step in sorted(compared.steps[late.rank])]),
    )


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
