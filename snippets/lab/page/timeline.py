"""The middle steps of recordings as a timeline, with buttons that open or download the whole traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

from kinetoscope.html import Html
from kinetoscope.timeline.draw import TracedStep, draw_steps
from kinetoscope.trace.events import Step
from snippets.lab.charts.numbers import chart_id
from snippets.lab.finding.device import Device

PERFETTO = "https://ui.perfetto.dev"


def timeline(
    device: Device,
    variants: Mapping[str, str],
    caption: str,
    *,
    site_root: str = "..",
    reduce: Callable[[Step], Step] | None = None,
) -> Html:
    """The middle steps of recordings on one time scale, with buttons that open or download the whole traces.

    Args:
        device: whose recordings.
        variants: heading -> `chapter/experiment`, drawn in this order from the top.
        caption: what the timeline shows.
        site_root: the site's root as seen from the page.
        reduce: what is drawn of a step; all of it by default.

    Raises `NotRecorded` if a recording is missing, `TraceError` if a trace has no step.
    """
    runs = {heading: device[experiment] for heading, experiment in variants.items()}
    steps = {
        heading: TracedStep(run.trace, run.step, run.label, reduce(run.step) if reduce else None)
        for heading, run in runs.items()
    }
    buttons = "".join(
        _buttons(heading, f"{site_root}/recordings/{run.trace_path}", f"{run.id} on {run.environment.device}")
        for heading, run in runs.items()
    )
    ident = chart_id("timeline", device, caption)
    return draw_steps(steps, caption, ident=ident, below=Html(f'<ul class="traces">{buttons}</ul>'))


def _buttons(heading: str, url: str, title: str) -> str:
    href = escape(url)
    return (
        f"<li><strong>{escape(heading)}</strong> "
        f'<button type="button" class="perfetto" data-trace="{href}" data-title="{escape(title)}" '
        f'data-perfetto="{PERFETTO}" hidden>Open the whole trace in Perfetto</button> '
        f'<a href="{href}" download>Download .json.gz</a> <span role="status"></span></li>'
    )
