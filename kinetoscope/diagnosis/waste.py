"""Avoidable GPU work that a rule finds in a step, and the finding that sums it up.

A rule looks at each step separately; times are means over the steps, and events are those of one step. If a mean is
longer than the mean step, one slow step does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from kinetoscope.diagnosis.facts import MAX_EVIDENCE, MIN_SHARE, Facts
from kinetoscope.diagnosis.rule import Finding, Measured, Rule
from kinetoscope.trace.events import GpuActivity, Span, Step
from kinetoscope.trace.intervals import covered_us
from kinetoscope.trace.queries import busy_us

MAX_LAUNCH_GAP_US = 100.0
"""A longer gap between two kernels is not the cost of a launch, even with the profiler on: something else took it."""


@dataclass(frozen=True)
class Waste:
    """Activities with one cause, and the most time that a fix saves."""

    activities: tuple[GpuActivity, ...]
    avoidable_us: float


Look = Callable[[Step], Sequence[Waste]]
Describe = Callable[[Sequence[Waste], float], str]
"""The waste of the step that is shown and its time per step, in us -> the title of the finding."""


def findings(rule: Rule, facts: Facts, look: Look, describe: Describe) -> list[Finding]:
    """One finding for all waste of a rule; none if the saving is below `MIN_SHARE` of a step.

    The saving of a step never exceeds the step, nor the time during which one of the activities ran: concurrent kernels
    save their common time once.
    """
    steps = facts.steps
    waste = [look(step) for step in steps]
    if not any(waste):
        return []
    spent = [_spent_us(each) for each in waste]
    avoidable = [math.fsum(found.avoidable_us for found in each) for each in waste]
    evidence_us = facts.mean_us(spent)
    saving_us = facts.mean_us(list(map(min, avoidable, spent, map(facts.long_run_of, steps))))
    if saving_us <= 0 or saving_us < MIN_SHARE * facts.long_run_us:
        return []
    median = next((index for index, step in enumerate(steps) if step is facts.step), 0)
    shown = waste[median] or max(waste, key=lambda each: sum(found.avoidable_us for found in each))
    worst = max(shown, key=lambda found: found.avoidable_us)
    longest = max(worst.activities, key=_duration)
    return [
        Finding(
            rule,
            describe(shown, evidence_us),
            facts.place(longest),
            _evidence(shown),
            evidence_us,
            saving_us,
            measured=(
                Measured("places in the step shown", len(shown), "places"),
                Measured("GPU activities in the step shown", _count(shown), "activities"),
            ),
        )
    ]


def _spent_us(waste: Iterable[Waste]) -> float:
    """The time of the activities, and of the gaps that a `Launched` adds, each once: streams run side by side."""
    groups = tuple(waste)
    gaps = (gap for found in groups if isinstance(found, Launched) for gap in found.gaps)
    activities: Iterator[Span] = (a for found in groups for a in found.activities)
    return covered_us(list({id(span): span for span in chain(activities, gaps)}.values()))


@dataclass(frozen=True)
class Launched(Waste):
    """Waste of launches: the GPU's idle time between its activities would vanish with them."""

    gaps: tuple[Span, ...] = ()


def launched(run: Sequence[GpuActivity]) -> Launched:
    """The waste of launching each activity of a run (see `runs`): all but the longest activity, and the short gaps
    between."""
    idle = (Span("gap", before.end_us, after.start_us - before.end_us) for before, after in pairwise(run))
    gaps = tuple(gap for gap in idle if 0 < gap.duration_us <= MAX_LAUNCH_GAP_US)
    longest_us = max((activity.duration_us for activity in run), default=0.0)
    gaps_us = math.fsum(gap.duration_us for gap in gaps)
    return Launched(tuple(run), max(0.0, busy_us(run) + gaps_us - longest_us), gaps)


def runs(stream: Sequence[GpuActivity], belongs: Callable[[GpuActivity], bool]) -> list[list[GpuActivity]]:
    """Successive activities of a stream for which `belongs` is true; any other activity separates two runs."""
    return [list(group) for inside, group in groupby(stream, belongs) if inside]


def _count(waste: Iterable[Waste]) -> int:
    return len({id(activity) for found in waste for activity in found.activities})


def _duration(activity: GpuActivity) -> float:
    return activity.duration_us


def _evidence(waste: Iterable[Waste]) -> tuple[GpuActivity, ...]:
    distinct = {id(activity): activity for found in waste for activity in found.activities}
    return tuple(sorted(distinct.values(), key=_duration, reverse=True)[:MAX_EVIDENCE])


def streams(step: Step) -> list[list[GpuActivity]]:
    """A step's activities by stream, each in start order."""
    by_stream: dict[tuple[int, int], list[GpuActivity]] = {}
    for activity in step.activities:
        by_stream.setdefault((activity.device, activity.stream), []).append(activity)
    return list(by_stream.values())
