"""The diagnosis: findings, the largest saving first, with their evidence; questions that the trace cannot answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import Finding, Severity
from kinetoscope.diagnosis.symptoms import symptom_of
from kinetoscope.html import Cell, Html, code, details, table, with_code
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.finding_rows import event_kind
from kinetoscope.report.headline import cpu_alone
from kinetoscope.report.idle_text import unexplained_idle
from kinetoscope.report.timeline import span_key
from kinetoscope.report.work_tables import name_cell
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.units import format_value

MOST_EVIDENCE = 8
"""Events shown of a finding, the longest first."""
MOST_TITLES = 6
"""Titles of rules that cannot tell for the same reason; more are folded."""
_NO_FAULT = "No rule found a fault that this trace can show. The kernels with the most time are where the next gain is."
_SIGNS: Mapping[Severity, str] = {"high": "▲▲▲", "medium": "▲▲", "low": "▲"}
_ADDRESS = re.compile(r"https?://[^\s<>\"')]+[^\s<>\"').,;:]")

Anchors = Mapping[tuple[str, str, float, float], str]


def evidence_anchors(findings: Sequence[Finding]) -> dict[tuple[str, str, float, float], str]:
    """`span_key` of each event shown as evidence -> an id on the page."""
    keys = dict.fromkeys(span_key(event) for finding in findings for event in finding.evidence[:MOST_EVIDENCE])
    return {key: f"event-{index}" for index, key in enumerate(keys, 1)}


def findings_html(diagnosed: DiagnosedTrace, anchors: Anchors, drawn: frozenset[str]) -> Html:
    """All findings; `drawn` has the ids in the timeline."""
    found = diagnosed.diagnosis.findings
    if not found:
        text = unexplained_idle(diagnosed) or cpu_alone(diagnosed) or _NO_FAULT
        text += " What this trace cannot show is listed below." if diagnosed.diagnosis.cannot_tell else ""
        return Html(f'<p class="nothing"><strong>No finding.</strong> {escape(text)}</p>')
    step_us = diagnosed.mean_step_us
    articles = [_article(index, finding, diagnosed, anchors, drawn) for index, finding in enumerate(found, 1)]
    rows: list[list[Cell]] = [
        [
            badge(finding.severity(step_us)),
            Html(f'<a href="#finding-{index}">{escape(finding.title)}</a>'),
            format_value(finding.saving_us_per_step, "us"),
            _share(finding, step_us),
        ]
        for index, finding in enumerate(found, 1)
    ]
    head = ["severity", "finding", "a fix saves at most, per step", "of a step"]
    overview = table("Findings, the largest first", head, rows, text_columns=2) if len(found) > 3 else ""
    promise = (
        "A ceiling is the most that a step can get shorter by fixing one finding: never a promise. "
        "Findings can be about the same time, so their ceilings do not add up."
    )
    return Html(f"{overview}{''.join(articles)}<p class='lab-note'>{escape(promise)}</p>")


def _share(finding: Finding, step_us: float) -> str:
    whole_us = finding.whole_us(step_us)
    percent = 100 * finding.saving_us_per_step / whole_us if whole_us else 0.0
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %"


def badge(severity: Severity) -> Html:
    """A severity as a label."""
    return Html(
        f'<span class="severity {severity}"><span aria-hidden="true">{_SIGNS[severity]}</span> {severity}</span>'
    )


def _article(index: int, finding: Finding, diagnosed: DiagnosedTrace, anchors: Anchors, drawn: frozenset[str]) -> str:
    rule, step_us = finding.rule, diagnosed.mean_step_us
    saving, evidence = finding.saving_us_per_step, finding.evidence_us_per_step
    width = min(100.0, 100 * saving / whole_us) if (whole_us := finding.whole_us(step_us)) else 0.0
    bar = (
        f'<svg class="ceiling" width="100%" height="8" aria-hidden="true"><rect width="{width:.2f}%" height="8"/></svg>'
    )
    saves = format_value(saving, "us")
    of_step = f"{_share(finding, step_us)} of {'a step and the pause after it' if finding.beside_us else 'it'}"
    if rule.is_once:
        of_step = "in the mean of this trace's steps; later steps gain nothing"
    terms = {
        "Saves at most": f"<strong>{saves}</strong> per step, {of_step}{bar}",
        "Evidence": f"{format_value(evidence, 'us')} per step",
        "Where": escape(finding.where) if finding.where else "",
        "What to do": with_code(finding.what_to_do),
    }
    listed = "".join(f"<dt>{term}</dt><dd>{value}</dd>" for term, value in terms.items() if value)
    events = _evidence(index, finding, diagnosed.facts.step, anchors, drawn)
    severity = finding.severity(step_us)
    return (
        f'<article class="finding {severity}" id="finding-{index}" aria-labelledby="title-{index}">'
        f'<h3 id="title-{index}">{badge(severity)} {escape(finding.title)}</h3><dl>{listed}</dl>'
        f"{events}{_why(finding, diagnosed)}</article>"
    )


def _why(finding: Finding, diagnosed: DiagnosedTrace) -> str:
    rule, book = finding.rule, diagnosed.book
    where, symptom = book_page(rule.name, book), symptom_html(rule.name, book)
    if not diagnosed.has_gpu:
        symptom = ""  # the tree begins with what the GPU shows
    lines = [
        f"<p>{with_code(rule.looks_for)}</p>",
        f"<p><strong>What you see</strong> {symptom}</p>" if symptom else "",
        f"<p><strong>Condition</strong> {with_code(rule.threshold)}</p>",
        f"<p><strong>When it is no fault</strong> {with_code(rule.mistaken)}</p>" if rule.mistaken else "",
        f"<p><strong>Source of the rule</strong> {with_links(rule.source)}</p>",
        f"<p><strong>In the book</strong> {where}</p>" if where else "",
        f"<p><strong>Name</strong> <code>{escape(rule.name)}</code></p>",
    ]
    return details("Why this is reported", "".join(lines))


def symptom_html(rule_name: str, book: str) -> str:
    """The leaf of the symptom tree for a rule, a link if `book` is the book's address; empty if there is no leaf."""
    found = symptom_of(rule_name)
    if found is None:
        return ""
    branch, symptom = found
    text = escape(f"{branch.title}: {symptom.title}")
    return f'<a href="{escape(book)}#see-{symptom.name}">{text}</a>' if book else text


def book_page(rule_name: str, book: str) -> str:
    """The page that shows the fault of a rule, a link if `book` is the book's address; empty if there is no page."""
    address = escape(PAGES.get(rule_name, ""))
    name = f"<code>{address}</code>" if address else ""
    return f'<a href="{escape(book)}{address}">{name}</a>' if name and book else name


def with_links(text: str) -> str:
    """Text as HTML, with addresses as links."""
    parts, at = [], 0
    for match in _ADDRESS.finditer(text):
        address = escape(match[0])
        parts += [escape(text[at : match.start()]), f'<a href="{address}" rel="noreferrer">{address}</a>']
        at = match.end()
    return "".join([*parts, escape(text[at:])])


def _evidence(index: int, finding: Finding, step: Step, anchors: Anchors, drawn: frozenset[str]) -> str:
    if not finding.evidence:
        return ""
    rows = []
    for event in finding.evidence[:MOST_EVIDENCE]:
        anchor = anchors[span_key(event)]
        name = name_cell(event.name) if isinstance(event, GpuActivity) else code(event.name)
        link: Cell = Html(f'<a href="#{anchor}">show</a>') if anchor in drawn else None
        lasts = format_value(event.duration_us, "us")
        rows.append(
            [name, event_kind(event), link, lasts, _time(event.start_us - step.start_us), _time(event.start_us)]
        )
    total = len(finding.evidence)
    caption = f"Finding {index}: " + (f"the longest {len(rows)} of {total:,} events" if total > len(rows) else "events")
    head = ["event", "kind", "timeline", "lasts", "in the median step at", "in the trace at"]
    return details(f"Evidence: {total:,} event{'s' if total > 1 else ''}", table(caption, head, rows, text_columns=3))


def _time(us: float) -> str:
    return f"{us / 1000:,.3f} ms"


def unknown_html(diagnosed: DiagnosedTrace) -> Html:
    """Questions that the trace cannot answer, once for each reason, with the option that records it; empty without
    any."""
    unknown = diagnosed.diagnosis.cannot_tell
    if not unknown:
        return Html("")
    titles: dict[tuple[str, str], list[str]] = {}
    for each in unknown:
        titles.setdefault((each.reason, each.option), []).append(each.rule.title)
    items = "".join(
        f"<li>{_rules(names)}<span>{escape(reason)}</span>{_option(option)}</li>"
        for (reason, option), names in titles.items()
    )
    return Html(f'<ul class="unknown">{items}</ul>')


def _rules(titles: Sequence[str]) -> str:
    """The titles of rules; many are counted, and listed on demand."""
    if len(titles) <= MOST_TITLES:
        return f"<span>{', '.join(f'<strong>{escape(title)}</strong>' for title in titles)}</span>"
    listed = "".join(f"<li>{escape(title)}</li>" for title in titles)
    return f"<details><summary><strong>{len(titles)} rules</strong></summary><ul>{listed}</ul></details>"


def _option(option: str) -> str:
    return f"<code>{escape(option)}</code>" if option else "<small>no option records it</small>"
