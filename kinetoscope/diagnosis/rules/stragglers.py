"""One rank is late and the others wait for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import NSYS_AI
from kinetoscope.job.compared import Compared, RankWork
from kinetoscope.job.lateness import MIN_SHARE, Late, find_late
from kinetoscope.job.matching import calls_of
from kinetoscope.job.windows import windows_of
from kinetoscope.trace.communication import collectives, is_collective
from kinetoscope.trace.events import GpuActivity, Step, Trace

_RANK = re.compile(r"rank (\d{1,6})")
Place = tuple[str, int]
"""A process, whose name is empty if it is the only one, and its GPU."""


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare how long the ranks of each group wait for each other without work of their own."""
    steps = _steps_of(facts.trace)
    if not steps:
        return []
    if len(steps) < 2:
        return CannotTell(RULE, "the trace has collectives of one rank only: report the traces of all ranks", "")
    places = dict(zip(_numbers(list(steps)), steps, strict=True))
    groups = dict(facts.trace.groups)
    works = []
    for number, place in places.items():
        windows, exposed = windows_of(steps[place])
        works.append(RankWork(number, windows, exposed, calls_of(steps[place], number, groups)[0]))
    compared = Compared(works)
    if not compared.matched:
        return CannotTell(RULE, "no collective of one rank can be matched with a collective of another", "")
    return [_finding(late, places, steps, facts) for late in find_late(compared)]


def _steps_of(trace: Trace) -> dict[Place, list[Step]]:
    """The steps of each process with the work of one GPU, for each GPU that communicates.

    Steps are numbered in each process, as merging the ranks may have cut their numbers apart.
    """
    places = {(step.process, each.device) for step in trace.steps for each in step.activities if is_collective(each)}
    return {
        (process, device): [
            structs.replace(step, activities=tuple(each for each in step.activities if each.device == device))
            for step in trace.steps
            if step.process == process
        ]
        for process, device in sorted(places)
    }


def _numbers(places: Sequence[Place]) -> list[int]:
    """The ranks that the names of the processes tell, if all do and differ; else 0, 1, ..."""
    named = [int(match[1]) for process, _ in places if (match := _RANK.fullmatch(process))]
    return named if len(set(named)) == len(places) else list(range(len(places)))


def _finding(late: Late, places: dict[int, Place], steps: dict[Place, list[Step]], facts: Facts) -> Finding:
    process, device = places[late.ranks[0]]
    where = f"{process}, GPU {device}" if process else f"GPU {device}"
    others = [places[rank] for rank in late.among if rank not in late.ranks]
    waiting = _subject(others) if len(late.among) < len(places) else "The other ranks are"
    share = share_text(late.saving_us, facts.mean_step_for(late.saving_us))
    title = (
        f"{waiting} {duration_text(late.saving_us)} per step ({share}) longer in collectives than {where}, waiting for "
        "it without work of their own"
    )
    evidence: list[GpuActivity] = [kernel for place in others for step in steps[place] for kernel in collectives(step)]
    measured = (Measured("ranks that wait for each other", len(late.among), "ranks"),)
    return Finding(RULE, title, where, facts.evidence(evidence), late.saving_us, late.saving_us, measured=measured)


def _subject(places: Sequence[Place]) -> str:
    """`Rank 2 is`, or `Ranks 1, 2 are`."""
    names = [process.removeprefix("rank ") or f"GPU {device}" for process, device in places[:8]]
    return f"Rank {names[0]} is" if len(places) == 1 else f"Ranks {', '.join(names)} are"


RULE = Rule(
    name="stragglers",
    title="One rank is late",
    looks_for="Ranks in one trace spend different times in the collectives of one group. A collective ends when the "
    "last rank has joined, so the rank with the shortest kernel is late. Waiting counts only while no other kernel "
    "runs, and only as far as the late rank's own kernels or stalls are longer.",
    threshold=f"The other ranks wait for at least {MIN_SHARE:.0%} of a step while no other kernel runs.",
    source=f"{NSYS_AI} (uneven waits in collectives across ranks); the share is this book's",
    advice="Look for uneven work on the late rank: longer sequences, logging, checkpoints, data loading, or a slower "
    "GPU.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The rank is late only in these steps, because its data is longer by chance, or the profiler slows this "
    "rank more than the others.",
)
