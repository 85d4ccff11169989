"""Ranks of one job side by side: the parts of their steps, who is late and what it costs, and who waits for whom.

Method: the kernel of an allreduce, allgather, reducescatter, alltoall or barrier ends only when all ranks have arrived,
so a rank that arrives late has the SHORTEST call, and the call of every other rank is longer by the time it waited; so
for a send and its receive. No clock is compared between machines. As in NcclAnalyser of TraceLens
(rocm.docs.amd.com/projects/tracelens, "implicit-sync collectives": the shortest call is the communication, the rest is
skew). Read with the pitfalls of Megatron-Bridge (docs.nvidia.com/nemo/megatron-bridge, Nsight Systems analysis): rank 0
is not representative; unions of intervals, not sums; exposed is not blocking. That only exposed waiting costs time is
checked against 19 jobs on two and four H200 that were also timed without the profiler and without the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from kinetoscope.job.compared import Clocks, Compared, RankWork
from kinetoscope.job.rank_parts import RankParts
from kinetoscope.ranks.collectives import GroupWaiting, ShownCollectives, group_waiting, shown_collectives
from kinetoscope.ranks.different_runs import different_runs
from kinetoscope.ranks.digest import MAX_CALLS, Digest, RankDigest, RankStep, calls_in
from kinetoscope.ranks.lanes import StepLanes, step_lanes
from kinetoscope.ranks.late import Straggler, stragglers, us_text
from kinetoscope.ranks.merge import merge
from kinetoscope.ranks.pipeline import Pipeline, pipeline
from kinetoscope.trace.communication import WAITING

MIN_LAUNCHING = 0.10
"""A rank is launch-bound under the profiler if its GPU waits for launches for this share of a step."""
METHOD = (
    f"Method: an {', '.join(WAITING[:-1])} or {WAITING[-1]} ends on a rank only after all ranks have started it, so "
    "the rank with the shortest call arrived last, and the others waited for the difference; so with a send and its "
    "receive. No clocks are compared between ranks. Source: TraceLens, NcclAnalyser (implicit-sync collectives). "
    "Exposed means that no other kernel ran; it is not blocking: such a collective need not delay the next kernel "
    "(Megatron-Bridge, Nsight Systems analysis pitfalls). Waiting beside other kernels costs nothing."
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
    """Number of collectives at which this rank arrived last, and another rank waited longer than the clocks differ."""
    delays_us: float
    """Time per step that the other ranks together waited for this rank, hidden or not."""


@dataclass(frozen=True)
class RanksReport:
    """The comparison of several ranks' digests."""

    digest: Digest
    ranks: tuple[RankTimes, ...]
    parts: tuple[RankParts, ...]
    """The parts of each rank's steps; empty if the ranks have no step in common."""
    compared: int
    """Collectives compared between ranks, without sends and receives."""
    compared_pairs: int
    """Sends compared with their receives."""
    stragglers: tuple[Straggler, ...]
    """The late rank of each set of ranks that wait for each other, the most expensive first."""
    components: tuple[tuple[int, ...], ...]
    """Sets of ranks that wait for each other, directly or through others."""
    waiting: tuple[GroupWaiting, ...]
    """Who waits for whom in which group, the longest exposed waiting first."""
    pipeline: Pipeline | None
    shown: ShownCollectives | None
    """The costliest and the longest collective; None if no rank waits."""
    lanes: StepLanes | None
    """The step of the costliest collective on one time axis; None if no rank waits."""
    clocks: Clocks
    notes: tuple[str, ...]
    """Limits of the comparison."""

    @property
    def missing_ranks(self) -> int:
        """How many ranks of the job are not given; 0 if the traces do not tell."""
        return max(0, (self.digest.ranks[0].world_size or 0) - len(self.ranks))

    @property
    def different_runs(self) -> str:
        """That the ranks were recorded one after the other; empty if not, or if a trace does not tell its time."""
        ranks = self.digest.ranks
        if not all(rank.origin_ns and rank.windows for rank in ranks):
            return ""
        spans_ns = {
            _number(rank): (rank.origin_ns + rank.windows[0].start_ns, rank.origin_ns + rank.windows[-1].end_ns)
            for rank in ranks
        }
        return different_runs(spans_ns)

    @property
    def straggler(self) -> Straggler | None:
        """The most expensive late rank; None if no rank is late."""
        return self.stragglers[0] if self.stragglers else None


def ranks_report(digests: Iterable[Digest]) -> RanksReport:
    """Compare ranks. Raises `TraceError` as `merge` does."""
    merged = merge(digests)
    compared = Compared(map(_work, merged.ranks))
    late = stragglers(compared, {_number(rank): rank for rank in merged.ranks})
    last_at: dict[int, int] = defaultdict(int)
    delays: dict[int, float] = defaultdict(float)
    clocks = compared.clocks
    agreement_ns = round(1000 * clocks.spread_us) if clocks.are_comparable else 0
    for each in compared.matched:
        last_at[each.last] += each.longest_wait_ns > agreement_ns
        delays[each.last] += each.waited_ns / 1000 / compared.step_count([each.last])
    shown = shown_collectives(compared)
    return RanksReport(
        digest=merged,
        ranks=tuple(_rank_times(rank, last_at, delays) for rank in merged.ranks),
        parts=compared.parts,
        compared=len(compared.collectives),
        compared_pairs=len(compared.pairs),
        stragglers=tuple(late),
        components=tuple(compared.components),
        waiting=group_waiting(compared),
        pipeline=pipeline(compared),
        shown=shown,
        lanes=None if shown is None else step_lanes(compared, shown.costliest.step, shown.costliest.last),
        clocks=clocks,
        notes=tuple((*_notes(merged, compared), *_launch_notes(late, compared))),
    )


def launch_bound(parts: Iterable[RankParts]) -> RankParts | None:
    """The rank whose GPU waits longest for launches, if that is a large part of its step."""
    bound = [part for part in parts if part.launching_us >= MIN_LAUNCHING * part.step_us > 0]
    return max(bound, key=lambda part: part.launching_us, default=None)


def _work(rank: RankDigest) -> RankWork:
    return RankWork(
        _number(rank), rank.windows, rank.exposed, calls_in(rank), rank.calls_left_out, rank.origin_ns, rank.idle
    )


def _number(rank: RankDigest) -> int:
    return -1 if rank.rank is None else rank.rank


def _rank_times(rank: RankDigest, last_at: Mapping[int, int], delays: Mapping[int, float]) -> RankTimes:
    def mean_us(of: Callable[[RankStep], int]) -> float:
        return round(fmean(map(of, rank.steps)) / 1000, 3)

    number = _number(rank)
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


def _notes(merged: Digest, compared: Compared) -> Iterable[str]:
    ranks = merged.ranks
    yield from damage_notes(ranks)
    size = ranks[0].world_size
    if size and len(ranks) < size:
        yield (
            f"{len(ranks)} of {size} ranks {'is' if len(ranks) == 1 else 'are'} given: the rank that arrives last may "
            "be missing, and transfer may include waiting for it."
        )
    if size and len(ranks) > size:
        yield f"{len(ranks)} ranks are given, though the world size is {size}."
    counts = {rank.collectives / rank.step_count for rank in ranks}
    if len(counts) > 1:
        yield (
            f"The ranks run different numbers of communication kernels per step ({min(counts):g} to {max(counts):g}), "
            "and those without a sequence number are matched by their order in each group."
        )
    left = len({call.key for call in compared.calls} - {each.calls[0].key for each in compared.matched})
    numbers = [{window.number for window in work.windows} for work in compared.ranks.values()]
    if len(numbers) > 1 and not set.intersection(*numbers):
        yield "The ranks have no step number in common, so that nothing matches: profile the same steps on all ranks."
    elif not compared.matched:
        yield "No collective was found on several ranks, so that nothing tells who arrives last."
    elif left:
        yield f"{left} collectives are not compared: not seen on all ranks of one group."
    if unmatched := sum(rank.unmatched for rank in ranks):
        yield (
            f"{unmatched} communication kernels are broadcasts or the like, or the traces do not tell what they are: "
            "they count as transfer, whoever waits in them."
        )
    if any(rank.calls_left_out for rank in ranks):
        yield f"Of some ranks, only the first {MAX_CALLS:,} collectives are compared."
    clocks = compared.clocks
    if compared.collectives and not clocks.are_comparable:
        why = f"are {clocks.spread_us:,.0f} µs apart (median): the clocks differ" if clocks.spread_us else ""
        why = why or "cannot be compared: a trace does not tell when its clock began"
        yield (
            f"The ends of a collective on its ranks {why}, so that starts on different ranks cannot be compared. The "
            "waiting is from durations alone."
        )
    if any(rank.uncounted for rank in ranks):
        yield f"{sum(rank.uncounted for rank in ranks)} GPU activities of these ranks belong to no step."


def damage_notes(ranks: Sequence[RankDigest]) -> Iterable[str]:
    """What the traces of ranks lost; ranks that lost the same share a sentence."""
    lost: dict[str, list[str]] = defaultdict(list)
    for rank in ranks:
        for text in rank.damage:
            lost[text].append(str(_number(rank)))
    for text, numbers in lost.items():
        listed = f"{', '.join(numbers[:8])}{', ...' * (len(numbers) > 8)}"
        yield f"Rank{'s' * (len(numbers) > 1)} {listed}: {text}."


def _launch_notes(late: Iterable[Straggler], compared: Compared) -> Iterable[str]:
    """That late ranks are launch-bound, too."""
    for each in late:
        if bound := launch_bound(part for part in compared.parts if part.rank == each.rank):
            yield (
                f"The GPU of rank {bound.rank} also waits for launches, {us_text(bound.launching_us)} of "
                f"{us_text(bound.step_us)} per step: the profiler makes launches longer."
            )
