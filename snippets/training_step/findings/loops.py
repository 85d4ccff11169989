"""The loops of the chapter: faults with their rules, what mending one saved, and what a rule says of a trace."""

from __future__ import annotations

from dataclasses import dataclass

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rule import Finding
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import Trace
from kinetoscope.trace.queries import busy_us, recorded_step_us
from snippets.lab.finding import Device, Figure, Run, TraceError
from snippets.lab.finding.measure import paired_difference, paired_ratio, percent, percent_saved, unpaired_ratio
from snippets.lab.recording.consistency import loop_trace_contradiction


@dataclass(frozen=True)
class Fault:
    """A fault that is recorded before and after its mend."""

    name: str
    title: str
    rule: str
    """Name of the rule that finds it."""
    after: str = "after"
    """The recording that shows the mend, without the fault's name."""

    @property
    def loops(self) -> tuple[str, str]:
        """The experiments before and after the mend."""
        chapter = f"training_step/{self.name}"
        return f"{chapter}_before", f"{chapter}_{self.after}"


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("item", "Reading values in every step", "sync-in-step"),
        Fault("loader", "A loader that stalls", "loader-stall"),
        Fault("pageable", "Copies from pageable memory", "pageable-copies", "pinned"),
        Fault("recompile", "Compiling for each length", "recompiles"),
        Fault("breaks", "A graph that breaks in each block", "graph-breaks"),
        Fault("layout", "Copies for a layout", "needless-copies"),
        Fault("optimizer", "An optimizer as a loop", "optimizer-loop"),
        Fault("tensor_cores", "Products without tensor cores", "no-tensor-cores"),
        Fault("allocator", "Memory returned in every step", "allocator-in-step"),
        Fault("tiny", "Hundreds of tiny kernels", "tiny-kernels"),
        Fault("attention", "Attention written out", "unfused-attention"),
        Fault("cold", "A profile of the first steps", "first-step"),
    )
}
"""Name of a fault -> its rule and its loops."""
TIMED = tuple(name for name in FAULTS if name not in ("recompile", "cold"))
"""Faults whose iterations are timed before and after, in turns."""
_RULES = {rule.name: rule for rule in RULES}
_found: dict[tuple[int, str], tuple[Trace, tuple[Finding, ...]]] = {}
_KEPT = 128


def rule_findings(run: Run, rule: str) -> tuple[Finding, ...]:
    """A rule's findings in a run's trace; cached, since a claim needs each part of a recording."""
    trace = run.whole.trace
    key = id(trace), rule
    if key not in _found:
        if len(_found) >= _KEPT:
            _found.clear()
        _found[key] = trace, diagnose(trace, [_RULES[rule]]).findings
    return _found[key][1]


def found_in(device: Device, fault: str) -> Figure:
    """In which of its two traces the fault's rule finds it: `before`, `after`, `both` or `neither`."""
    before, after = (device[loop] for loop in FAULTS[fault].loops)
    seen = [bool(rule_findings(run, FAULTS[fault].rule)) for run in (before, after)]
    names = {(True, False): "before", (False, True): "after", (True, True): "both", (False, False): "neither"}
    return Figure(names[seen[0], seen[1]], origin=f"{before.origin} and {after.id}, rule {FAULTS[fault].rule}")


def ceiling(device: Device, fault: str) -> Figure:
    """The most that mending the fault can save in a step, by its rule on the trace before the mend.

    Raises `TraceError` if the rule does not find it.
    """
    run = device[FAULTS[fault].loops[0]]
    findings = rule_findings(run, FAULTS[fault].rule)
    if not findings:
        raise TraceError(f"{FAULTS[fault].rule} finds nothing in {run.id} on {device.name}")
    most = sum(finding.saving_us_per_step for finding in findings)
    return Figure(most, "us", origin=f"{run.origin}, {FAULTS[fault].rule} on its trace")


def busy_share(run: Run) -> Figure:
    """The time in which the GPU works on a recorded step, in percent of an iteration without the profiler."""
    gpu_us = run.per_step(lambda step: busy_us(step.activities), "us")
    return percent(unpaired_ratio(gpu_us, run.time("iteration")))


def saved(device: Device, fault: str) -> Figure:
    """The fix's saving of an iteration, unprofiled, in pairs of blocks."""
    before, after = (device[loop] for loop in FAULTS[fault].loops)
    return paired_difference(before, after, "iteration")


def speedup(device: Device, fault: str) -> Figure:
    """How many times as long an iteration takes before the mend as after it."""
    before, after = (device[loop] for loop in FAULTS[fault].loops)
    return paired_ratio(before, after, "iteration")


def lost(device: Device, fault: str) -> Figure:
    """The share of an iteration that the fault takes."""
    before, after = (device[loop] for loop in FAULTS[fault].loops)
    return percent_saved(paired_ratio(after, before, "iteration"))


def unused(device: Device, fault: str) -> Figure:
    """How much of the ceiling the mend has not saved; below zero, the ceiling was no ceiling.

    Inconclusive where the loop's times contradict its trace.
    """
    run = device[FAULTS[fault].loops[0]]
    most, less = ceiling(device, fault), saved(device, fault)
    low, high = less.bounds
    contradiction = loop_trace_contradiction(recorded_step_us(run.whole.steps), run.timing("iteration"))
    return Figure(
        most.number - less.number,
        "us",
        (most.number - high, most.number - low),
        less.origin,
        conclusive=not contradiction,
        doubt=f"{run.id} took {contradiction}" if contradiction else "",
    )
