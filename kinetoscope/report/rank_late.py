"""Why a rank is late, and what must not be concluded from the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.job.rank_parts import RankParts
from kinetoscope.ranks.late import MIN_EXCESS, Straggler, us_text
from kinetoscope.ranks.ranks import RanksReport, launch_bound
from kinetoscope.ranks.texts import MIN_EXPOSED, straggler_text
from kinetoscope.report.findings import book_page
from kinetoscope.report.rank_bars import late_ranks
from kinetoscope.report.rank_collectives import NAMES
from kinetoscope.report.rank_drawing import members_text
from kinetoscope.trace.units import format_value

MOST_OPERATIONS, MOST_STRAGGLERS = 8, 4
STRAGGLERS = "stragglers"
"""The rule that finds a late rank."""


def late_html(report: RanksReport, book: str = "") -> Html:
    """Each late rank with its kernels beside those of the others, and the section of the book on late ranks, a link if
    `book` is the book's address; empty if no rank is late."""
    late = "".join(_late(each, report) for each in report.stragglers[:MOST_STRAGGLERS])
    return Html(f"{late}<p><strong>In the book</strong> {book_page(STRAGGLERS, book)}</p>" if late else "")


def _late(late: Straggler, report: RanksReport) -> str:
    among = f"Among ranks {members_text(late.among)}: " if len(report.components) > 1 else ""
    also = f" Also late: {', '.join(map(str, late.also_late))}." if late.also_late else ""
    rows: list[list[Cell]] = [
        [
            each.operation,
            f"{each.calls:g}",
            f"{each.others_calls:g}",
            us_text(each.us),
            us_text(each.others_us),
            _signed(each.us - each.others_us),
        ]
        for each in late.operations[:MOST_OPERATIONS]
    ]
    left = late.operations[MOST_OPERATIONS:]
    if left:
        sums = sum(each.us for each in left), sum(each.others_us for each in left)
        rows.append([f"{len(left)} more kinds", None, None, *map(us_text, sums), _signed(sums[0] - sums[1])])
    head = ["kernels", "calls", "others' calls", f"rank {late.rank}", "others", "more"]
    caption = f"Own kernels and copies of rank {late.rank} and the median of the others, per mean step"
    told = note(
        "Sums of the kernels' durations: where kernels of several streams overlap, they exceed the time of own work."
    )
    return f"<p>{escape(among + straggler_text(late) + also)}</p>{table(caption, head, rows, scrolls=True)}{told}"


def _signed(us: float) -> str:
    return f"{'−' if us < 0 else '+' if us > 0 else ''}{us_text(abs(us))}"


def cautions_html(report: RanksReport) -> Html:
    """Wrong conclusions from this job's numbers, each with what is right; empty without any."""
    items = "".join(
        f"<li><strong>“{escape(wrong)}”</strong> {escape(right)}</li>" for wrong, right in _cautions(report)
    )
    return Html(f'<ul class="cautions">{items}</ul>' if items else "")


def _cautions(report: RanksReport) -> Iterable[tuple[str, str]]:
    if not report.parts:
        return
    most = max(report.parts, key=lambda part: part.waiting_us + part.hidden_waiting_us)
    total_us, waiting_us = most.transfer_us + most.hidden_us + most.waiting_us, most.waiting_us + most.hidden_waiting_us
    if waiting_us >= 0.5 * total_us > 0 and waiting_us >= MIN_EXPOSED * most.step_us:
        yield (
            f"Communication takes {us_text(total_us)} on rank {most.rank}: the network is slow.",
            f"{us_text(waiting_us)} of them are waiting for other ranks.",
        )
    if most.hidden_waiting_us >= MIN_EXPOSED * most.step_us:
        yield (
            f"{us_text(waiting_us)} of waiting can be saved.",
            f"{us_text(most.hidden_waiting_us)} of them run beside own work, which costs nothing.",
        )
    late, bound = late_ranks(report), launch_bound(report.parts)
    if bound is not None and bound.rank not in late:
        yield (
            f"Rank {bound.rank} is slow: its GPU waits for launches, {us_text(bound.launching_us)} per step.",
            "The profiler makes each launch longer: measure the step without the profiler first.",
        )
    yield from _about_costliest(report)
    yield from _about_last(report)
    yield from _about_moving(report)


def _about_costliest(report: RanksReport) -> Iterable[tuple[str, str]]:
    if report.shown is None:
        return
    each = report.shown.costliest
    longest_us = max(-call.start_us for call in each.calls)
    if each.exposed_waiting_us >= 0.5 * longest_us and each.exposed_waiting_us >= 5 * each.transfer_us:
        name = NAMES.get(each.operation, each.operation).lower()
        size = f" of {format_value(each.bytes, 'bytes')}" if each.bytes else ""
        yield (
            f"The {name}{size} takes {us_text(longest_us)}.",
            f"Its transfer takes {us_text(each.transfer_us)} at most; the rest is waiting for rank {each.last}.",
        )


def _about_last(report: RanksReport) -> Iterable[tuple[str, str]]:
    """A rank for which others wait, though it is not late: it passes a wait on."""
    late = late_ranks(report)
    parts: dict[int, RankParts] = {part.rank: part for part in report.parts}
    for each in report.waiting:
        last = parts.get(each.last)
        if (
            late
            and last is not None
            and each.last not in late
            and each.exposed_waiting_us >= MIN_EXPOSED * last.step_us
        ):
            yield (
                f"Rank {each.last} is late, too: rank {each.rank} waits {us_text(each.exposed_waiting_us)} for it.",
                f"Rank {each.last} itself waits {us_text(last.waiting_us)} for other ranks, and passes the wait on.",
            )
            return


def _about_moving(report: RanksReport) -> Iterable[tuple[str, str]]:
    late = report.straggler
    if late is None or late.is_shared_out or late.excess_us < max(MIN_EXCESS * late.step_us, late.stalled_us):
        return
    count, late_count = len(late.among), 1 + len(late.also_late)
    shared_us = min(late.saving_us, late.excess_us) * (count - late_count) / count
    yield (
        f"Moving rank {late.rank}'s extra work to the other ranks saves {us_text(late.saving_us)}.",
        f"Only if the work goes away. Shared out evenly over {count} ranks, about {us_text(shared_us)}.",
    )
