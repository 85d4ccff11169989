"""Ranks of one job side by side: exposed communication, who arrives last at collectives, and why.

Method: the kernel of an allreduce, allgather, reducescatter or alltoall ends only when all ranks have arrived, so a
rank that arrives late has the SHORTEST call, and the call of every other rank is longer by the time it waited. No clock
is compared between machines. As in NcclAnalyser of TraceLens (rocm.docs.amd.com/projects/tracelens, "implicit-sync
collectives": the shortest call is the communication, the rest is skew). Read with the pitfalls of Megatron-Bridge
(docs.nvidia.com/nemo/megatron-bridge, Nsight Systems analysis): rank 0 is not representative; unions of intervals, not
sums; exposed is not blocking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from kinetoscope.ranks.digest import (
    WAITING,
    CollectiveDigest,
    Digest,
    RankDigest,
    RankStep,
)
from kinetoscope.ranks.merge import merge
from kinetoscope.trace.units import format_value

MIN_SHARE, MIN_SHARE_OF_TWO = 0.5, 0.75
"""A rank is the straggler if it causes this share of all waiting."""
MIN_WAIT = 0.01
"""... and if each other rank waits for it for this share of a step."""
MIN_EXCESS = 0.01
"""A straggler's compute or idle time explains it if it is this share of a step above the others' median."""
METHOD = (
    f"Method: an {', '.join(WAITING[:-1])} or {WAITING[-1]} ends on a rank only after all ranks have started it, so "
    "the rank with the shortest call arrived last, and the others waited for the difference. No clocks are compared "
    "between ranks. Source: TraceLens, NcclAnalyser (implicit-sync collectives). Exposed means that no other kernel "
    "ran; it is not blocking: such a collective need not delay the next kernel (Megatron-Bridge, Nsight Systems "
    "analysis pitfalls)."
)


@dataclass(frozen=True)
class RankTimes:
    """Mean times of a rank's steps, in us."""

    rank: int
    device: str
    steps: int
    wall_us: float
    compute_us: float
    communication_us: float
    exposed_us: float
    idle_us: float
    last_at: int
    """Collectives at which it arrived last, of the compared collectives."""
    delays_us: float
    """Time that the other ranks together waited for it, per step."""


@dataclass(frozen=True)
class Straggler:
    """The rank that causes most of the waiting."""

    rank: int
    share: float
    """Its share of the waiting of all ranks."""
    wait_us: float
    """Mean time that each other rank waits for it in a step: the most that a fix can save."""
    why: str


@dataclass(frozen=True)
class RanksReport:
    """The comparison of several ranks' digests."""

    digest: Digest
    ranks: tuple[RankTimes, ...]
    compared: int
    """Collectives compared between ranks."""
    straggler: Straggler | None
    notes: tuple[str, ...]
    """Limits of the comparison."""


def ranks_report(digests: Iterable[Digest]) -> RanksReport:
    """Compare ranks. Raises `TraceError` as `merge` does."""
    merged = merge(digests)
    compared = [each for each in merged.collectives if _is_comparable(each, len(merged.ranks))]
    steps = len({each.step for each in compared}) or 1
    last_at: dict[int, int] = defaultdict(int)
    delays: dict[int, float] = defaultdict(float)
    for each in compared:
        last_at[each.shortest_rank] += 1
        delays[each.shortest_rank] += each.waited_ns / 1000 / steps
    ranks = tuple(_rank_times(rank, last_at, delays) for rank in merged.ranks)
    return RanksReport(merged, ranks, len(compared), _straggler(ranks), tuple(_notes(merged, len(compared))))


def _is_comparable(collective: CollectiveDigest, ranks: int) -> bool:
    """Whether it is one collective, seen from several ranks. Different groups may have one name."""
    if not collective.group_size:
        return ranks > 1 and collective.ranks == ranks
    return 1 < collective.ranks <= collective.group_size


def _rank_times(rank: RankDigest, last_at: Mapping[int, int], delays: Mapping[int, float]) -> RankTimes:
    def mean_us(of: Callable[[RankStep], int]) -> float:
        return round(fmean(map(of, rank.steps)) / 1000, 3)

    number = -1 if rank.rank is None else rank.rank
    return RankTimes(
        rank=number,
        device=rank.device,
        steps=rank.step_count,
        wall_us=mean_us(lambda step: step.wall_ns),
        compute_us=mean_us(lambda step: step.compute_ns),
        communication_us=mean_us(lambda step: step.communication_ns),
        exposed_us=mean_us(lambda step: step.exposed_ns),
        idle_us=mean_us(lambda step: step.idle_ns),
        last_at=last_at.get(number, 0),
        delays_us=round(delays.get(number, 0.0), 3),
    )


def _straggler(ranks: Sequence[RankTimes]) -> Straggler | None:
    total = sum(rank.delays_us for rank in ranks)
    if len(ranks) < 2 or not total:
        return None
    late = max(ranks, key=lambda rank: (rank.delays_us, -rank.rank))
    share, wait_us = late.delays_us / total, late.delays_us / (len(ranks) - 1)
    least = MIN_SHARE_OF_TWO if len(ranks) == 2 else MIN_SHARE
    if share < least or wait_us < MIN_WAIT * median(rank.wall_us for rank in ranks):
        return None
    return Straggler(late.rank, share, round(wait_us, 3), _why(late, [rank for rank in ranks if rank is not late]))


def _why(late: RankTimes, others: Sequence[RankTimes]) -> str:
    """The time of a late rank that exceeds the others' median: kernels, or gaps between them."""
    compute = late.compute_us - median(rank.compute_us for rank in others)
    idle = late.idle_us - median(rank.idle_us for rank in others)
    wall_us = median(rank.wall_us for rank in others)
    if max(compute, idle) < MIN_EXCESS * wall_us:
        return "neither its kernels nor its gaps are longer than those of the others: it starts its steps later"
    if compute >= idle:
        return (
            f"its own kernels take {us_text(compute)} more per step than the others' median: more work, or a slower GPU"
        )
    return f"its GPU is idle for {us_text(idle)} more per step than the others' median: its CPU launches late"


def _notes(merged: Digest, compared: int) -> Iterable[str]:
    ranks = merged.ranks
    size = ranks[0].world_size
    if size and len(ranks) < size:
        yield f"{len(ranks)} of {size} ranks are given: the one that arrives last may be missing."
    if size and len(ranks) > size:
        yield f"{len(ranks)} ranks are given, though the world size is {size}."
    counts = {rank.collectives / rank.step_count for rank in ranks}
    if len(counts) > 1:
        yield (
            f"The ranks run different numbers of communication kernels per step ({min(counts):g} to {max(counts):g}), "
            f"and those are matched by their order: compare like with like, such as the ranks of one pipeline stage."
        )
    if not compared:
        yield "No collective was found on several ranks, so that nothing tells who arrives last."
    elif compared < len(merged.collectives):
        yield f"{len(merged.collectives) - compared} collectives are not compared: not seen on all ranks of one group."
    if merged.collectives_left_out:
        yield f"Only the first {len(merged.collectives)} collectives are compared."
    if any(rank.uncounted for rank in ranks):
        yield f"{sum(rank.uncounted for rank in ranks)} GPU activities of these ranks belong to no step."


def ranks_headline(report: RanksReport) -> str:
    """The rank that arrives last, in a sentence."""
    late = report.straggler
    if late is None:
        known = report.compared and len(report.ranks) > 1
        return "No single rank holds up the others." if known else "These digests cannot tell who arrives last."
    return f"Rank {late.rank} arrives last: each other rank waits for it for {us_text(late.wait_us)} per step."


def straggler_text(late: Straggler) -> str:
    """The share of the waiting that a straggler causes, and why it is late."""
    return (
        f"{late.share:.0%} of all waiting at collectives is for rank {late.rank}, {us_text(late.wait_us)} per "
        "step for each other rank; at most this much of a step can be won by mending it. Compared with the others, "
        f"{late.why}."
    )


def ranks_data(report: RanksReport) -> dict[str, Any]:
    """The comparison of ranks as JSON data."""
    late = report.straggler
    return {
        "ranks": [{field: getattr(rank, field) for field in RankTimes.__dataclass_fields__} for rank in report.ranks],
        "collectives_compared": report.compared,
        "straggler": None
        if late is None
        else {"rank": late.rank, "share": round(late.share, 4), "wait_us_per_step": late.wait_us, "why": late.why},
        "notes": list(report.notes),
        "method": METHOD,
    }


def us_text(us: float) -> str:
    """A time with three digits and its unit."""
    return format_value(us, "us")
