"""One step of a trace as lanes of slices: the data of the timeline, without the drawing.

Each CPU thread is a lane with its operators nested in rows and its CUDA calls below them. Each GPU stream is a lane,
with its work for other steps in the time shown: if the GPU lags behind, a step begins while the previous step still
runs. placing.py places the events; a slice is made for each event that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kinetoscope.trace.events import CudaCall, GpuActivity, Span, Step, by_start, in_whole_ns
from kinetoscope.trace.placing import CLOCK_NOISE_US, Kind, PlacedLane, place_events, time_shown
from kinetoscope.trace.queries import overlaps_us


class Slice(Struct, frozen=True, gc=False):
    """An operator, call or activity on a lane, `start_us` after the start of its step."""

    name: str
    kind: Kind
    row: int
    """The row in its lane, counted from the top: an operator's nesting depth; CUDA calls are below all operators."""
    start_us: float
    duration_us: float
    pair: int | None
    """A number shared by a call and the GPU work it launched; None if the trace has only one of them."""
    source: Span
    """The event shown: an operator, a call or an activity; of merged events, the first."""
    overlap_us: float = 0.0
    """Time from its start during which the activity before on its stream was still running."""
    merged: int = 1
    """Number of slices that this one replaces; if several, `name` describes them."""
    filled: float = 1.0
    """Share of its duration in which one of these slices runs."""
    anchor: str = ""
    """An id to link to, unique on its page."""
    is_ghost: bool = False
    """Whether another step launched it; it is cropped to the time shown."""

    @property
    def is_own(self) -> bool:
        """Whether it is an event of this step, and not a ghost or a gap."""
        return not self.is_ghost and self.kind not in ("idle", "unrecorded")

    @property
    def end_us(self) -> float:
        """Where it ends, on the clock of `start_us`."""
        return in_whole_ns(self.start_us + self.duration_us)


class Lane(Struct, frozen=True):
    """A CPU thread or a GPU stream; its operators, calls and activities are each in start order."""

    name: str
    is_gpu: bool
    slices: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        """Number of rows in use."""
        return max((each.row for each in self.slices), default=-1) + 1


def lanes(step: Step, label: str = "", activities: Sequence[GpuActivity] = ()) -> tuple[Lane, ...]:
    """Return a lane for each CPU thread, in order of its first event, then one for each stream.

    Omits the step's own span, which is the time axis.

    Args:
        step: the step.
        label: names the annotation to mark.
        activities: all GPU work of the trace. Work of other steps in the time shown becomes ghosts.
    """
    return linked(step, map(whole_lane, place_events(step, label, activities, time_shown(step))))


def whole_lane(placed: PlacedLane) -> Lane:
    """A lane with a slice for each event, without pairs and overlaps."""
    slices = tuple(slice_of(placed, index, row) for index, row in enumerate(placed.rows))
    return Lane(placed.name, placed.is_gpu, slices)


def slice_of(placed: PlacedLane, index: int, row: int) -> Slice:
    """The slice of an event in a row of the drawing, without its pair and its overlap."""
    source, anchor = placed.sources[index], placed.anchors.get(index, "")
    start, duration = placed.starts_us[index], placed.durations_us[index]
    is_ghost = index in placed.ghosts
    return Slice(source.name, placed.kind(index), row, start, duration, None, source, anchor=anchor, is_ghost=is_ghost)


def linked(step: Step, step_lanes: Iterable[Lane]) -> tuple[Lane, ...]:
    """Set the pair of each call and activity, and the overlap of each activity, of the slices that are one event of the
    step."""
    step_lanes = tuple(step_lanes)
    single = [each for lane in step_lanes for each in lane.slices if each.merged == 1 and each.is_own]
    drawn = {id(each.source) for each in single if isinstance(each.source, GpuActivity)}
    correlations = {_correlation(each) for each in single} - {None, 0}
    launched = {each.correlation for each in step.activities if each.correlation in correlations}
    pairs: dict[int | None, int] = {}
    for index, call in enumerate(step.calls):
        if call.correlation in launched:
            pairs.setdefault(call.correlation, index)
    overlaps = {
        id(activity): us
        for activity, us in zip(step.activities, overlaps_us(step), strict=True)
        if id(activity) in drawn
    }

    def link(each: Slice) -> Slice:
        pair, overlap_us = pairs.get(_correlation(each)), overlaps.get(id(each.source), 0.0)
        is_single = each.merged == 1 and each.is_own
        is_linked = is_single and (pair is not None or overlap_us)
        return replace(each, pair=pair, overlap_us=overlap_us) if is_linked else each

    return tuple(replace(lane, slices=tuple(map(link, lane.slices))) for lane in step_lanes)


def _correlation(piece: Slice) -> int | None:
    """The number by which the trace links a call and its GPU work."""
    return piece.source.correlation if isinstance(piece.source, CudaCall | GpuActivity) else None


def with_gaps(
    step: Step,
    step_lanes: Sequence[Lane],
    activities: Sequence[GpuActivity],
    least_us: float,
    shown: tuple[float, float],
) -> tuple[Lane, ...]:
    """Put times of at least `least_us` in which no GPU works into the first GPU lane: the other lanes are empty then,
    too. `shown` is `time_shown` of the step.

    Before the first of `activities`, all GPU work of the trace, the GPU's state is unknown: a profiler drops earlier
    work.
    """
    first = next((index for index, lane in enumerate(step_lanes) if lane.is_gpu), None)
    if first is None:
        return tuple(step_lanes)
    known = min(map(by_start, activities)) - step.start_us
    gaps = []
    for start, end in _gaps(step, activities, shown):
        if end - start >= least_us:
            kind: Kind = "idle" if end > known + CLOCK_NOISE_US else "unrecorded"
            gaps.append(Slice("", kind, 0, round(start, 3), round(end - start, 3), None, Span("", start, end - start)))
    lane = replace(step_lanes[first], slices=(*gaps, *step_lanes[first].slices))
    return (*step_lanes[:first], lane, *step_lanes[first + 1 :])


def _gaps(step: Step, activities: Iterable[GpuActivity], shown: tuple[float, float]) -> list[tuple[float, float]]:
    """Times in the time shown in which no GPU works: start and end, after the start of the step."""
    begin, end = shown
    gaps, reached = [], begin
    for activity in sorted(activities, key=by_start):
        start = activity.start_us - step.start_us
        if start >= end:
            break
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, start + activity.duration_us)
    return [*gaps, (reached, end)] if end > reached else gaps
