"""The median step as a drawing: CPU threads, GPU streams, idle time, and the evidence of findings to link to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from snippets.lab.drawing.canvas import SLICE_KINDS, Canvas
from snippets.lab.drawing.timeline import describe_step, legend_entry
from snippets.lab.html import Html, note
from snippets.lab.report.merging import Drawn, reduce_lanes
from snippets.lab.trace.events import GpuActivity, Span, Step, by_start
from snippets.lab.trace.lanes import Lane, Slice, lanes
from snippets.lab.trace.text import shortened
from snippets.lab.trace.units import format_value

BUDGET = 1400
"""Slices drawn: about half a megabyte."""
_NAME_WIDTH = 160
_MARGIN = 1.004
_LEAST_IDLE = 1 / 250
"""Share of the time scale from which a gap of the GPU is drawn."""
_MOST_ARROWS = 250

_TOOLS = (
    '<div class="zoom" role="group" aria-label="Zoom" hidden>'
    '<button type="button" value="-" aria-label="Zoom out">−</button>'
    '<button type="button" value="+" aria-label="Zoom in">+</button>'
    '<button type="button" value="0">Whole step</button></div>'
)


def span_key(span: Span) -> tuple[str, str, float, float]:
    """What tells spans of a trace apart: two equal ones are drawn in the same place."""
    return type(span).__name__, span.name, span.start_us, span.duration_us


def step_timeline(
    step: Step,
    activities: Sequence[GpuActivity],
    anchors: Mapping[tuple[str, str, float, float], str],
    *,
    is_one_of_several: bool,
) -> tuple[Html, frozenset[str]]:
    """Draw a step; return also the anchors that are in the drawing.

    Args:
        step: which step.
        activities: all GPU work of the trace, in start order: what is idle shows none of it.
        is_one_of_several: whether it was chosen as the median.
        anchors: `span_key` of a slice -> its id on the page.
    """
    all_lanes = [_anchored(lane, anchors) for lane in lanes(step)]
    slices = [each for lane in all_lanes for each in lane.slices]
    begin = min([0.0, *(each.start_us for each in slices)])
    end = max([step.end_us - step.start_us, *(each.end_us for each in slices)])
    span = (end - begin) * _MARGIN or 1.0
    outside = _outside(step, activities, begin, end)
    drawn = reduce_lanes([*all_lanes, *([outside] if outside.slices else [])], span, BUDGET)
    shown = _with_idle(drawn.lanes, _gaps(step, activities, begin, end, span * _LEAST_IDLE))
    if sum(each.pair is not None for lane in shown for each in lane.slices if lane.is_gpu) > _MOST_ARROWS:
        shown = [replace(lane, slices=tuple(replace(each, pair=None) for each in lane.slices)) for lane in shown]
    canvas = Canvas(begin, span, "step", name_width=_NAME_WIDTH)
    phrases = describe_step(step)
    heading = shortened(step.name, 80) + (", the median step" if is_one_of_several else "")
    canvas.add(0, heading, phrases, shown)
    kinds = {each.kind for lane in shown for each in lane.slices}
    legend = "".join(legend_entry(kind, "step") for kind in SLICE_KINDS if kind in kinds)
    described = escape(f"Timeline of {step.name}: {'; '.join(phrases)}")
    html = Html(
        f'<figure class="lab-timeline" id="step">{_TOOLS}'
        f'<div class="frame" role="region" tabindex="0" aria-label="Timeline of the median step">'
        f'{canvas.svg(described)}</div><ul class="legend">{legend}</ul>'
        f'<div class="selected" role="status"></div>{note(_left_out(drawn))}</figure>'
    )
    return html, frozenset(each.anchor for lane in shown for each in lane.slices if each.anchor)


def _anchored(lane: Lane, anchors: Mapping[tuple[str, str, float, float], str]) -> Lane:
    if not anchors:
        return lane
    used: set[str] = set()
    slices = []
    for each in lane.slices:
        anchor = anchors.get(span_key(each.source), "")
        slices.append(replace(each, anchor=anchor) if anchor and anchor not in used else each)
        used.add(anchor)
    return replace(lane, slices=tuple(slices))


def _outside(step: Step, activities: Sequence[GpuActivity], begin: float, end: float) -> Lane:
    """A lane of GPU work that other steps launched and that ran in the time shown."""
    own = {id(activity) for activity in step.activities}
    slices, reached = [], begin
    for activity in activities:
        start = max(activity.start_us - step.start_us, reached)
        stop = min(activity.end_us - step.start_us, end)
        if stop > start and id(activity) not in own:
            slices.append(Slice(activity.name, "outside", 0, start, round(stop - start, 3), None, activity))
            reached = stop
    return Lane("GPU: work of other steps, or of none", True, tuple(slices))


def _gaps(
    step: Step, activities: Sequence[GpuActivity], begin: float, end: float, least_us: float
) -> list[tuple[float, float]]:
    """When no GPU works: start and end, after the start of the step."""
    gaps, reached = [], begin
    for activity in sorted(activities, key=by_start):
        start = activity.start_us - step.start_us
        if start >= end:
            break
        if start - reached >= least_us:
            gaps.append((reached, start))
        reached = max(reached, start + activity.duration_us)
    if end - reached >= least_us:
        gaps.append((reached, end))
    return gaps


def _with_idle(shown: Sequence[Lane], gaps: Sequence[tuple[float, float]]) -> list[Lane]:
    """Put the gaps into the first GPU lane: in them, the others are empty too."""
    first = next((index for index, lane in enumerate(shown) if lane.is_gpu), None)
    if first is None:
        return list(shown)
    idle = [
        Slice(f"{format_value(end - start, 'us')} idle", "idle", 0, start, end - start, None, Span("idle", start, 0))
        for start, end in gaps
    ]
    lane = shown[first]
    return [*shown[:first], replace(lane, slices=(*idle, *lane.slices)), *shown[first + 1 :]]


def _left_out(drawn: Drawn) -> str:
    parts = []
    if drawn.merged:
        parts.append(f"{drawn.merged:,} slices too short to see are merged into blocks with their count and time")
    if drawn.deep:
        parts.append(f"{drawn.deep:,} operators and calls in deeper rows are not drawn")
    if drawn.lanes_left_out:
        parts.append(f"{drawn.lanes_left_out:,} threads and streams with less work are not drawn")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}. Perfetto shows them all." if text else ""
