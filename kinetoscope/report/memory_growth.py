"""Whether the memory of a GPU grows from step to step, as where a loop keeps what it computes."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.memory import memory_levels
from kinetoscope.trace.events import MemoryEvent
from kinetoscope.trace.units import format_value

MIN_STEPS = 5
MIN_GROWING = 0.9
"""Least part of the steps at whose end more memory is allocated than at the end of the step before."""
MIN_GROWTH = 1.05
"""Least ratio of the memory at the ends of the last and the first of the steps."""


def memory_growth_text(facts: Facts) -> str:
    """How much a GPU's allocated memory grows per step, and by what, in two sentences; empty if it does not grow.

    A first step that is warm-up does not count: it allocates what stays, such as the state of the optimizer.
    """
    by_device: dict[int, list[MemoryEvent]] = defaultdict(list)
    for event in facts.trace.memory if len(facts.steps) >= MIN_STEPS and not facts.trace.processes else ():
        if event.device >= 0:
            by_device[event.device].append(event)
    grown = [(levels[-1] - levels[0], levels) for events in by_device.values() if (levels := _at_ends(facts, events))]
    if not grown:
        return ""
    growth, levels = max(grown)
    if growth < (MIN_GROWTH - 1) * levels[0] or growth <= 0:
        return ""
    growing = sum(before < after for before, after in pairwise(levels))
    if growing < MIN_GROWING * (len(levels) - 1):
        return ""
    per_step, first, last = (
        format_value(size, "bytes") for size in (growth / (len(levels) - 1), levels[0], levels[-1])
    )
    why = (
        "This is expected where a cache grows."
        if facts.is_token_loop
        else "Something keeps what a step allocates: a list of tensors, or a loss that is summed up with its graph."
    )
    unit = "token" if facts.is_token_loop else "step"
    return f"The GPU's allocated memory grows by {per_step} per {unit}, from {first} to {last}. {why}"


def _at_ends(facts: Facts, events: list[MemoryEvent]) -> list[int]:
    """The bytes allocated at the end of each step; empty if the events begin later."""
    levels = memory_levels(events)
    times = [at_us for at_us, _ in levels]
    places = [bisect_left(times, step.end_us) - 1 for step in facts.steps]
    return [levels[place][1] for place in places] if places[0] >= 0 else []
