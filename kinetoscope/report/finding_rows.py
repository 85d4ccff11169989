"""A finding as a row of a JSON document: its id, severity, ceiling, evidence and events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256

from msgspec import Struct

from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import CannotTell, Confidence, Finding, Severity
from kinetoscope.trace.documents import Unanswered
from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, PythonFunction, Span

_LINE = re.compile(r"\(\d+\)|:\d+")
_KINDS = {CpuOp: "operator", CudaCall: "runtime call", PythonFunction: "Python function"}


class EvidenceRow(Struct, frozen=True):
    """A measured value of a finding."""

    metric: str
    value: float
    unit: str
    """`us`, `bytes`, `%`, or what is counted, in the plural."""


class EventRow(Struct, frozen=True):
    """An event of the trace that shows a finding."""

    name: str
    """Name of the event, as the profiler wrote the name."""
    kind: str
    """`kernel`, `memcpy`, `memset`, `operator`, `annotation`, `runtime call`, `Python function` or `time`."""
    start_us: float
    """Start of the event, counted from the first event of the trace."""
    duration_us: float
    device: int | None = None
    """Index of the GPU; null for events on the CPU."""
    stream: int | None = None
    """Stream of the GPU work; null for events on the CPU."""
    thread: str | None = None
    """`pid/tid` of an event on the CPU; null for GPU work."""


class FindingRow(Struct, frozen=True):
    """A fault that a rule found, the largest ceiling first."""

    id: str
    """Name of the rule, and a digest of the fault's place if the trace has a place. Line numbers do not change the id,
    so the id stays the same between two versions of a program."""
    rule: str
    severity: Severity
    """`high` if `ceiling_share` is at least 0.20, `medium` if `ceiling_share` is at least 0.05, else `low`."""
    title: str
    """The fault, with its measured values."""
    where: str
    """Operator, module, source line or rank with the fault; empty if the trace does not contain the place."""
    ceiling_us_per_step: float
    """The most time that fixing the fault can save in a step; the real saving can be smaller. Ceilings of two findings
    do not add up."""
    ceiling_share: float
    """The ceiling as a share of `mean_step_us`: 0.25 is a quarter of a step. A pause between two steps belongs to the
    step if the fault is in the pause, and so does the time of a fault with `is_once`. At most 1."""
    is_once: bool
    """Whether the fault costs its time only once and not in later steps; `--fail-on` does not count such a fault."""
    evidence_us_per_step: float
    """Time that the events of the fault take in a step."""
    evidence: tuple[EvidenceRow, ...]
    """The measured values."""
    events: tuple[EventRow, ...]
    """At most 100 events that show the fault, the longest first; from the median step if this step has such events."""
    confidence: Confidence
    """`high`: events of the trace are the fault. `medium`: names, shapes or the order of events suggest the fault.
    `low`: a model suggests the fault, or only the traces of all ranks can show the fault."""
    false_positive: str
    """When the finding is no fault."""
    advice: str
    """What to do against the fault."""
    source: str
    """Origin of the rule."""
    page: str
    """The book's section that shows this fault, else the section on the fault's rule. An address if `site` is known,
    else a path within the book."""


def finding_rows(findings: Sequence[Finding], step_us: float, site: str = "") -> tuple[FindingRow, ...]:
    """Findings as rows, in their order; `step_us` is the mean step, and `site` the address of the book, or empty."""
    ids = finding_ids([(each.rule.name, each.where) for each in findings])
    return tuple(_row(finding, ident, step_us, site) for finding, ident in zip(findings, ids, strict=True))


def finding_ids(places: Sequence[tuple[str, str]]) -> list[str]:
    """Ids of findings by rule and place: `sync-in-step:1f0a52c3`; a second finding at one place ends in `-2`."""
    counts: Counter[str] = Counter()
    ids = []
    for rule, where in places:
        place = _LINE.sub("", where)
        ident = f"{rule}:{sha256(place.encode('utf-8', 'replace')).hexdigest()[:8]}" if place else rule
        counts[ident] += 1
        ids.append(f"{ident}-{counts[ident]}" if counts[ident] > 1 else ident)
    return ids


def share_of(us: float, step_us: float) -> float:
    """A time as a share of a step, with four decimals."""
    return round(us / step_us, 4) if step_us else 0.0


def page_of(rule: str, site: str) -> str:
    """The section that shows the fault of a rule, else the section on the rule: below the site, or an address."""
    return f"{site}{PAGES.get(rule, f'your_trace/#rule-{rule}')}"


def _row(finding: Finding, ident: str, step_us: float, site: str) -> FindingRow:
    rule = finding.rule
    return FindingRow(
        id=ident,
        rule=rule.name,
        severity=finding.severity(step_us),
        title=finding.title,
        where=finding.where,
        ceiling_us_per_step=round(finding.saving_us_per_step, 3),
        ceiling_share=share_of(finding.saving_us_per_step, finding.whole_us(step_us)),
        is_once=rule.is_once,
        evidence_us_per_step=round(finding.evidence_us_per_step, 3),
        evidence=tuple(_evidence(finding)),
        events=tuple(map(event_row, finding.evidence)),
        confidence=finding.confidence,
        false_positive=rule.mistaken,
        advice=finding.what_to_do,
        source=rule.source,
        page=page_of(rule.name, site),
    )


def _evidence(finding: Finding) -> Iterator[EvidenceRow]:
    """The values that the rule measured, and the longest of the events."""
    yield from (EvidenceRow(each.metric, round(float(each.value), 3), each.unit) for each in finding.measured)
    if finding.evidence:
        yield EvidenceRow("longest event", round(max(each.duration_us for each in finding.evidence), 3), "us")


def event_row(event: Span) -> EventRow:
    """An event as a row."""
    times = round(event.start_us, 3), round(event.duration_us, 3)
    if isinstance(event, GpuActivity):
        return EventRow(event.name, event.kind, *times, event.device, event.stream)
    return EventRow(event.name, event_kind(event), *times, thread=getattr(event, "thread", None))


def event_kind(event: Span) -> str:
    """`kernel`, `operator`, `runtime call`; `time` for a stretch of no other kind."""
    if isinstance(event, GpuActivity):
        return event.kind
    return "annotation" if isinstance(event, CpuOp) and event.is_annotation else _KINDS.get(type(event), "time")


def unanswered_row(unknown: CannotTell) -> Unanswered:
    """A rule that lacks data, as a row."""
    return Unanswered(unknown.rule.name, unknown.reason, unknown.option)
