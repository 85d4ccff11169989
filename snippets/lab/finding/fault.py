"""A fault that a chapter plants: what its rule says of the traces, and what mending it saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rule import Finding
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.queries import recorded_step_us
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import paired_difference, paired_ratio, percent_saved
from snippets.lab.recording.consistency import loop_trace_contradiction

_RULES = {rule.name: rule for rule in RULES}
_found: dict[tuple[int, str], tuple[Trace, tuple[Finding, ...]]] = {}
_KEPT = 128


@dataclass(frozen=True)
class Fault:
    """A fault in a loop that is recorded before and after its mend."""

    name: str
    title: str
    loops: tuple[str, str]
    """The experiments before and after the mend."""
    rule: str = ""
    """Name of the rule that finds the fault; empty if none does."""

    def found_in(self, device: Device) -> Figure:
        """In which of the two traces the rule finds the fault: `before`, `after`, `both` or `neither`."""
        before, after = (device[loop] for loop in self.loops)
        seen = bool(rule_findings(before, self.rule)), bool(rule_findings(after, self.rule))
        names = {(True, False): "before", (False, True): "after", (True, True): "both", (False, False): "neither"}
        return Figure(names[seen], origin=f"{before.origin} and {after.id}, rule {self.rule}")

    def ceiling(self, device: Device) -> Figure:
        """The most that the mend can save in an iteration, by the rule on the trace before the mend.

        Raises `TraceError` if the rule does not find the fault.
        """
        run = device[self.loops[0]]
        findings = rule_findings(run, self.rule)
        if not findings:
            raise TraceError(f"{self.rule} finds nothing in {run.id} on {device.name}")
        most = sum(finding.saving_us_per_step for finding in findings)
        return Figure(most, "us", origin=f"{run.origin}, {self.rule} on its trace")

    def saved(self, device: Device) -> Figure:
        """What the mend saves of an iteration, unprofiled, in pairs of blocks."""
        before, after = (device[loop] for loop in self.loops)
        return paired_difference(before, after, "iteration")

    def speedup(self, device: Device) -> Figure:
        """How many times as long an iteration takes before the mend as after it."""
        before, after = (device[loop] for loop in self.loops)
        return paired_ratio(before, after, "iteration")

    def lost(self, device: Device) -> Figure:
        """The share of an iteration that the fault takes."""
        before, after = (device[loop] for loop in self.loops)
        return percent_saved(paired_ratio(after, before, "iteration"))

    def unused(self, device: Device) -> Figure:
        """How much of the ceiling the mend has not saved; below zero, the ceiling was no ceiling.

        Inconclusive where the loop's times contradict its trace.
        """
        run = device[self.loops[0]]
        most, less = self.ceiling(device), self.saved(device)
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


def rule_findings(run: Run, rule: str) -> tuple[Finding, ...]:
    """A rule's findings in a run's trace; cached, since a claim needs each part of a recording.

    Of merged ranks: of the rank that they cost most, unless the rule compares the ranks.
    """
    trace = run.whole.trace
    key = id(trace), rule
    if key not in _found:
        if len(_found) >= _KEPT:
            _found.clear()
        found = (diagnose(each, [_RULES[rule]]).findings for each in _views(trace))
        _found[key] = trace, max(found, key=_saving_us)
    return _found[key][1]


def _views(trace: Trace) -> Iterator[Trace]:
    """The trace; of merged ranks, also the trace with the steps of each rank alone."""
    yield trace
    for process in trace.processes:
        steps = tuple(step for step in trace.steps if step.process == process)
        if steps:
            yield msgspec.structs.replace(trace, steps=steps)


def _saving_us(findings: tuple[Finding, ...]) -> float:
    return math.fsum(finding.saving_us_per_step for finding in findings)
