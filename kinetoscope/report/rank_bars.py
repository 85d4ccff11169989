"""Where each rank's step goes: a bar of its parts for each rank, panels of eight for many ranks, and a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from kinetoscope.html import Cell, Html, bold, details, note, table
from kinetoscope.job.rank_parts import RankParts
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import RanksReport
from kinetoscope.ranks.texts import transfer_name
from kinetoscope.report.rank_drawing import figure, label, members_text, rect, row

ROWS, PANEL, MAX_PANELS = 8, 8, 8
"""Ranks with a row each; of more, ranks of a panel and panels."""
MOST_ROWS = 1000
"""Of the table of all ranks."""
_BAR_PX, _HIDDEN_PX, _LINE_PX, _LINE_GAP_PX = 22, 7, 9, 4
_TABLE_HEAD = (
    "rank", "step", "own work", "hides", "exposed transfer", "exposed waiting", "idle", "launching", "stalled",
)  # fmt: skip
_ADD_UP = (
    "Mean times per step. Hides: own work beside communication. A step lasts from the end of the step before on the "
    "rank's GPU to its own end. Own work, exposed transfer, exposed waiting and idle time add up to it. Launching "
    "and stalled are parts of idle time: the next launch comes late from a thread that works, or no launch is due."
)


def late_ranks(report: RanksReport) -> tuple[int, ...]:
    """All ranks that are late, the most expensive first."""
    return tuple(rank for each in report.stragglers for rank in (each.rank, *each.also_late))


def bars_html(report: RanksReport) -> Html:
    """The bars of all ranks, or of the panels that matter most; then the table."""
    if not report.parts:
        return Html("")
    late = late_ranks(report)
    longest_us = max(part.step_us for part in report.parts) or 1.0
    is_few = len(report.parts) <= ROWS
    drawing = _rows(report, late, longest_us) if is_few else _panels(report.parts, late, longest_us)
    return Html(f"{drawing}{_parts_tables(report, late)}{note(_ADD_UP + _missing(report))}")


def _missing(report: RanksReport) -> str:
    return " Transfer includes waiting for ranks that are not given." if report.missing_ranks else ""


def _by_work(part: RankParts) -> tuple[float, int]:
    return -part.own_us, part.rank


def _rows(report: RanksReport, late: Collection[int], longest_us: float) -> Html:
    """Ranks with a row each, by their sets of ranks that wait for each other."""
    sets = [[part for part in report.parts if part.rank in among] for among in report.components]
    rest = [part for part in report.parts if not any(part.rank in among for among in report.components)]
    groups = [sorted(parts, key=_by_work) for parts in (*sets, rest) if parts]
    rows = []
    for parts in groups:
        if len(groups) > 1:
            rows.append(f'<p class="group">Ranks {members_text(sorted(part.rank for part in parts))}</p>')
        rows += [bar_row(part, late, longest_us, transfer_name(report)) for part in parts]
    apart = " The sets of ranks do not wait for each other." if len(groups) > 1 else ""
    about = f"Each bar is as long as the rank's step, on one scale. A rank that works longest waits least.{apart}"
    about += _missing(report)
    kinds = [
        "own",
        "transfer",
        "waiting",
        "idle",
        *(["hidden"] if any(part.hidden_us for part in report.parts) else []),
    ]
    return figure("One mean step of each rank, most own work first", about, "".join(rows), kinds)


def bar_row(part: RankParts, late: Collection[int], longest_us: float, transfer: str = "transfer") -> str:
    """The parts of a rank's mean step as a bar; `longest_us` takes the whole width, `transfer` names that part."""
    drawn, at = [], 0.0
    for kind, us, name in _pieces(part, transfer):
        width = 100 * us / longest_us
        if us:
            texts = (f"{us_text(us)} {text}" for text in (name, name.partition(" for ")[0]))
            named = next(filter(None, (label(text, kind, at, width) for text in texts)), "")
            drawn += [rect(kind, at, width, 0, _BAR_PX), named]
        at += width
    if part.hidden_us:
        drawn.append(rect("hidden", 0, 100 * part.hidden_us / longest_us, _BAR_PX, _HIDDEN_PX))
    tag = "late" if part.rank in late else ""
    return row(f"rank {part.rank}", "".join(drawn), _described(part, transfer), height=_BAR_PX + _HIDDEN_PX, tag=tag)


def _pieces(part: RankParts, transfer: str = "transfer") -> tuple[tuple[str, float, str], ...]:
    return (
        ("own", part.own_us, "own work"),
        ("transfer", part.transfer_us, transfer),
        ("waiting", part.waiting_us, "waiting"),
        ("idle", part.idle_us, "idle"),
    )


def _described(part: RankParts, transfer: str) -> str:
    listed = ", ".join(f"{us_text(us)} {name}" for _, us, name in _pieces(part, transfer))
    return f"rank {part.rank}: {listed}; {us_text(part.hidden_us)} of communication hidden"


def _panels(parts: Sequence[RankParts], late: Collection[int], longest_us: float) -> Html:
    """Panels of eight ranks, those with late ranks first, then those with the most own work."""
    ordered = sorted(parts, key=lambda part: part.rank)
    panels = [ordered[index : index + PANEL] for index in range(0, len(ordered), PANEL)]
    panels.sort(key=lambda panel: (not any(part.rank in late for part in panel), -max(part.own_us for part in panel)))
    drawn = "".join(_panel(panel, late, longest_us) for panel in panels[:MAX_PANELS])
    left = len(panels) - MAX_PANELS
    more = f" Of {len(panels)} panels, those with late ranks or the most own work are drawn." if left > 0 else ""
    about = (
        "A line for each rank, eight ranks a panel, most own work first; only late ranks have a number. Panels with "
        f"late ranks come first, then those with the most own work.{more}"
    )
    body = f'<div class="panels">{drawn}</div>'
    return figure(f"One mean step of {len(parts):,} ranks", about, body, ["own", "transfer", "waiting", "idle"])


def _panel(parts: Sequence[RankParts], late: Collection[int], longest_us: float) -> str:
    pitch, scale = _LINE_PX + _LINE_GAP_PX, 88 / longest_us
    drawn = []
    for index, part in enumerate(sorted(parts, key=_by_work)):
        at, y = 0.0, index * pitch + 2
        for kind, us, _ in _pieces(part):
            if us:
                drawn.append(rect(kind, at, us * scale, y, _LINE_PX))
            at += us * scale
        if part.rank in late:
            drawn.append(f'<text class="number" x="{at + 1.5:.2f}%" y="{y + 9}">{part.rank}</text>')
    first, last = min(part.rank for part in parts), max(part.rank for part in parts)
    found = [part.rank for part in parts if part.rank in late]
    most = us_text(max(part.own_us for part in parts))
    said = f"late: {', '.join(map(str, found))}" if found else f"{most} own work at most"
    waits = us_text(max(part.waiting_us for part in parts))
    described = f"ranks {first} to {last}: {most} of own work at most, {waits} of waiting at most"
    height = len(parts) * pitch + 2
    svg = f'<svg width="100%" height="{height}" role="img" aria-label="{described}">{"".join(drawn)}</svg>'
    return f"<div{' class=hit' if found else ''}><p><strong>{first} to {last}</strong> {said}</p>{svg}</div>"


def _parts_tables(report: RanksReport, late: Collection[int]) -> Html:
    """All ranks; of many, five and the median, and the others folded."""
    parts = sorted(report.parts, key=_by_work)
    if len(parts) <= ROWS:
        return _table("The parts of each rank's step", [_cells(part, late) for part in parts])
    first = sorted((part for part in parts if part.rank in late), key=_by_work)[:5]
    rest = [part for part in parts if part not in first]
    waits_most = sorted(rest, key=lambda part: (-part.waiting_us, part.rank))
    for candidate in (*rest[:2], *waits_most):
        if len(first) < 5 and candidate not in first:
            first.append(candidate)
    rows = [_cells(part, late) for part in sorted(first, key=_by_work)]
    caption = "Late ranks, the ranks with the most own work and with the most waiting, and the median of all ranks"
    shown = _table(caption, [*rows, _median_cells(parts)])
    all_rows = [_cells(part, late) for part in sorted(parts, key=lambda part: part.rank)[:MOST_ROWS]]
    folded = details(f"All {len(parts):,} ranks", _table("The parts of each rank's step, all ranks", all_rows))
    return Html(f"{shown}{folded}")


def _table(caption: str, rows: Sequence[Sequence[Cell]]) -> Html:
    return table(caption, _TABLE_HEAD, rows, scrolls=True)


def _times(part: RankParts) -> tuple[float, ...]:
    idle = part.idle_us, part.launching_us, part.stalled_us
    return part.step_us, part.own_us, part.hidden_us, part.transfer_us, part.waiting_us, *idle


def _cells(part: RankParts, late: Collection[int]) -> list[Cell]:
    is_late = part.rank in late
    return [bold(f"{part.rank} late" if is_late else str(part.rank), is_late), *map(us_text, _times(part))]


def _median_cells(parts: Sequence[RankParts]) -> list[Cell]:
    return ["median", *(us_text(median(times)) for times in zip(*map(_times, parts), strict=True))]
