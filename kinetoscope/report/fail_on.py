"""The exit code of `report --fail-on`."""

from __future__ import annotations

from kinetoscope.diagnosis.rule import SEVERITIES, Severity
from kinetoscope.exit_codes import DAMAGED, NO, OK
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.several import MultiReport
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.soundness import is_whole


def exit_code(report: MultiReport | DiagnosedTrace, severity: Severity) -> int:
    """1 if a finding has this severity or a higher one and fixing it shortens later steps; 3 if a file is damaged.

    Raises `TraceError` if two traces are compared, or if a digest has no findings.
    """
    if isinstance(report, MultiReport):
        if report.severities is None:
            raise TraceError(
                "--fail-on needs findings: give one trace, or the traces of all ranks and no digest; to compare two "
                "traces use diff --gate PERCENT"
            )
        found, is_sound = report.severities, report.is_whole
    else:
        step_us, findings = report.mean_step_us, report.diagnosis.findings
        found = frozenset(finding.severity(step_us) for finding in findings if not finding.rule.is_once)
        is_sound = is_whole(report.trace)
    if not is_sound:
        return DAMAGED
    failing = SEVERITIES[SEVERITIES.index(severity) :]
    return NO if found.intersection(failing) else OK
