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
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.waiting import waits_per_step
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import no_collection, read_trace
from kinetoscope.trace.progress import Progress
from kinetoscope.trace.totals import Summary, summarize


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
        """The time of a step in the long run: the median on the CPU, but at least its GPU work."""
        return max(self.facts.step_us, self.summary.gpu_busy_us_per_step)

    @property
    def has_gpu(self) -> bool:
        """Whether the trace has GPU work."""
        return bool(self.trace.activities)


def read_diagnosed(path: Path, rules: Sequence[Rule] = RULES, progress: Progress | None = None) -> DiagnosedTrace:
    """Read, summarize and diagnose the trace at `path`. Raises `TraceError`."""
    with no_collection():
        trace = read_trace(path, progress=progress)
        diagnosis = diagnose(trace, rules, progress)
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
    """The summary's keys, then `findings` and `cannot_tell`."""
    data: dict[str, Any] = msgspec.to_builtins(diagnosed.summary)
    step_us = diagnosed.step_us
    data["findings"] = [finding_data(finding, step_us) for finding in diagnosed.diagnosis.findings]
    data["cannot_tell"] = [unknown_data(unknown) for unknown in diagnosed.diagnosis.cannot_tell]
    return data
