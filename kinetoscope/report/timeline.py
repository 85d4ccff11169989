"""The median step as a drawing: CPU threads, GPU streams, idle time, and the findings' evidence as link targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kinetoscope.html import Html, note
from kinetoscope.timeline.canvas import Canvas
from kinetoscope.timeline.draw import BUDGET, LEAST_GAP, MARGIN, describe_step, frame_html, tools_html
from kinetoscope.timeline.merging import left_out, reduce_lanes
from kinetoscope.trace.events import GpuActivity, Span, Step
from kinetoscope.trace.lanes import linked, with_gaps
from kinetoscope.trace.placing import PlacedLane, place_events, time_shown
from kinetoscope.trace.text import shortened

_NAME_WIDTH = 160
_MOST_ARROWS = 250


def span_key(span: Span) -> tuple[str, str, float, float]:
    """The identity of a span in a trace: two spans with equal keys are drawn in the same place."""
    return type(span).__name__, span.name, span.start_us, span.duration_us


def step_timeline(
    step: Step,
    activities: Sequence[GpuActivity],
    anchors: Mapping[tuple[str, str, float, float], str],
    *,
    is_one_of_several: bool,
) -> tuple[Html, frozenset[str]]:
    """Draw a step; return also the anchors in the drawing.

    Args:
        step: the step to draw.
        activities: all GPU work of the trace, in start order: a time is idle if none of it runs.
        is_one_of_several: whether it was chosen as the median.
        anchors: `span_key` of a slice -> its id on the page.
    """
    shown = time_shown(step)
    span = (shown[1] - shown[0]) * MARGIN or 1.0
    placed = [_anchored(lane, anchors) for lane in place_events(step, "", activities, shown)]
    drawn = reduce_lanes(placed, span, BUDGET)
    all_lanes = with_gaps(step, linked(step, drawn.lanes), activities, span * LEAST_GAP, shown)
    if sum(each.pair is not None for lane in all_lanes for each in lane.slices if lane.is_gpu) > _MOST_ARROWS:
        all_lanes = tuple(
            replace(lane, slices=tuple(replace(each, pair=None) for each in lane.slices)) for lane in all_lanes
        )
    canvas = Canvas(shown[0], span, "step", name_width=_NAME_WIDTH)
    phrases = describe_step(step)
    heading = shortened(step.name, 80) + (", the median step" if is_one_of_several else "")
    canvas.add(0, heading, phrases, all_lanes, shown)
    described = f"Timeline of {step.name}: {'; '.join(phrases)}"
    html = Html(
        f'<figure class="lab-timeline" id="step">{tools_html()}'
        f"{frame_html(canvas, all_lanes, described, 'Timeline of the median step')}{note(left_out(drawn))}</figure>"
    )
    return html, frozenset(each.anchor for lane in all_lanes for each in lane.slices if each.anchor)


def _anchored(lane: PlacedLane, anchors: Mapping[tuple[str, str, float, float], str]) -> PlacedLane:
    if not anchors:
        return lane
    starts = {start_us for _, _, start_us, _ in anchors}
    places: dict[str, int] = {}
    for index, source in enumerate(lane.sources):
        if source.start_us in starts and (anchor := anchors.get(span_key(source))):
            places.setdefault(anchor, index)
    return replace(lane, anchors={index: anchor for anchor, index in places.items()})
