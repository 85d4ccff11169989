"""Ranks of one job as a report: its lead, its parts, and its small print."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from statistics import median

from kinetoscope.html import Html, Part, note
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import METHOD, RanksReport
from kinetoscope.ranks.texts import exposed_transfer_us, transfer_name
from kinetoscope.report.rank_bars import bars_html, late_ranks
from kinetoscope.report.rank_collectives import collectives_html, noun
from kinetoscope.report.rank_drawing import PATTERNS
from kinetoscope.report.rank_findings import Findings, rank_findings_html
from kinetoscope.report.rank_lanes import waits_html
from kinetoscope.report.rank_late import cautions_html, late_html
from kinetoscope.report.rank_tables import kernels_html, sums_html


def ranks_kicker(report: RanksReport) -> str:
    """`2 × NVIDIA H200 · 3 steps`, in plain text."""
    devices = sorted({rank.device for rank in report.ranks if rank.device})
    steps = sorted({rank.steps for rank in report.ranks})
    count = f"{len(report.ranks):,} × {devices[0]}" if len(devices) == 1 else f"{len(report.ranks):,} ranks"
    listed = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    return f"{count} · {listed} step{'' if steps == [1] else 's'}"


def ranks_lead(report: RanksReport) -> Html:
    """Four measures below the headline, and the patterns that all figures use."""
    if not report.parts:
        return PATTERNS
    items = "".join(
        f'<li><span class="name">{name}</span><strong>{value}</strong><small>{line}</small></li>'
        for name, value, line in _tiles(report)
    )
    return Html(f'<ul class="tiles">{items}</ul>{PATTERNS}')


def _tiles(report: RanksReport) -> Iterable[tuple[str, str, str]]:
    """Four measures, each with a line of explanation."""
    parts, late = report.parts, report.straggler
    counts = ((report.compared, "collective"), (report.compared_pairs, "send"))
    compared = " and ".join(f"{each:,} {name}{'' if each == 1 else 's'}" for each, name in counts if each)
    yield "time of a step", us_text(median(part.step_us for part in parts)), "mean of the steps; median of the ranks"
    if late is None:
        is_known = compared and not report.missing_ranks
        missing = f"; missing ranks: {report.missing_ranks:,}" if report.missing_ranks else ""
        yield "late rank", "none" if is_known else "unknown", f"{compared or 'no collectives'} compared{missing}"
    else:
        last_at = next(rank.last_at for rank in report.ranks if rank.rank == late.rank)
        saving = f"on time, a step would be {us_text(late.saving_us)} shorter"
        ranks = late_ranks(report)
        name, value = (
            "late ranks" if len(ranks) > 1 else "late rank",
            ", ".join(map(str, ranks[:4])) + " …" * (len(ranks) > 4),
        )
        yield name, value, f"rank {late.rank}: last at {last_at:,} of {compared}; {saving}"
    most, least = (choose(parts, key=lambda part: part.waiting_us) for choose in (max, min))
    on = f"per step on rank {most.rank}, the most; {us_text(least.waiting_us)} on rank {least.rank}"
    yield "exposed waiting", us_text(most.waiting_us), on
    if report.pipeline is None:
        name = f"exposed {transfer_name(report)}"
        yield name, us_text(exposed_transfer_us(report)), "per step; median of the ranks"
    else:
        share = f"{100 * report.pipeline.bubble_share:.0f} %"
        yield "bubble", share, f"of the steps of {len(report.pipeline.stages)} stages"


def ranks_report_parts(report: RanksReport, findings: Findings, book: str = "") -> tuple[Part, ...]:
    """The sections of `report RANK0 RANK1 ...`; `book` is the book's address, or empty."""
    late = late_ranks(report)
    why = f"Why rank {late[0]} is late" if len(report.stragglers) == 1 else "Why ranks are late"
    costliest = f"The {'collective' if report.shown is None else noun([report.shown.costliest])} that costs most"
    parts = (
        Part("Where each rank's step goes", bars_html(report)),
        Part(costliest, collectives_html(report)),
        Part("Who waits for whom", waits_html(report)),
        Part(why, late_html(report, book)),
        Part("What not to conclude", cautions_html(report)),
        Part("Each rank's findings", rank_findings_html(findings, report, book)),
        Part("The sums of every rank", sums_html(report)),
        Part("Kernels of all ranks", kernels_html(report.digest)),
        Part("Method and limits", _method_html(report)),
    )
    return tuple(part for part in parts if part.html)


def _method_html(report: RanksReport) -> Html:
    notes = filter(None, (report.different_runs, *report.notes))
    limits = "".join(f"<li>{escape(text)}</li>" for text in notes)
    listed = f'<ul class="notes">{limits}</ul>' if limits else ""
    return Html(f"{listed}{note(METHOD)}")
