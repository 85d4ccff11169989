"""Ranks of one job as a report: its lead, its parts, and its small print."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from kinetoscope.html import Html, Part, note
from kinetoscope.ranks.ranks import METHOD, RanksReport
from kinetoscope.ranks.texts import exposed_transfer_us, straggler_text
from kinetoscope.report.rank_bars import bars_html, late_ranks
from kinetoscope.report.rank_collectives import collectives_html
from kinetoscope.report.rank_drawing import PATTERNS, us_text
from kinetoscope.report.rank_findings import Findings, rank_findings_html
from kinetoscope.report.rank_lanes import waits_html
from kinetoscope.report.rank_late import cautions_html, late_html
from kinetoscope.report.rank_tables import kernels_html, sums_html


def ranks_kicker(report: RanksReport) -> str:
    """`2 × NVIDIA H200 · 3 steps`, in plain text."""
    devices = sorted({rank.device for rank in report.ranks if rank.device})
    steps = sorted({rank.steps for rank in report.ranks})
    count = f"{len(report.ranks)} × {devices[0]}" if len(devices) == 1 else f"{len(report.ranks)} ranks"
    listed = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    return f"{count} · {listed} step{'' if steps == [1] else 's'}"


def ranks_lead(report: RanksReport) -> Html:
    """What the headline leaves out, and the patterns that all figures use."""
    lines = [f"<p>{escape(line)}</p>" for line in _lead(report)]
    return Html(f'<div class="lead">{"".join(lines)}</div>{PATTERNS}')


def _lead(report: RanksReport) -> Iterable[str]:
    if report.straggler is not None:
        yield straggler_text(report.straggler)
    if not report.parts:
        return
    waiting = sorted(part.waiting_us for part in report.parts)
    transfer_us = us_text(exposed_transfer_us(report))
    yield (
        f"Exposed waiting: {us_text(waiting[0])} to {us_text(waiting[-1])} per step, by rank. Exposed transfer: "
        f"{transfer_us}, in the median of the ranks."
    )


def ranks_report_parts(report: RanksReport, findings: Findings) -> tuple[Part, ...]:
    """The sections of `report RANK0 RANK1 ...`."""
    late = late_ranks(report)
    why = f"Why rank {late[0]} is late" if len(report.stragglers) == 1 else "Why ranks are late"
    parts = (
        Part("Where each rank's step goes", bars_html(report)),
        Part("The collective that costs most", collectives_html(report)),
        Part("Who waits for whom", waits_html(report)),
        Part(why, late_html(report)),
        Part("What not to conclude", cautions_html(report)),
        Part("Each rank's findings", rank_findings_html(findings, len(report.ranks))),
        Part("The sums of every rank", sums_html(report)),
        Part("Kernels of all ranks", kernels_html(report.digest)),
        Part("Method and limits", _method_html(report)),
    )
    return tuple(part for part in parts if part.html)


def _method_html(report: RanksReport) -> Html:
    limits = "".join(f"<li>{escape(text)}</li>" for text in report.notes)
    listed = f'<ul class="notes">{limits}</ul>' if limits else ""
    return Html(f"{listed}{note(METHOD)}")
