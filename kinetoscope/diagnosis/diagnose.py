"""Runs the rules on a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import Trace
from kinetoscope.trace.progress import Progress
from kinetoscope.trace.queries import require_steps


@dataclass(frozen=True)
class Diagnosis:
    """The rules' findings, the largest saving first, and the questions that the trace cannot answer, in the order of
    the rules."""

    facts: Facts
    findings: tuple[Finding, ...]
    cannot_tell: tuple[CannotTell, ...]


def diagnose(trace: Trace, rules: Sequence[Rule] = RULES, progress: Progress | None = None) -> Diagnosis:
    """Run the rules. Raises `TraceError` if the trace has no step."""
    require_steps(trace)
    facts = Facts(trace)
    found: list[Finding] = []
    unknown: list[CannotTell] = []
    for index, rule in enumerate(rules):
        if progress is not None:
            progress.stage("diagnosing", index, len(rules))
        result = rule.check(facts)
        if isinstance(result, CannotTell):
            unknown.append(result)
        else:
            found.extend(result)
    found.sort(key=lambda finding: (-finding.saving_us_per_step, -finding.evidence_us_per_step, finding.rule.name))
    return Diagnosis(facts, tuple(found), tuple(unknown))
