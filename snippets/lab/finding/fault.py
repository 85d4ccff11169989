"""A fault that a chapter plants: what its rule says of the traces, and what mending it saved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rule import Finding
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.queries import recorded_step_us
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import paired_difference, paired_ratio, percent_saved
from snippets.lab.finding.ranks import compare_ranks, on_ranks
from snippets.lab.recording.consistency import loop_trace_contradiction

STRAGGLERS = "stragglers"
"""The rule that compares ranks."""
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
        seen = bool(savings_us(before, self.rule)), bool(savings_us(after, self.rule))
        names = {(True, False): "before", (False, True): "after", (True, True): "both", (False, False): "neither"}
        return Figure(names[seen], origin=f"{before.origin} and {after.id}, rule {self.rule}")

    def ceiling(self, device: Device) -> Figure:
        """The most that the mend can save in an iteration, by the rule on the trace before the mend.

        Raises `TraceError` if the rule does not find the fault.
        """
        run = device[self.loops[0]]
        savings = savings_us(run, self.rule)
        if not savings:
            raise TraceError(f"{self.rule} finds nothing in {run.id} on {device.name}")
        return Figure(sum(savings), "us", origin=f"{run.origin}, {self.rule} on its trace")

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


def savings_us(run: Run, rule: str) -> tuple[float, ...]:
    """What each finding of a rule saves at most in a step; empty if the rule finds nothing.

    Of several ranks: the findings on the rank that they cost most. Late ranks are found by comparing the ranks.
    """
    ranks = on_ranks(run.whole)
    if rule == STRAGGLERS and len(ranks) > 1:
        return tuple(late.saving_us for late in compare_ranks(run).stragglers)
    savings = (tuple(each.saving_us_per_step for each in rule_findings(rank, rule)) for rank in ranks)
    return max(savings, key=math.fsum)


def rule_findings(run: Run, rule: str) -> tuple[Finding, ...]:
    """A rule's findings in the trace of a run, on its rank; cached, since a claim needs each part of a recording."""
    trace = run.whole.trace
    key = id(trace), rule
    if key not in _found:
        if len(_found) >= _KEPT:
            _found.clear()
        _found[key] = trace, diagnose(trace, [_RULES[rule]]).findings
    return _found[key][1]
