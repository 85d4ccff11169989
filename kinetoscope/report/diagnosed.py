"""A trace read, summarized and diagnosed: the data of every section of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.diagnosis.diagnose import Diagnosis, diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits
from kinetoscope.diagnosis.idle import Idle
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.gpus import gpu_data
from kinetoscope.report.waiting import waits_per_step
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import no_collection, read_trace
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.step_kinds import long_run_us
from kinetoscope.trace.totals import Summary, low_median, summarize

NEAR = 0.2
"""A step takes about a time if it differs by no more than this part."""


@dataclass(frozen=True)
class DiagnosedTrace:
    """A trace, its summary and its diagnosis."""

    name: str
    """The file's name, without its folder."""
    diagnosis: Diagnosis
    summary: Summary
    book: str = ""
    """The book's address, seen from the report: `../../`; if empty, its pages are named and not linked."""

    @property
    def facts(self) -> Facts:
        """The facts that the rules used."""
        return self.diagnosis.facts

    @property
    def trace(self) -> Trace:
        """The trace itself."""
        return self.diagnosis.facts.trace

    @cached_property
    def waits(self) -> Waits:
        """Who waits for whom: the mean of all steps."""
        return waits_per_step(self.facts)

    @property
    def step_us(self) -> float:
        """The time of a step in the long run: the median on the CPU, but at least the mean of its GPU work, or the
        median if no step takes about that mean.

        If there are several kinds of step, a mean over them, for shares: no step need take that.
        """
        facts = self.facts
        if facts.kinds:
            return facts.long_run_us
        mean_us = max(facts.step_us, self.summary.gpu_busy_us_per_step)
        if any(abs(long_run_us(step) - mean_us) <= NEAR * mean_us for step in self.trace.steps):
            return mean_us
        return max(facts.step_us, low_median(busy_us(step.activities) for step in facts.steps))

    @property
    def mean_step_us(self) -> float:
        """The same in the mean, where several steps are longer than most. Savings, which are means, are a part of
        it."""
        return max(self.step_us, self.facts.mean_step_us)

    @cached_property
    def idle(self) -> Idle | None:
        """Where the GPU is idle over all steps; None without GPU work."""
        return Idle(self.facts) if self.has_gpu else None

    @property
    def has_gpu(self) -> bool:
        """Whether the trace has GPU work."""
        return bool(self.trace.activities)


def read_diagnosed(path: Path, rules: Sequence[Rule] = RULES) -> DiagnosedTrace:
    """Read, summarize and diagnose the trace at `path`. Raises `TraceError`."""
    with no_collection():
        trace = read_trace(path)
        diagnosis = diagnose(trace, rules)
        return DiagnosedTrace(path.name, diagnosis, summarize(trace))


def finding_data(finding: Finding, step_us: float) -> dict[str, Any]:
    """A finding as JSON data."""
    return {
        "rule": finding.rule.name,
        "severity": finding.severity(step_us),
        "title": finding.title,
        "evidence_us_per_step": round(finding.evidence_us_per_step, 3),
        "ceiling_us_per_step": round(finding.saving_us_per_step, 3),
        "where": finding.where,
        "advice": finding.advice or finding.rule.advice,
        "source": finding.rule.source,
        "page": PAGES.get(finding.rule.name, ""),
    }


def unknown_data(unknown: CannotTell) -> dict[str, Any]:
    """A question that a trace cannot answer, as JSON data."""
    return {"rule": unknown.rule.name, "reason": unknown.reason, "option": unknown.option}


def report_data(diagnosed: DiagnosedTrace) -> dict[str, Any]:
    """The summary's keys; the use of the GPUs; the GPU's idle time over all steps, null without GPU work; `findings`
    and `cannot_tell`."""
    data: dict[str, Any] = msgspec.to_builtins(diagnosed.summary)
    data |= gpu_data(diagnosed.facts.gpu_use)
    step_us, idle = diagnosed.mean_step_us, diagnosed.idle
    data["idle_us"] = idle and idle.total_us
    data["idle_in_steps_us"] = idle and idle.in_steps_us
    data["idle_between_steps_us"] = idle and idle.between_steps_us
    data["findings"] = [finding_data(finding, step_us) for finding in diagnosed.diagnosis.findings]
    data["cannot_tell"] = [unknown_data(unknown) for unknown in diagnosed.diagnosis.cannot_tell]
    return data
