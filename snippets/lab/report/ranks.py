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

from snippets.lab.html import Cell, Html, bold, cell_html, code, details, note, table
from snippets.lab.report.digest import (
    WAITING,
    CollectiveDigest,
    Digest,
    KernelDigest,
    RankDigest,
    StepTimes,
    bin_middle_ns,
)
from snippets.lab.report.merge import merge
from snippets.lab.report.part import Part

MIN_SHARE, MIN_SHARE_OF_TWO = 0.5, 0.75
"""A rank is the straggler if it causes this share of all waiting."""
MIN_WAIT = 0.01
"""... and if each other rank waits for it for this share of a step."""
MIN_EXCESS = 0.01
"""A straggler's compute or idle time explains it if it is this share of a step above the others' median."""
SHOWN_RANKS, SHOWN_KERNELS = 32, 20
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
    """Collectives at which it arrived last, of those compared."""
    delays_us: float
    """What the other ranks together waited for it, per step."""


@dataclass(frozen=True)
class Straggler:
    """The rank that most waiting goes back to."""

    rank: int
    share: float
    """Of the waiting of all ranks."""
    wait_us: float
    """What each other rank waits for it in a step, on average: no more than this can be won."""
    why: str


@dataclass(frozen=True)
class RanksReport:
    """What digests of several ranks show."""

    digest: Digest
    ranks: tuple[RankTimes, ...]
    compared: int
    """Collectives compared between ranks."""
    straggler: Straggler | None
    notes: tuple[str, ...]
    """What limits the comparison."""


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
    """Whether it is one collective, and seen from several ranks. Groups of one name may be different ones."""
    if not collective.group_size:
        return ranks > 1 and collective.ranks == ranks
    return 1 < collective.ranks <= collective.group_size


def _rank_times(rank: RankDigest, last_at: Mapping[int, int], delays: Mapping[int, float]) -> RankTimes:
    def mean_us(of: Callable[[StepTimes], int]) -> float:
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
    """Which of its own times is above the others' median: kernels, or gaps between them."""
    compute = late.compute_us - median(rank.compute_us for rank in others)
    idle = late.idle_us - median(rank.idle_us for rank in others)
    wall_us = median(rank.wall_us for rank in others)
    if max(compute, idle) < MIN_EXCESS * wall_us:
        return "neither its kernels nor its gaps are longer than those of the others: it starts its steps later"
    if compute >= idle:
        return (
            f"its own kernels take {compute:,.1f} us more per step than the others' median: more work, or a slower GPU"
        )
    return f"its GPU is idle for {idle:,.1f} us more per step than the others' median: its CPU launches late"


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


def ranks_report_parts(report: RanksReport) -> tuple[Part, ...]:
    """The sections of `report RANK0 RANK1 ...`."""
    return (
        Part("Who waits for whom", _straggler_html(report)),
        Part("Ranks side by side", _ranks_html(report)),
        Part("Kernels of all ranks", _kernels_html(report.digest)),
    )


def straggler_text(report: RanksReport) -> str:
    """A sentence or two on who arrives last."""
    late = report.straggler
    if late is None:
        known = report.compared and len(report.ranks) > 1
        return "No single rank holds up the others." if known else "These digests cannot tell who arrives last."
    return (
        f"Rank {late.rank} arrives last: {late.share:.0%} of all waiting at collectives is for it, "
        f"{late.wait_us:,.1f} us per step for each other rank. At most this much of a step can be won. "
        f"Compared with the others, {late.why}."
    )


def _straggler_html(report: RanksReport) -> Html:
    exposed = [rank.exposed_us for rank in report.ranks]
    summed = (
        f"Communication without a kernel beside it: {min(exposed):,.1f} to {max(exposed):,.1f} us per step, "
        f"in the median {median(exposed):,.1f} us."
    )
    lines = [straggler_text(report), summed, *report.notes]
    return Html("".join(f"<p>{cell_html(bold(line, index == 0))}</p>" for index, line in enumerate(lines)))


def _ranks_html(report: RanksReport) -> Html:
    head = ["rank", "device", "steps", "step us", "compute us", "communication us", "exposed us", "GPU idle us"]
    head += ["last at", "others wait us"]
    order = sorted(report.ranks, key=lambda rank: (-rank.delays_us, rank.rank))
    listed = sorted(order[:SHOWN_RANKS], key=lambda rank: rank.rank)
    late = report.straggler.rank if report.straggler else None
    shown = table("Mean times per step of each rank", head, [_cells(rank, late) for rank in listed], text_columns=2)
    if len(order) > SHOWN_RANKS:
        rest = sorted(order[SHOWN_RANKS:], key=lambda rank: rank.rank)
        more = table(
            "Mean times per step of the other ranks", head, [_cells(rank, late) for rank in rest], text_columns=2
        )
        shown = Html(shown + details(f"{len(rest)} more ranks, for which the others wait less", more))
    return Html(f"{shown}{note(METHOD)}")


def _cells(rank: RankTimes, late: int | None) -> list[Cell]:
    times = (rank.wall_us, rank.compute_us, rank.communication_us, rank.exposed_us, rank.idle_us)
    return [
        bold(str(rank.rank), rank.rank == late),
        rank.device or None,
        rank.steps,
        *(f"{us:,.1f}" for us in times),
        rank.last_at,
        f"{rank.delays_us:,.1f}",
    ]


def _kernels_html(merged: Digest) -> Html:
    head = ["kernel", "grid", "block", "calls", "total us", "mean us", "median us", "99 % us", "longest us"]
    longest = sorted(merged.kernels, key=lambda kernel: -kernel.total_ns)
    rows = [_kernel_cells(kernel) for kernel in longest[:SHOWN_KERNELS]]
    listed = table("Kernels of all ranks and steps, the largest sums first", head, rows, text_columns=3)
    return Html(listed + note("Median and 99 % are read from bins of 19 % width."))


def _kernel_cells(kernel: KernelDigest) -> list[Cell]:
    shapes = ("×".join(map(str, shape)) if shape else None for shape in (kernel.grid, kernel.block))
    times = (kernel.total_ns, kernel.total_ns / kernel.calls, quantile_ns(kernel, 0.5), quantile_ns(kernel, 0.99))
    return [code(kernel.name), *shapes, kernel.calls, *(f"{ns / 1000:,.1f}" for ns in (*times, kernel.max_ns))]


def quantile_ns(kernel: KernelDigest, share: float) -> float:
    """A quantile of the durations, to within its bin."""
    reached = 0
    for index in sorted(kernel.durations):
        reached += kernel.durations[index]
        if reached >= share * kernel.calls:
            return min(max(bin_middle_ns(index), kernel.min_ns), kernel.max_ns)
    return kernel.max_ns


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
