"""The findings of each rank's own trace, merged: those of all ranks once, the others with their ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain

from msgspec import structs

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rule import SEVERITIES, Finding, Rule, Severity, severity_of
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.html import Cell, Html, note, table, with_code
from kinetoscope.job.rank_parts import RankParts
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import RanksReport, launch_bound
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.finding_rows import FindingRow, finding_rows
from kinetoscope.report.findings import MOST_EVIDENCE, badge, book_page
from kinetoscope.report.rank_drawing import members_text, range_text
from kinetoscope.trace.events import Trace
from kinetoscope.trace.totals import summarize

Findings = Mapping[int, Sequence["RankFinding"]]
"""Rank -> the findings of its trace; ranks that are given as digests are missing."""
COMMUNICATION = "exposed-communication"
MOSTLY_WAITING = 0.5
"""Collectives mostly wait if this share of their exposed time is waiting for other ranks."""
LAUNCHING_EXPLAINS = 0.8
"""Waiting for a rank is explained by its launches if they delay its GPU by this share of the waiting."""
_WITHOUT_TRACES = (
    "Each rank's own findings need its trace, and this report has digests. Give the traces themselves, or report one "
    "rank's trace alone."
)


@dataclass(frozen=True)
class RankFinding:
    """A finding of one rank's trace, without the trace: `row` has its longest events."""

    rank: int
    rule: Rule
    title: str
    where: str
    advice: str
    severity: Severity
    saving_us: float
    """The most that a step gets shorter by mending it."""
    row: FindingRow
    """As it is in the JSON of a report on this trace alone."""


def rank_findings(trace: Trace, rank: int, rules: Sequence[Rule] = RULES) -> list[RankFinding]:
    """The findings of a rank's trace, the largest first."""
    diagnosed = DiagnosedTrace("", diagnose(trace, rules), summarize(trace))
    every = diagnosed.diagnosis.findings
    found = [replace(each, evidence=each.evidence[:MOST_EVIDENCE], doubt="") for each in every]
    rows = finding_rows(found, diagnosed.mean_step_us)
    return [_of_rank(finding, rank, row) for finding, row in zip(found, rows, strict=True)]


def _of_rank(finding: Finding, rank: int, row: FindingRow) -> RankFinding:
    saving_us = finding.saving_us_per_step
    return RankFinding(rank, finding.rule, finding.title, finding.where, row.advice, row.severity, saving_us, row)


def beside_waiting(findings: Findings, report: RanksReport) -> Findings:
    """The findings, but collectives that mostly wait for other ranks have the severity of their transfer alone."""
    parts = {part.rank: part for part in report.parts}
    late = {rank: each.rank for each in reversed(report.stragglers) for rank in each.among}
    waits_for = {
        rank: _late_text(late[rank]) if rank in late else _waited_text(rank, parts[rank], report) for rank in parts
    }
    return {
        rank: [_beside_waiting(each, parts.get(rank), waits_for.get(rank, "")) for each in found]
        for rank, found in findings.items()
    }


def _late_text(late: int) -> str:
    return f"Most of it is waiting: fix rank {late} first."


def _waited_text(rank: int, part: RankParts, report: RanksReport) -> str:
    """For whom a rank waits, though no rank is late: for the rank whose GPU waits for launches, or for several."""
    bound = launch_bound(report.parts)
    if bound is not None:
        waits = [each for each in report.waiting if (each.rank, each.last) == (rank, bound.rank)]
        waited_us = sum(each.exposed_waiting_us for each in waits)
        if waited_us > MOSTLY_WAITING * part.waiting_us and bound.launching_us >= LAUNCHING_EXPLAINS * waited_us:
            return f"Most of it is waiting for rank {bound.rank}, whose GPU waits for launches."
    return "Most of it is waiting for other ranks."


def _beside_waiting(found: RankFinding, part: RankParts | None, waits_for: str) -> RankFinding:
    if found.rule.name != COMMUNICATION or part is None or part.waiting_us < MOSTLY_WAITING * found.saving_us:
        return found
    severity = severity_of(max(0.0, found.saving_us - part.waiting_us), part.step_us)
    advice = f"{waits_for} {found.advice}"
    return replace(
        found, severity=severity, advice=advice, row=structs.replace(found.row, severity=severity, advice=advice)
    )


@dataclass(frozen=True)
class MergedFinding:
    """The findings of one rule on several ranks, in the order of the ranks; of a rank, the largest."""

    findings: tuple[RankFinding, ...]

    @property
    def largest(self) -> RankFinding:
        """The finding of the rank that it costs most."""
        return max(self.findings, key=lambda each: (each.saving_us, -each.rank))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have it."""
        return tuple(each.rank for each in self.findings)


def merged(findings: Findings) -> list[MergedFinding]:
    """The findings of all ranks by rule, the most severe first, of one severity the largest saving."""
    by_rule: dict[str, dict[int, RankFinding]] = defaultdict(dict)
    for each in chain.from_iterable(findings.values()):
        known = by_rule[each.rule.name].get(each.rank)
        if known is None or each.saving_us > known.saving_us:
            by_rule[each.rule.name][each.rank] = each
    united = [MergedFinding(tuple(found[rank] for rank in sorted(found))) for found in by_rule.values()]
    return sorted(united, key=_order)


def _order(found: MergedFinding) -> tuple[int, float, str]:
    """Waiting for others counts for the saving, but not for the severity: what they wait for comes first."""
    largest = found.largest
    return -SEVERITIES.index(largest.severity), -largest.saving_us, largest.rule.name


def rank_findings_html(findings: Findings, report: RanksReport, book: str = "") -> Html:
    """The findings that only some of the traced ranks have, then those of all, with links if `book` is an address."""
    if not findings:
        return note(_WITHOUT_TRACES)
    ranks = len(report.ranks)
    missing = ranks - len(findings)
    left_out = note(
        f"{missing:,} of {ranks:,} ranks are given as digests: their findings are not known." if missing else ""
    )
    united = merged(findings)
    if not united:
        text = '<p class="nothing"><strong>No finding.</strong> No rule found a fault in the trace of any rank.</p>'
        return Html(f"{text}{left_out}")
    shared = [each for each in united if len(each.ranks) == len(findings)]
    others = [each for each in united if len(each.ranks) < len(findings)]
    waiting = {part.rank: part.waiting_us for part in report.parts}
    tables = "".join(
        _table(caption, [_row(each, waiting, book) for each in found])
        for caption, found in (("Findings of some ranks only", others), ("Findings of every rank", shared))
    )
    promise = note(
        "Of each rank's trace alone, as its own report shows it. One trace cannot tell transfer from waiting for "
        "another rank. A ceiling is the most that this rank's step can get shorter, never a promise: the job gets "
        "faster only if the rank does for which the others wait. Findings can be about the same time: do not add them."
    )
    return Html(f"{tables}{promise}{left_out}")


def _table(caption: str, rows: Sequence[Sequence[Cell]]) -> str:
    if not rows:
        return ""
    head = ["severity", "finding", "ranks", "a fix saves at most, per step"]
    return table(caption, head, rows, text_columns=3, scrolls=True)


def _row(found: MergedFinding, waiting_us: Mapping[int, float], book: str) -> list[Cell]:
    each = found.largest
    where = f" {escape(each.where)}." if each.where else ""
    on = f"On rank {each.rank}: " if len(found.findings) > 1 and each.title != each.rule.title else ""
    waits = ""
    if each.rule.name == COMMUNICATION and (us := waiting_us.get(each.rank)):
        waits = f"<small>Of it, rank {each.rank} waits {us_text(us)} for other ranks.</small>"
    page = book_page(each.rule.name, book)
    page = f"<small>In the book: {page}</small>" if page else ""
    told = f"{on}{escape(each.title)}{waits}<small>{with_code(each.advice)}{where}</small>{page}"
    return [
        badge(each.severity),
        Html(told),
        members_text(found.ranks),
        range_text([one.saving_us for one in found.findings]),
    ]
