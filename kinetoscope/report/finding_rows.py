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
    """As the profiler wrote it."""
    kind: str
    """`kernel`, `memcpy`, `memset`, `operator`, `annotation`, `runtime call`, `Python function` or `time`."""
    start_us: float
    """Since the first event of the trace."""
    duration_us: float
    device: int | None = None
    """GPU, of work on a GPU."""
    stream: int | None = None
    """Stream, of work on a GPU."""
    thread: str | None = None
    """`pid/tid`, of events on the CPU."""


class FindingRow(Struct, frozen=True):
    """A fault that a rule found, the largest ceiling first."""

    id: str
    """The rule, and a digest of the place if there is one: equal for one fault in traces of two versions of a program,
    since numbers of lines do not count."""
    rule: str
    severity: Severity
    """By `ceiling_share`: `high` from 0.20 on, `medium` from 0.05 on, else `low`."""
    title: str
    """The fault with its measured values."""
    where: str
    """Operator, module, source line or rank; empty if the trace does not tell."""
    ceiling_us_per_step: float
    """The most that a step can get shorter by mending it. Never a promise; ceilings of two findings do not add up."""
    ceiling_share: float
    """Of `mean_step_us`: 0.25 is a quarter of a step."""
    is_once: bool
    """Whether it costs its time once, so that later steps gain nothing; `--fail-on` does not count it."""
    evidence_us_per_step: float
    """Time that the events take in a step."""
    evidence: tuple[EvidenceRow, ...]
    """The measured values."""
    events: tuple[EventRow, ...]
    """Events that show it, the longest first: at most 100, of the median step where it has them."""
    confidence: Confidence
    """`high`: events of the trace are the fault; `medium`: names, shapes or order tell it; `low`: a model tells it, or
    only the traces of all ranks do."""
    false_positive: str
    """When it is no fault."""
    advice: str
    """What to do."""
    source: str
    """Origin of the rule."""
    page: str
    """The section that shows this fault, else the section on its rule: an address if `site` is known, else a path below
    the site."""


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
        ceiling_share=share_of(finding.saving_us_per_step, step_us),
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
