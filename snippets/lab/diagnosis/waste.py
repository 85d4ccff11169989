"""GPU work that a rule finds avoidable in a step, and the finding that it adds up to.

A rule looks at each step by itself; times are means over the steps, and events are those of one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.places import has_operator, place
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.trace.events import GpuActivity, Step
from snippets.lab.trace.queries import busy_us

MIN_SHARE = 0.01
"""Least ceiling of a finding, as a share of the longer of a step's wall time and its GPU time: less is noise."""
MAX_EVIDENCE = 100
BOTH = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
"""The option that records operators and GPU work."""
MAX_LAUNCH_GAP_US = 100.0
"""A longer gap between two kernels is not the cost of a launch, even with the profiler on: something else took it."""


@dataclass(frozen=True)
class Waste:
    """Activities with one cause and the time that at most vanishes when it is mended."""

    activities: tuple[GpuActivity, ...]
    avoidable_us: float


Look = Callable[[Step], Sequence[Waste]]
Describe = Callable[[Sequence[Waste], float], str]
"""The waste of the step that is shown and its time per step, in us -> the title of the finding."""


def findings(rule: Rule, facts: Facts, look: Look, describe: Describe) -> list[Finding]:
    """One finding for all that a rule finds, none if its ceiling is below `MIN_SHARE` of a step.

    The ceiling never exceeds the time during which one of the activities ran: kernels that run at once vanish at once.
    """
    steps = steps_of(facts)
    waste = [look(step) for step in steps]
    if not any(waste):
        return []
    spent = [_spent_us(each) for each in waste]
    avoidable = [math.fsum(found.avoidable_us for found in each) for each in waste]
    evidence_us = round(math.fsum(spent) / len(steps), 3)
    ceiling_us = round(math.fsum(map(min, avoidable, spent)) / len(steps), 3)
    if ceiling_us <= 0 or ceiling_us < MIN_SHARE * step_time_us(steps):
        return []
    median = next((index for index, step in enumerate(steps) if step is facts.step), 0)
    shown = waste[median] or max(waste, key=lambda each: sum(found.avoidable_us for found in each))
    worst = max(shown, key=lambda found: found.avoidable_us)
    longest = max(worst.activities, key=_duration)
    return [
        Finding(
            rule,
            describe(shown, evidence_us),
            place(longest, facts.trace),
            _evidence(shown),
            evidence_us,
            ceiling_us,
        )
    ]


def _spent_us(waste: Iterable[Waste]) -> float:
    """Time of the activities, each once, with what a `Launched` adds to it."""
    groups = tuple(waste)
    gaps = math.fsum(found.gaps_us for found in groups if isinstance(found, Launched))
    return busy_us({id(a): a for found in groups for a in found.activities}.values()) + gaps


@dataclass(frozen=True)
class Launched(Waste):
    """Waste of launches: the GPU's idle time between its activities would vanish with them."""

    gaps_us: float = 0.0


def launched(run: Sequence[GpuActivity]) -> Launched:
    """The waste of launching each activity of a run (see `runs`): all but the longest, and the short gaps between."""
    gaps = (after.start_us - before.end_us for before, after in pairwise(run))
    gaps_us = math.fsum(gap for gap in gaps if 0 < gap <= MAX_LAUNCH_GAP_US)
    longest_us = max((activity.duration_us for activity in run), default=0.0)
    return Launched(tuple(run), max(0.0, busy_us(run) + gaps_us - longest_us), gaps_us)


def runs(stream: Sequence[GpuActivity], belongs: Callable[[GpuActivity], bool]) -> list[list[GpuActivity]]:
    """The activities of a stream that belong, parted where another comes between."""
    return [list(group) for inside, group in groupby(stream, belongs) if inside]


def _duration(activity: GpuActivity) -> float:
    return activity.duration_us


def _evidence(waste: Iterable[Waste]) -> tuple[GpuActivity, ...]:
    distinct = {id(activity): activity for found in waste for activity in found.activities}
    return tuple(sorted(distinct.values(), key=_duration, reverse=True)[:MAX_EVIDENCE])


def steps_of(facts: Facts) -> Sequence[Step]:
    """The steps whose work counts."""
    return facts.trace.steps


def step_time_us(steps: Sequence[Step]) -> float:
    """Mean of what a step takes at least: its wall time, or its GPU time where the CPU runs ahead."""
    times = (max(step.end_us - step.start_us, busy_us(step.activities)) for step in steps)
    return math.fsum(times) / len(steps) if steps else 0.0


def streams(step: Step) -> list[list[GpuActivity]]:
    """A step's activities by stream, each in start order."""
    by_stream: dict[tuple[int, int], list[GpuActivity]] = {}
    for activity in step.activities:
        by_stream.setdefault((activity.device, activity.stream), []).append(activity)
    return list(by_stream.values())


def count(number: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`, `2 copies`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def no_gpu_work(rule: Rule, facts: Facts) -> CannotTell | None:
    """What every rule about kernels says of a trace without GPU work."""
    if any(step.activities for step in steps_of(facts)):
        return None
    return CannotTell(rule, "no step has GPU work", BOTH)


def has_operators(facts: Facts) -> bool:
    """Whether the trace has operators at all (`ProfilerActivity.CPU`)."""
    return any(not op.is_annotation for op in facts.trace.cpu_ops)


def unseen(
    rule: Rule,
    facts: Facts,
    concerns: Callable[[GpuActivity], bool],
    needs_shapes: bool,
) -> CannotTell | None:
    """Whether operators (or their shapes) are missing for most of the time of the activities that a rule concerns."""
    steps = steps_of(facts)
    concerned = [a for step in steps for a in step.activities if concerns(a)]
    lacking = [a for a in concerned if not has_operator(a) or (needs_shapes and not (a.op and a.op.input_shapes))]
    total_us, lacking_us = _total_us(concerned), _total_us(lacking)
    if lacking_us * 2 <= total_us or total_us < MIN_SHARE * step_time_us(steps) * len(steps):
        return None
    if any(a.launch is not None and "Graph" in a.launch.name for a in lacking):
        return CannotTell(rule, "a CUDA graph launched these kernels: its replay names no operators", "")
    if all(map(has_operator, lacking)):
        return CannotTell(rule, "operators have no shapes", "record_shapes=True")
    if has_operators(facts):
        return CannotTell(rule, "no operator of PyTorch launched these kernels", "")
    option = BOTH + (", record_shapes=True" if needs_shapes else "")
    return CannotTell(rule, "the trace has no operators", option)


def _total_us(activities: Iterable[GpuActivity]) -> float:
    return math.fsum(a.duration_us for a in activities)
