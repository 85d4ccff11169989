"""The step waits for data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.cpu_states import Cause, CpuSpan
from kinetoscope.diagnosis.cpu_times import is_cpu_only, slowest_own_code
from kinetoscope.diagnosis.facts import SLOWDOWN, Facts
from kinetoscope.diagnosis.missing import no_operators
from kinetoscope.diagnosis.per_step import usual, window
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import TENSORBOARD
from kinetoscope.diagnosis.step_facts import MIN_STEPS
from kinetoscope.trace.intervals import (
    contains,
    intersect,
    interval,
    length_us,
    lengths_in,
    ns,
    subtract,
    union,
    union_of,
)
from kinetoscope.trace.text import slow_steps

MIN_SHARE = 0.05
ON_CPU = (
    "Use more num_workers with persistent_workers=True and a larger prefetch_factor, and leave them cores: "
    "torch.set_num_threads limits those of the operators. Decode and augment ahead of time."
)
_WORKING: tuple[Cause, ...] = ("garbage collection", "compiling", "data loading", "memory allocation", "Python")


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Time in the iterator of `DataLoader` that GPU work does not hide."""
    loading = facts.cpu.spans["data loading"]
    fetches = facts.in_steps(loading)
    if not fetches:
        return no_operators(RULE, facts) or _between_steps(facts, loading)
    loading_us, saving_us = facts.length_us(fetches), facts.saving_us(fetches)
    if saving_us < MIN_SHARE * facts.mean_step_us or _is_hidden(facts):
        return _single_stall(facts, fetches)
    part = share_text(loading_us, facts.mean_step_for(loading_us))
    slow = slow_steps(facts.lengths_us(fetches))
    title = f"Fetching a batch takes {duration_text(loading_us)} per step ({part}){slow}"
    return [_finding(facts, title, fetches, loading_us, saving_us)]


def _single_stall(facts: Facts, fetches: Sequence[CpuSpan]) -> Sequence[Finding] | CannotTell:
    """A stall of one step may be periodic: a loader of N workers that are too slow has N batches ready at a time."""
    longest = max(fetches, key=lambda fetch: fetch.duration_us)
    idle_us = length_us(intersect([interval(longest)], facts.idle))
    steps = len(facts.steps)
    is_large = idle_us >= MIN_SHARE * facts.mean_step_us * steps and 2 * idle_us > facts.length_us(fetches) * steps
    if "_MultiProcessing" not in longest.name or steps < MIN_STEPS or not is_large:
        return []
    reason = f"one of {steps:,} fetches takes {duration_text(longest.duration_us)}: with N workers, it may be every Nth"
    return CannotTell(RULE, reason, "a schedule with active of at least three times num_workers")


def _between_steps(facts: Facts, loading: Sequence[CpuSpan]) -> list[Finding]:
    """Fetches between two steps, if an annotation marks steps without them."""
    if not facts.windows:  # of a damaged trace, whose steps take no time
        return []
    between = subtract([(facts.windows[0][0], facts.windows[-1][1])], facts.windows)
    fetches = [fetch for fetch in loading if contains(between, ns(fetch.start_us))]
    if not fetches:
        return []
    pauses = [(before[1], after[0]) for before, after in pairwise(facts.step_windows)]
    times = union_of(fetches)
    loading_us = round(length_us(intersect(between, times)) / len(pauses), 3)
    idle = [length / 1000 for length in lengths_in(pauses, subtract(times, facts.busy))]
    saving_us = round(min(sum(idle) / len(idle), usual(idle)), 3)
    pause_us = round(length_us(between) / len(pauses), 3)
    if saving_us < MIN_SHARE * (facts.step_us + pause_us) or _is_hidden(facts, loading_us):
        return []
    title = f"Fetching a batch takes {duration_text(loading_us)} between steps of {duration_text(facts.step_us)}"
    title += slow_steps(idle).replace("steps", "pauses")
    return [_finding(facts, title, fetches, loading_us, saving_us, pause_us)]


def _is_hidden(facts: Facts, more_us: float = 0.0) -> bool:
    """Whether the GPU would work longer than the CPU without the profiler, which lengthens launching: then it never
    waits.

    Compares the mean step, in which one slow step does not count, plus `more_us` outside of it. A CPU that waits for
    the GPU does not run ahead.
    """
    parts = facts.cpu.partition(facts.windows)
    if parts["synchronization"] or parts["pageable copy"]:
        return False
    windows = list(map(window, facts.steps))
    working = lengths_in(windows, union(time for cause in _WORKING for time in parts[cause]))
    launching = lengths_in(windows, parts["launching"])
    cpu_us = usual([rest + launches / SLOWDOWN for rest, launches in zip(working, launching, strict=True)]) / 1000
    return cpu_us + more_us <= sum(facts.busy_us(step) for step in facts.steps) / len(facts.steps)


def _finding(
    facts: Facts, title: str, fetches: Sequence[CpuSpan], loading_us: float, saving_us: float, pause_us: float = 0.0
) -> Finding:
    longest = max(fetches, key=lambda fetch: fetch.duration_us)
    site = facts.sites([longest])[0]
    line = slowest_own_code(facts, union_of(fetches)) or site.line
    where = f"{longest.name} at {line}" if line else longest.name
    advice = ON_CPU if is_cpu_only(facts) else ""
    if "_SingleProcess" in longest.name:
        advice = f"The main process loads the data itself: set num_workers. {advice or RULE.advice}"
    measured = (Measured("fetches per step", len(fetches) / len(facts.steps), "fetches"),)
    evidence = facts.evidence(fetches)
    return Finding(RULE, title, where, evidence, loading_us, saving_us, advice, measured, beside_us=pause_us)


RULE = Rule(
    name="loader-stall",
    title="The step waits for data",
    looks_for="The CPU fetches a batch from a DataLoader (enumerate(DataLoader)#...__next__ or the function "
    "__next__) while the GPU has no work, inside a step or between steps. The rule doesn't see loading without a "
    "DataLoader.",
    threshold=f"The ceiling is at least {MIN_SHARE:.0%} of a step. A loop doesn't count if its CPU never waits for "
    "the GPU and takes less time for a step than the GPU. The rule assumes that the profiler makes launches "
    f"{SLOWDOWN:.0f} times as long.",
    source=f"{TENSORBOARD} (DataLoader above 5 % of a step)",
    advice="Use more num_workers with persistent_workers=True, a larger prefetch_factor, and pin_memory=True. Decode "
    "and augment data ahead of time or on the GPU. Also time the step without the profiler, because then the loader "
    "may work while the GPU is busy.",
    find=find,
    confidence="high",
    mistaken="The profiler slows the loop less than the loader's processes, or the trace begins while the workers "
    "start.",
)
