"""One rank is late and the others wait for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import NSYS_AI
from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.intervals import length_us, union_of

MIN_SHARE = 0.05


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare the time that each rank spends in collectives: the late rank waits least."""
    ranks: dict[tuple[str, int], list[GpuActivity]] = defaultdict(list)
    for step in facts.trace.steps:
        for activity in step.activities:
            if is_collective(activity):
                ranks[step.process, activity.device].append(activity)
    if not ranks:
        return []
    if len(ranks) < 2:
        return CannotTell(RULE, "the trace has collectives of one rank only: report the traces of all ranks", "")
    if len({len(activities) for activities in ranks.values()}) > 1:
        return CannotTell(RULE, "the ranks ran different numbers of collectives, which cannot be matched", "")
    steps = len(facts.all_steps)
    waits = {rank: length_us(union_of(activities)) / steps for rank, activities in ranks.items()}
    late = min(waits, key=lambda rank: waits[rank])
    others = [us for rank, us in waits.items() if rank != late]
    waiting_us = round(sum(others) / len(others) - waits[late], 3)
    if waiting_us < MIN_SHARE * facts.step_us:
        return []
    where = f"{late[0]}, GPU {late[1]}" if late[0] else f"GPU {late[1]}"
    title = (
        f"The other ranks are {duration_text(waiting_us)} per step ({share_text(waiting_us, facts.step_us)}) longer in "
        f"collectives than {where}: they wait for it"
    )
    evidence = facts.evidence([a for rank, activities in ranks.items() if rank != late for a in activities])
    return [Finding(RULE, title, where, evidence, waiting_us, waiting_us)]


RULE = Rule(
    name="stragglers",
    title="One rank is late",
    looks_for="Ranks in one trace that spend different times in as many collectives: a collective ends when the last "
    "rank has joined, so the rank with the least time in them is the late one.",
    threshold=f"the others are longer in collectives by {MIN_SHARE:.0%} of the median step",
    source=f"{NSYS_AI} (uneven waits in collectives across ranks); the share is this book's",
    advice="Look for uneven work on this rank: longer sequences, logging, checkpoints, data loading, a slower GPU.",
    find=find,
    needs=(no_gpu_work,),
)
