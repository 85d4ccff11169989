"""Python collects garbage inside a step."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import COLLECTOR, MSPROF, NSYS_AI

EVENT = "Python GC"


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Runs of the collector that the profiler recorded, or calls of `gc.collect`."""
    runs = facts.in_steps(facts.cpu.spans["garbage collection"])
    if not runs:
        if any(function.name == EVENT for function in facts.trace.functions):
            return []
        return CannotTell(RULE, "runs of Python's garbage collector were not recorded", COLLECTOR)
    saving_us = facts.saving_us(runs)
    if saving_us < MIN_SHARE * facts.step_us:
        return []
    total_us = facts.length_us(runs)
    longest = max(runs, key=lambda run: run.duration_us)
    title = (
        f"Python's garbage collector takes {duration_text(total_us)} per step: "
        f"{count_text(len(runs), 'run')} in {count_text(len(facts.steps), 'step')}, "
        f"the longest {duration_text(longest.duration_us)}"
    )
    site = facts.sites([longest])[0]
    measured = (Measured("runs of the collector", len(runs), "runs"),)
    return [Finding(RULE, title, site.line or site.text, facts.evidence(runs), total_us, saving_us, measured=measured)]


RULE = Rule(
    name="garbage-collection",
    title="Python collects garbage inside a step",
    looks_for="Python collects garbage while the GPU has no work. The trace shows GC events, or, if stacks were "
    "recorded, calls of gc.collect.",
    threshold=f"The ceiling is at least {MIN_SHARE:.0%} of the median step.",
    source=f"{MSPROF} (gc.yaml: 1 ms); {NSYS_AI} (GC pauses); the share is this book's",
    advice="After building the model, call gc.collect(), gc.freeze() and gc.disable(). Then call gc.collect() every "
    "few hundred steps, on all ranks at the same step.",
    find=find,
    confidence="high",
    mistaken="The collector runs rarely in the whole run, and happens to run in the recorded steps.",
)
