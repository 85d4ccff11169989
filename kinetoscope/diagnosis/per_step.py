"""The times of steps, and what a thing takes per step: a loader may stall in every fourth step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from kinetoscope.trace.events import Step
from kinetoscope.trace.intervals import Interval, ns


def window(step: Step) -> Interval:
    """The time of a step."""
    return ns(step.start_us), ns(step.end_us)


def disjoint_windows(steps: Sequence[Step]) -> list[Interval]:
    """The time of each step; empty if some overlap or take no time."""
    times = list(map(window, steps))
    is_apart = all(before[1] <= after[0] for before, after in pairwise(times))
    return times if is_apart and all(start < end for start, end in times) else []


def winsorized_mean(times: Sequence[float]) -> float:
    """The mean, with the longest time counted as the second longest: one slow step does not raise it."""
    *rest, longest = sorted(times)
    return (sum(rest) + (rest[-1] if rest else longest)) / len(times)


def usual(times: Sequence[float]) -> float:
    """The median, or the winsorized mean if that is more: then several of the steps take longer than most."""
    return max(median(times), winsorized_mean(times))
