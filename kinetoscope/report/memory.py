"""Allocated memory over time, if the trace has it (`profile_memory=True`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from kinetoscope.html import Html, note, table
from kinetoscope.trace.events import MemoryEvent, Trace
from kinetoscope.trace.units import format_value

_POINTS = 400
_WIDTH, _HEIGHT = 400, 100
"""Units of the drawing; it is stretched to the page's width."""


def memory_html(trace: Trace) -> Html:
    """A curve and a row for each device; empty if nothing was recorded."""
    by_device: dict[int, list[MemoryEvent]] = defaultdict(list)
    for event in trace.memory:
        by_device[event.device].append(event)
    rows, curves = [], []
    for device, events in sorted(by_device.items(), key=lambda item: (item[0] < 0, item[0])):
        name = "CPU" if device < 0 else f"GPU {device}"
        levels = _levels(events)
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
    return Html("".join(curves) + table("Memory by device", head, rows) + note(text))


def _levels(events: Sequence[MemoryEvent]) -> list[tuple[float, int]]:
    """Time and bytes allocated after each event."""
    levels, level = [], 0
    for event in events:
        level = level + event.bytes if event.total_allocated is None else event.total_allocated
        levels.append((event.at_us, level))
    return levels


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
