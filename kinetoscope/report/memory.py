"""Allocated memory over time, and what is allocated at the peak, if the trace has it (`profile_memory=True`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from kinetoscope.diagnosis.memory import CATEGORIES, MemoryPeak, memory_levels
from kinetoscope.html import Cell, Html, code, details, note, table
from kinetoscope.report.places import short_line
from kinetoscope.report.work_tables import MOST_FIRST, MOST_MORE, share_cell
from kinetoscope.trace.events import MemoryEvent, Trace
from kinetoscope.trace.units import format_value

BEFORE = "blocks from before the trace"
_POINTS = 400
_WIDTH, _HEIGHT = 400, 100
"""Units of the drawing; it is stretched to the page's width."""


def memory_html(trace: Trace, peaks: Sequence[MemoryPeak]) -> Html:
    """A curve and a row for each device, and the blocks at the first peak; empty if nothing was recorded."""
    by_device: dict[int, list[MemoryEvent]] = defaultdict(list)
    for event in trace.memory:
        by_device[event.device].append(event)
    rows, curves = [], []
    for device, events in sorted(by_device.items(), key=lambda item: (item[0] < 0, item[0])):
        name = "CPU" if device < 0 else f"GPU {device}"
        levels = memory_levels(events)
        peak, at = max((level, -at) for at, level in levels)
        reserved = [event.total_reserved for event in events if event.total_reserved is not None]
        churn = sum(event.bytes for event in events if event.bytes > 0)
        rows.append(
            [
                name,
                format_value(peak, "bytes"),
                format_value(-at, "us"),
                format_value(max(reserved), "bytes") if reserved else None,
                f"{len(events):,}",
                format_value(churn, "bytes"),
            ]
        )
        if device >= 0 or len(by_device) == 1:
            curves.append(_curve(name, levels, peak))
    if not rows:
        return Html("")
    head = ["device", "peak allocated", "at", "peak reserved", "events", "allocated in total"]
    text = "Times are since the start of the trace. Without totals in the trace, levels count from its start."
    if any(peak.device < 0 for peak in peaks):
        text += " On the CPU, PyTorch counts what it allocates from the profiler's start on."
    lead = nearly_full(peaks)
    html = f"<p>{escape(lead)}</p>" if lead else ""
    html += "".join(curves) + table("Memory by device", head, rows) + note(text)
    return Html(html + (_alive_html(peaks[0]) if peaks[0].alive else ""))


def nearly_full(peaks: Sequence[MemoryPeak]) -> str:
    """A sentence on the fullest GPU that has hardly any memory left; empty if there is none."""
    full = [peak for peak in peaks if peak.is_near]
    if not full:
        return ""
    peak = max(full, key=lambda each: each.held_bytes / (each.total_bytes or 1))
    held, total = (format_value(each, "bytes") for each in (peak.held_bytes, peak.total_bytes or 0))
    return f"The memory of {peak.name} is nearly full: PyTorch holds {held} of {total}{_most(peak)}."


def _most(peak: MemoryPeak) -> str:
    """The largest part of what is allocated at the peak."""
    parts = {f"kind {category}": size for category, size in peak.by_category.items()}
    if peak.before_bytes is not None:
        parts[BEFORE] = peak.before_bytes
    if not parts:
        return ""
    name = max(parts, key=lambda part: parts[part])
    return f"; the largest part of the peak, {100 * parts[name] / peak.peak_bytes:.0f} %, is of {name}"


def _alive_html(peak: MemoryPeak) -> str:
    rows: list[list[Cell]] = [
        [
            code(each.op, 40) if each.op else "outside operators",
            code(short_line(each.where), 70) if each.where else None,
            each.category,
            format_value(each.bytes, "bytes"),
            share_cell(each.bytes / peak.peak_bytes),
            f"{each.blocks:,}",
        ]
        for each in peak.alive
    ]
    if peak.before_bytes is not None:
        share = share_cell(peak.before_bytes / peak.peak_bytes)
        rows.insert(0, [BEFORE, None, "unknown", format_value(peak.before_bytes, "bytes"), share, None])
    head = ["allocated by", "at", "kind", "bytes", "of the peak", "blocks"]
    caption = f"{peak.name}: what is allocated at the peak"
    html = table(caption, head, rows[:MOST_FIRST], text_columns=3)
    more = rows[MOST_FIRST : MOST_FIRST + MOST_MORE]
    if more:
        html = Html(html + details(f"{len(more)} more", table(f"{caption}: more", head, more, text_columns=3)))
    shown = set(peak.by_category)
    kinds = "; ".join(f"{category}: {meaning}" for category, meaning in CATEGORIES.items() if category in shown)
    text = f"Kinds are told from when a block is allocated and released. {kinds[:1].upper()}{kinds[1:]}."
    return html + note(text)


def _curve(name: str, levels: Sequence[tuple[float, int]], peak: int) -> str:
    """The level over time as an area; of many points, the highest in each of `_POINTS` intervals."""
    begin, end = levels[0][0], levels[-1][0]
    span, top = end - begin or 1.0, max(peak, 1)
    highest: dict[int, int] = {}
    for at, level in levels:
        slot = int((at - begin) / span * _POINTS)
        highest[slot] = max(highest.get(slot, level), level)
    path, last = [f"M0 {_HEIGHT}"], 0
    for slot, level in sorted(highest.items()):
        x, y = slot * _WIDTH / _POINTS, _HEIGHT - max(0, level) / top * (_HEIGHT - 4)
        path.append(f"L{x:g} {_HEIGHT - max(0, last) / top * (_HEIGHT - 4):.1f}L{x:g} {y:.1f}")
        last = level
    path.append(f"L{_WIDTH} {_HEIGHT}Z")
    label = f"{name}: allocated memory, peak {format_value(peak, 'bytes')}"
    return (
        f'<figure class="memory"><figcaption>{escape(label)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" width="100%" height="110" role="img" '
        f'aria-label="{escape(label)}"><path d="{"".join(path)}"/></svg>'
        f'<p class="ends"><span>{format_value(begin, "us")}</span><span>{format_value(end, "us")}</span></p></figure>'
    )
