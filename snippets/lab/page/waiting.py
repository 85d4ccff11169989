"""The opening figure of a chapter: how long one step keeps its user waiting, and whether for the CPU or for the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from kinetoscope.html import Html
from kinetoscope.trace.units import format_value
from snippets.lab.finding.device import Device
from snippets.lab.recording.schema import Timings

CAPTION = "Time of one step: on the CPU, on the GPU, and your waiting time"
PARTS: Mapping[str, str] = {
    "enqueue": "the CPU submits",
    "interleaved": "the GPU computes",
    "from_python": "you wait",
}
"""Field of `Timings` -> what it means to whoever waits; two bars and a line."""
_FULL = 97
"""Length of the longest time in percent of a row: the line at its end needs room."""
_KEYS: Mapping[str, str] = {
    "enqueue": '<rect class="cpu" x="0.5" y="0.5" width="20" height="8"/>',
    "interleaved": '<rect class="gpu" width="21" height="9"/>',
    "from_python": '<line x1="10" x2="10" y2="9"/>',
}


def waiting(device: Device, sizes: Mapping[str, Mapping[str, str]], caption: str = CAPTION) -> Html:
    """The CPU's time, the GPU's time and your waiting time for one step, without the profiler, on one scale.

        show("mlp-opening", waiting, {"1 token": {"eager": "mlp/sweep_eager[batch=1,seq=1]", ...}, ...})

    Args:
        device: whose recordings.
        sizes: heading of a panel -> label of a row -> `chapter/experiment`, or a point of one, which has timings.
        caption: what the figure shows.

    Raises `ValueError` without rows; `NotRecorded` and `NotTimed`.
    """
    timings = {
        heading: {label: device[experiment].timings for label, experiment in rows.items()}
        for heading, rows in sizes.items()
    }
    times = [getattr(each, part).median_us for rows in timings.values() for each in rows.values() for part in PARTS]
    if not times:
        raise ValueError(f"{caption}: nothing to draw")
    scale = _FULL / max(times)
    panels = "".join(
        f'<div class="panel"><p>{escape(heading)}</p>'
        f"<dl>{''.join(_row(label, each, scale) for label, each in rows.items())}</dl></div>"
        for heading, rows in timings.items()
    )
    keys = "".join(
        f'<li><svg width="21" height="9" aria-hidden="true">{_KEYS[part]}</svg>{text}</li>'
        for part, text in PARTS.items()
    )
    return Html(
        f'<figure class="waiting" data-search-exclude><figcaption>{escape(caption)}</figcaption>'
        f'<div class="panels">{panels}</div><ul class="keys">{keys}</ul></figure>'
    )


def _row(label: str, timings: Timings, scale: float) -> str:
    """A variant: its two bars and the line at the end of the wait, drawn; the wait in numbers, all three on hover."""
    us = {part: getattr(timings, part).median_us for part in PARTS}
    length = {part: f"{value * scale:.2f}%" for part, value in us.items()}
    text = ", ".join(f"{PARTS[part]} {format_value(value, 'us')}" for part, value in us.items())
    drawing = (
        f'<svg height="24" role="img" aria-label="{escape(f"{label}: {text}")}">'
        f'<rect class="cpu" y="2" width="{length["enqueue"]}" height="9"/>'
        f'<rect class="gpu" y="13" width="{length["interleaved"]}" height="9"/>'
        f'<line x1="{length["from_python"]}" x2="{length["from_python"]}" y2="24"/></svg>'
    )
    wait = format_value(us["from_python"], "us")
    return f'<div title="{escape(text)}"><dt>{escape(label)}</dt><dd>{drawing}</dd><dd>{escape(wait)}</dd></div>'
