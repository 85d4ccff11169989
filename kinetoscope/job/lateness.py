"""The parts of each rank's steps, and which ranks are late: a step would be shorter if they were on time.

A rank is late if it waits little while the others wait with nothing beside it on their GPUs, and if its own work, or a
stall of its program, is longer than theirs. Waiting beside own work costs nothing. Waiting for a rank whose CPU is busy
launching is no lateness: the profiler makes each launch longer, on some ranks more than on others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from msgspec import Struct, structs

from kinetoscope.job.compared import Compared, WaitsFor
from kinetoscope.job.matching import PAIR, Matched
from kinetoscope.job.rank_parts import RankParts

MIN_SHARE = 0.05
"""A rank is late if a step would be shorter by this share without it.

GPUs of one type often differ by up to about 3 %. In this book's recordings, one H200 takes 7 to 13 % longer than
another for the same products: then its rank is late.
"""
MIN_STAGE_SHARE = 0.15
"""... of a pipeline, whose stages are seldom equal."""
LITTLE = 0.3
"""A late rank waits at most this share of the ranks' median waiting."""
CLEARLY = 0.8
"""The excess of work is known less well than the waiting, so it decides only below this share of it."""
UNEVEN = 1.1
"""A rank gets more elements by all-to-all than the others from this ratio on."""
ALIKE = 0.5
"""Several ranks are late if each has at least this share of the largest excess of work."""


class Late(Struct, frozen=True):
    """Ranks that are late, the one with the most work first."""

    ranks: tuple[int, ...]
    among: tuple[int, ...]
    """The ranks that wait for each other, directly or through others, with the late ones."""
    step_us: float
    """The time of a step on the GPU of the first."""
    saving_us: float
    """The time by which a step would be shorter if these ranks were on time."""
    is_limited: bool
    """Whether that is less than the others wait, as the late ranks' work exceeds theirs by less."""


def late_ranks(parts: Sequence[RankParts], waits_us: WaitsFor, *, is_shared_out: bool = False) -> Late | None:
    """The late ranks among those that wait for each other, and what they cost; None if there are none.

    A step would be shorter by the time that their partners wait for them with nothing beside it, and by the partners'
    exposed transfers beyond those of the late ranks, which hide them; or by the excess of the late ranks' work, if that
    is clearly less. `is_shared_out`: the others would get the work that the late ranks lose.
    """
    usual = median(each.waiting_us for each in parts) if parts else 0.0
    quick = [each for each in parts if each.waiting_us <= LITTLE * usual]
    others = [each for each in parts if each.waiting_us > LITTLE * usual]
    if not quick or len(others) < len(quick):
        return None
    work = median(each.work_us for each in others)
    most = max(each.work_us for each in quick)
    late = sorted(
        (each for each in quick if each.work_us - work >= min(ALIKE * (most - work), most - work)),
        key=lambda each: (-each.work_us, each.rank),
    )
    excess_us = min(each.work_us for each in late) + max(each.waiting_us for each in late)
    excess_us -= max(other.work_us for other in others)
    if is_shared_out:
        excess_us = min(excess_us, most - fmean(each.work_us for each in parts))
    ranks, among = tuple(each.rank for each in late), tuple(each.rank for each in parts)
    waited_us = _lost_us(ranks, parts, waits_us)
    is_limited = excess_us < CLEARLY * waited_us
    saving_us = round(excess_us if is_limited else waited_us, 3)
    return Late(ranks, among, late[0].step_us, saving_us, is_limited) if saving_us > 0 else None


def _lost_us(late: Sequence[int], parts: Sequence[RankParts], waits_us: WaitsFor) -> float:
    """The mean time that a partner of the late ranks waits for them, and transfers longer with nothing beside it."""
    partners: dict[int, float] = defaultdict(float)
    for (waiting, last), us in waits_us.items():
        if last in late and waiting not in late:
            partners[waiting] += us
    hidden_us = max(each.transfer_us for each in parts if each.rank in late)
    longer_us = fmean(max(0.0, each.transfer_us - hidden_us) for each in parts if each.rank not in late)
    return fmean(partners.values()) + longer_us if partners else 0.0


def find_late(compared: Compared) -> list[Late]:
    """The late ranks of each set of ranks that wait for each other, the most expensive first.

    Without the first step, as its start on the GPU is unknown and it may set up what later steps only use; the time
    that others wait is a mean of all steps.
    """
    found = []
    waits_us, later_us = compared.waits_us(), compared.waits_us(without_first=True)
    for among in compared.components:
        matched = [each for each in compared.matched if each.calls[0].rank in among]
        late = _late([part for part in compared.later_parts if part.rank in among], later_us, matched)
        if late is not None and not late.is_limited:
            waited_us = _lost_us(late.ranks, [part for part in compared.parts if part.rank in among], waits_us)
            late = structs.replace(late, saving_us=round(waited_us, 3))
        if late is not None:
            found.append(late)
    return sorted(found, key=lambda late: (-late.saving_us, late.ranks))


def _late(parts: Sequence[RankParts], waits_us: WaitsFor, matched: Sequence[Matched]) -> Late | None:
    """The late ranks, if they cost enough."""
    late = late_ranks(parts, waits_us)
    if late is not None and gets_more(late.ranks[0], matched):
        late = late_ranks(parts, waits_us, is_shared_out=True)
    if late is None:
        return None
    is_pipeline = sum(each.calls[0].operation == PAIR for each in matched) > len(matched) / 2
    least = MIN_STAGE_SHARE if is_pipeline else MIN_SHARE
    return late if late.saving_us >= least * late.step_us > 0 else None


def gets_more(rank: int, matched: Sequence[Matched]) -> bool:
    """Whether all-to-alls give a rank more elements than the mean of the other ranks."""
    elements: dict[int, int] = defaultdict(int)
    for each in matched:
        if each.calls[0].operation == "alltoall":
            for call in each.calls:
                elements[call.rank] += call.elements_in + call.elements_out
    others = [count for other, count in elements.items() if other != rank]
    return bool(others) and elements[rank] * len(others) > UNEVEN * sum(others) > 0
