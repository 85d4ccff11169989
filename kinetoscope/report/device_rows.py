"""Tables of what some profilers record beside the GPU's work: waits for streams, and counters."""

from __future__ import annotations

from kinetoscope.html import Cell, Html, code, note, table
from kinetoscope.trace.device_rows import CounterSummary, WaitSummary
from kinetoscope.trace.summaries import Summary
from kinetoscope.trace.units import format_value

_MOST_WAITS, _MOST_COUNTERS = 20, 40


def stream_waits_html(summary: Summary) -> Html:
    """The waits by kind and stream, over the whole trace; empty if none was recorded."""
    waits = summary.stream_waits
    if not waits:
        return Html("")
    head = ["kind", "stream", "event of stream", "calls", "time"]
    html = table("Waits for streams and events, in the whole trace", head, list(map(_wait_row, waits[:_MOST_WAITS])))
    left = f" Not listed: {len(waits) - _MOST_WAITS:,} more." if len(waits) > _MOST_WAITS else ""
    return Html(html + note(f"A wait is no work of the GPU, and counts as none.{left}"))


def _wait_row(wait: WaitSummary) -> list[Cell]:
    streams = (None if stream is None else str(stream) for stream in (wait.stream, wait.waited_stream))
    return [code(wait.kind), *streams, f"{wait.calls:,}", format_value(wait.total_us, "us")]


def counters_html(summary: Summary) -> Html:
    """The counters of the whole trace; empty if none was recorded."""
    counters = summary.counters
    if not counters:
        return Html("")
    head = ["counter", "of", "samples", "mean", "at most"]
    html = table("Counters, over the whole trace", head, list(map(_counter_row, counters[:_MOST_COUNTERS])))
    left = len(counters) - _MOST_COUNTERS
    return Html(html + (note(f"Not listed: {left:,} more.") if left > 0 else ""))


def _counter_row(counter: CounterSummary) -> list[Cell]:
    values = (format_value(value) for value in (counter.mean, counter.maximum))
    return [code(counter.name), code(counter.process), f"{counter.samples:,}", *values]
