"""Draw one step of a trace: CPU operators and calls, GPU activities, and arrows from each call to its activities.

Behind them the drawing shows the GPU's other states: the previous step's work, pale, and idle times, hatched. Positions
and widths in the SVG are percentages of its width, while text keeps its size. So it fits any page, and
docs/assets/js/timeline.js zooms by making it wider inside its frame. The tables below have a row for each slice of the
step, in the same order. The script shows the row of the selected slice, and unfolds the tables on demand; until then
they are the text of a `noscript`, which costs a page nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from operator import attrgetter

from kinetoscope.html import Html, details, hold_back, note
from kinetoscope.timeline.canvas import PATTERNS, SLICE_KINDS, Canvas
from kinetoscope.timeline.merging import Drawn, left_out, reduce_lanes
from kinetoscope.timeline.slice_tables import slice_tables
from kinetoscope.trace.events import Step, Trace, last_end_us
from kinetoscope.trace.lanes import Lane, linked, whole_lane, with_gaps
from kinetoscope.trace.placing import Kind, place_events, time_shown
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.units import format_value

BUDGET = 1400
"""Slices in a drawing: of more, a phone needs seconds."""
MARGIN = 1.004
"""Length of the scale / time of the steps: the last slice needs room for its edge."""
REDUCED_BUDGET = 36
"""Slices of a reduced step, which does not need each of its kernels."""
LEAST_GAP = 1 / 250
"""Share of the time scale from which a gap of the GPU is drawn."""
_MANY = {"kernel": "kernels", "copy": "copies", "fill": "fills"}
_NOTHING = Html("")
_HINT = (
    '<p class="hint" hidden><span class="mouse">Drag the ruler to measure a time. Drag the lanes to move them. '
    "<kbd>W</kbd> <kbd>A</kbd> <kbd>S</kbd> <kbd>D</kbd> zoom and move, the arrow keys go to the next slice, "
    "<kbd>Enter</kbd> selects, <kbd>M</kbd> marks, <kbd>Ctrl</kbd> and the wheel zoom.</span>"
    '<span class="touch">Tap a slice for its details, pinch to zoom, drag the ruler to measure.</span></p>'
)


@dataclass(frozen=True)
class TracedStep:
    """A step to draw."""

    trace: Trace
    """The step's trace: other steps' work runs in its time."""
    step: Step
    label: str = ""
    """The annotation to mark."""
    reduced: Step | None = None
    """The drawn part of the step; None: all. Its heading describes the whole step."""


def draw_steps(steps: Mapping[str, TracedStep], caption: str, *, ident: str, below: Html = _NOTHING) -> Html:
    """Draw steps of any traces from top to bottom on one time scale, each from its start; then their tables.

    Args:
        steps: heading -> a step.
        caption: a description of the timeline.
        ident: prefix of every id; unique on the page.
        below: HTML after the tables.

    Raises `ValueError` without steps.
    """
    if not steps:
        raise ValueError("a timeline of nothing: give at least one step")
    shown = {heading: time_shown(each.step) for heading, each in steps.items()}
    begin, end = min(start for start, _ in shown.values()), max(stop for _, stop in shown.values())
    canvas = Canvas(begin, (end - begin) * MARGIN or 1.0, ident, has_tables=True)
    drawn = {heading: _drawn(each, canvas.span_us, BUDGET // len(steps)) for heading, each in steps.items()}
    descriptions = {heading: describe_step(each.step) for heading, each in steps.items()}
    for index, heading in enumerate(steps):
        canvas.add(index, heading, descriptions[heading], drawn[heading].lanes, shown[heading])
    parts = [caption, *(f"{heading}: {'; '.join(phrases)}" for heading, phrases in descriptions.items())]
    tables = "".join(slice_tables(caption, heading, each.lanes) for heading, each in drawn.items())
    notes = {heading: left_out(each) for heading, each in drawn.items()}
    told = " ".join(f"{heading}: {text}" if len(steps) > 1 else text for heading, text in notes.items() if text)
    all_lanes = [lane for each in drawn.values() for lane in each.lanes]
    return Html(
        f'<figure class="lab-timeline" data-search-exclude><figcaption>{escape(caption)}</figcaption>'
        f"{tools_html(ident if len(steps) > 1 else '')}"
        f"{frame_html(canvas, all_lanes, '. '.join(parts), f'{caption}: drawing')}{note(told)}"
        f"{details('This timeline as tables', hold_back(tables))}{below}</figure>"
    )


def _drawn(traced: TracedStep, span_us: float, budget: int) -> Drawn:
    """The drawn part of a step: everything, or the largest part of a large step."""
    activities = traced.trace.activities
    own = {id(activity) for activity in traced.step.activities}
    others = [activity for activity in activities if id(activity) not in own]
    step = traced.reduced or traced.step
    placed = place_events(step, traced.label, others, time_shown(step))
    budget = REDUCED_BUDGET if traced.reduced else budget
    fits = sum(len(lane.sources) for lane in placed) <= budget
    drawn = Drawn(tuple(map(whole_lane, placed)), 0, 0, 0) if fits else reduce_lanes(placed, span_us, budget)
    shown = time_shown(traced.step)
    return drawn.with_lanes(with_gaps(traced.step, linked(step, drawn.lanes), activities, span_us * LEAST_GAP, shown))


def tools_html(alignment: str = "") -> Html:
    """The drawing's controls, for the script; `alignment` names the control that aligns several steps."""
    choices = "".join(
        f'<label><input type="radio" name="{alignment}-align" value="{value}"{checked}><span>{text}</span></label>'
        for value, text, checked in (("launch", "by launch", " checked"), ("gpu", "by GPU start", ""))
    )
    align = f'<div class="align" role="radiogroup" aria-label="Align steps">{choices}</div>' if alignment else ""
    return Html(
        f'<div class="tools" hidden>{align}<div class="zoom" role="group" aria-label="Zoom">'
        '<button type="button" value="-" aria-label="Zoom out">−</button>'
        '<button type="button" value="+" aria-label="Zoom in">+</button>'
        '<button type="button" value="0">Whole step</button></div></div>'
    )


def frame_html(canvas: Canvas, all_lanes: Iterable[Lane], described: str, name: str) -> Html:
    """The drawing in its frame, with the script's description above and its legend below."""
    return Html(
        f'<p class="readout" hidden></p><div class="frame" role="region" tabindex="0" aria-label="{escape(name)}">'
        f'{canvas.svg(escape(described))}</div><ul class="legend">{_legend(all_lanes, canvas.ident)}</ul>'
        f'<div class="selected" aria-live="polite"></div>{_HINT}'
    )


def _legend(all_lanes: Iterable[Lane], ident: str) -> str:
    """Samples of the kinds of slices; ghosts and overlaps once for all kinds."""
    slices = [each for lane in all_lanes for each in lane.slices]
    kinds = {each.kind for each in slices if not each.is_ghost}
    legend = "".join(_legend_entry(kind, ident) for kind in SLICE_KINDS if kind in kinds)
    sample = '<svg width="22" height="12" aria-hidden="true"><rect x="1" y="1" width="20" height="10"/></svg>'
    if any(each.is_ghost for each in slices):
        legend += f'<li class="ghost">{sample}work of the previous step</li>'
    if any(each.overlap_us for each in slices):
        legend += f'<li class="overlap">{sample}the kernel before still runs: this one may only wait</li>'
    return legend


def _legend_entry(kind: Kind, ident: str) -> str:
    fill = f' fill="url(#{ident}-{kind})"' if kind in PATTERNS else ""
    sample = f'<svg width="22" height="12" aria-hidden="true"><rect x="1" y="1" width="20" height="10"{fill}/></svg>'
    return f'<li class="{kind}">{sample}{SLICE_KINDS[kind]}</li>'


def describe_step(step: Step) -> tuple[str, str]:
    """Describe a step in two phrases: its GPU work and busy time; when GPU and CPU finished."""
    cpu = format_value(step.end_us - step.start_us, "us")
    if not step.activities:
        return "nothing on the GPU", f"CPU done after {cpu}"
    kinds = Counter(map(attrgetter("kind"), step.activities))
    counts = {"kernel": kinds["kernel"], "copy": kinds["memcpy"], "fill": kinds["memset"]}
    parts = [f"{count} {name if count == 1 else _MANY[name]}" for name, count in counts.items() if count]
    busy = format_value(busy_us(step.activities), "us")
    done = format_value(last_end_us(step.activities) - step.start_us, "us")
    return f"{', '.join(parts)}, GPU busy {busy}", f"GPU done after {done}, CPU done after {cpu}"
