"""A pipeline: stages that send to each other, which of them waits for which, and the bubble."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from kinetoscope.job.compared import Compared
from kinetoscope.job.rank_parts import RankParts

MIN_SHARE = 0.5
"""Ranks are a pipeline if at least this share of their exposed communication is sends and receives."""


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline: a rank, with its parts of a mean step in us."""

    rank: int
    own_us: float
    transfer_us: float
    waits_us: Mapping[int, float]
    """Rank that it sends to or receives from -> exposed waiting for it."""
    idle_us: float
    step_us: float

    @property
    def bubble_us(self) -> float:
        """The time in which the stage neither works nor transfers."""
        return round(max(0.0, self.step_us - self.own_us - self.transfer_us), 3)


@dataclass(frozen=True)
class Pipeline:
    """The stages of a pipeline, in the order in which they send forward."""

    stages: tuple[Stage, ...]
    bubble_share: float
    """The share of the stages' steps in which they neither work nor transfer."""
    slowest: int
    """The stage with the most own work."""


def pipeline(compared: Compared) -> Pipeline | None:
    """The pipeline of the ranks; None if they do not mostly send and receive, or not all of them are matched."""
    waits: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    sent: dict[tuple[int, int], int] = {}
    totals: dict[bool, int] = defaultdict(int)
    pairs = {id(each) for each in compared.pairs}
    for each in compared.matched:
        is_pair = id(each) in pairs
        for call in each.calls:
            totals[is_pair] += call.duration_ns
            if is_pair:
                other = next(peer for peer in each.calls[0].members if peer != call.rank)
                waits[call.rank][other] += compared.exposed_waiting_ns(call)
        if is_pair:
            sender, receiver = each.calls[0].members
            sent.setdefault((sender, receiver), each.calls[0].start_ns)
    if not pairs or totals[True] < MIN_SHARE * sum(totals.values()):
        return None
    parts = {part.rank: part for part in compared.parts if part.rank in waits}
    stages = [_stage(parts[rank], waits[rank], compared) for rank in _order(sent, sorted(parts))]
    if len(stages) < 2:
        return None
    bubble = fmean(stage.bubble_us / stage.step_us if stage.step_us else 0.0 for stage in stages)
    return Pipeline(tuple(stages), round(bubble, 4), max(stages, key=lambda stage: stage.own_us).rank)


def _stage(part: RankParts, waits: Mapping[int, int], compared: Compared) -> Stage:
    steps = compared.step_count([part.rank])
    return Stage(
        rank=part.rank,
        own_us=part.own_us,
        transfer_us=part.transfer_us,
        waits_us={other: round(total / steps / 1000, 3) for other, total in sorted(waits.items())},
        idle_us=part.idle_us,
        step_us=part.step_us,
    )


def _order(sent: Mapping[tuple[int, int], int], ranks: Sequence[int]) -> list[int]:
    """The ranks in the order of their first sends: who sends before it has received comes first."""
    receivers_of: dict[int, list[int]] = defaultdict(list)
    for sender, receiver in sent:
        if (receiver, sender) not in sent or sender < receiver:
            receivers_of[sender].append(receiver)
    receiving = {receiver for receivers in receivers_of.values() for receiver in receivers}
    order: list[int] = []
    waiting = [rank for rank in ranks if rank not in receiving] or list(ranks)
    while waiting:
        rank = waiting.pop(0)
        if rank in ranks and rank not in order:
            order.append(rank)
            waiting += receivers_of[rank]
    return order + [rank for rank in ranks if rank not in order]
