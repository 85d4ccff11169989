"""Common parts of charts: an id, a frame, and a table of the numbers below."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from html import escape

from kinetoscope.html import Html, details
from kinetoscope.timeline.canvas import overlap_text
from kinetoscope.trace.units import format_value
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.schema import Timing


def figure_cell(figure: Figure) -> Html:
    """A figure with its spread in small type below it, if three digits show a spread."""
    is_wide = figure.spread is not None and len({format_value(bound, figure.unit) for bound in figure.spread}) > 1
    spread = f"<small>{escape(figure.spread_text)}</small>" if is_wide else ""
    mark = "" if figure.conclusive else ' <span class="inconclusive" title="the steps of the trace disagree">?</span>'
    return Html(f"{escape(figure.text)}{mark}{spread}")


def timing_cells(timing: Timing) -> tuple[str, str]:
    """The median and the spread of a timing, as two cells."""
    figure = Figure.from_timing(timing)
    return figure.text, figure.spread_text


def spread_name(timings: Iterable[Timing]) -> str:
    """The kind of the timings' spreads: `lowest and highest of 3 processes`, or `quartiles of one process`."""
    processes = {max(1, len(timing.rounds)) for timing in timings}
    several = " or ".join(map(str, sorted(processes - {1})))
    names = [f"lowest and highest of {several} processes"] if several else []
    return "; ".join([*names, "quartiles of one process"] if processes <= {1} or 1 in processes else names)


def spread_sentence(timings: Collection[Timing]) -> str:
    """`Spread of times: lowest and highest of 3 processes.`; empty without timings."""
    return f"Spread of times: {spread_name(timings)}." if timings else ""


def percent_text(low: float, high: float) -> str:
    """Both ends of a percentage: `88 to 92 %`; once if they look the same."""
    decimals = 0 if high >= 10 else 1
    ends = dict.fromkeys((f"{low:.{decimals}f}", f"{high:.{decimals}f}"))
    return f"{' to '.join(ends)} %"


def duration_cell(us: float, overlap_us: float) -> Html:
    """A kernel's duration, with the part that overlaps in small type below it."""
    small = f'<small class="overlap">{escape(overlap_text(overlap_us))}</small>' if overlap_us else ""
    return Html(f"{format_value(us, 'us')}{small}")


def chart_id(kind: str, device: Device, caption: str) -> str:
    """The id of a chart and the prefix of its ids; unique on a page because captions differ."""
    content = "\n".join([kind, device.name, caption])
    return f"{kind}-{hashlib.sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def numbers_caption(caption: str) -> str:
    """The caption of the table below a chart."""
    return f"{caption}: the chart's numbers"


def framed(caption: str, drawing: Html, numbers: Html) -> Html:
    """A chart with its numbers folded. The search index omits its labels: they mean nothing without the drawing."""
    return Html(
        f'<figure class="chart" data-search-exclude><figcaption>{escape(caption)}</figcaption>{drawing}'
        f"{details('The numbers as a table', numbers)}</figure>"
    )


def require_positive(caption: str, amounts: Mapping[str, float]) -> None:
    """Raise `ValueError` if there are no amounts, or if one is not above zero."""
    if not amounts:
        raise ValueError(f"{caption}: nothing to draw")
    wrong = {name: amount for name, amount in amounts.items() if not (math.isfinite(amount) and amount > 0)}
    if wrong:
        raise ValueError(f"{caption}: must be above zero: {wrong}")
