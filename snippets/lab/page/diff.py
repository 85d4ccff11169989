"""Two steps side by side, aligned kernel by kernel: same, replaced, removed and added activities."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.alignment import Change, ChangeKind, align
from kinetoscope.trace.events import GpuActivity, Step, Trace
from kinetoscope.trace.queries import (
    annotation_us,
    busy_us,
    count_launches,
    durations_us,
    extent_us,
    kernel_time_us,
    middle_step,
    require_kernels,
    step_overlaps_us,
)
from kinetoscope.trace.units import format_value
from kinetoscope.trace.work import KnownWork, step_work
from snippets.lab.charts.numbers import duration_cell, figure_cell
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure, per_step
from snippets.lab.page.kernel_name import kernel_name_html

StepWork = KnownWork | Callable[[Step], KnownWork] | None
SIGNS: Mapping[ChangeKind, str] = {"same": "=", "replaced": "→", "removed": "−", "added": "+"}
ON_PAGE: Mapping[ChangeKind, str] = {"same": "same", "replaced": "replaced", "removed": "vanished", "added": "new"}
"""Kind of a change -> its text and its class in the style sheet."""


def diff_table(
    device: Device,
    variants: Mapping[str, str],
    caption: str,
    *,
    work: tuple[StepWork, StepWork] = (None, None),
) -> Html:
    """What changed from one experiment's step to another's.

    Args:
        device: whose recordings.
        variants: heading -> `chapter/experiment`, two of them: before and after.
        caption: what the table shows.
        work: for either, as in `kernel_table`.

    Raises `NotRecorded` without a recording of both, `TraceError` where a trace has no step or no kernel.
    """
    runs = [device[experiment] for experiment in variants.values()]
    traces = dict(zip(variants, (run.trace for run in runs), strict=True))
    before, after = (run.label for run in runs)
    return diff_of(traces, caption, labels=(before, after), work=work)


def diff_of(
    traces: Mapping[str, Trace],
    caption: str,
    *,
    labels: tuple[str, str] = ("", ""),
    work: tuple[StepWork, StepWork] = (None, None),
) -> Html:
    """Two tables for two traces: the aligned GPU work of the middle steps, and the totals per step.

    `labels` name the annotations whose CPU time we compare; an empty label means the whole step.
    """
    names, (before, after) = tuple(traces), traces.values()
    for trace in (before, after):
        require_kernels(trace)
    times = _times(before), _times(after)
    rows = [_row(change, *times) for change in align(middle_step(before), middle_step(after))]
    listed = table(caption, ["change", "GPU work", *names, "difference"], rows, text_columns=2)
    old, new = _totals(before, labels[0], work[0]), _totals(after, labels[1], work[1])
    compared = [[name, _cell(old[name]), _cell(new[name]), _difference(old[name], new[name])] for name in old]
    totals = table(f"{caption}: totals of one step", ["", *names, "difference"], compared)
    return Html(f'<div class="lab-diff">{listed}{totals}</div>')


@dataclass(frozen=True)
class _Times:
    """Mean times of each activity over the steps if they agree, with the shortest and longest as spread."""

    duration: Mapping[GpuActivity, Figure]
    overlap: Mapping[GpuActivity, Figure]


def _times(trace: Trace) -> _Times:
    activities = middle_step(trace).activities
    return _Times(*(_means(activities, us) for us in (durations_us(trace), step_overlaps_us(trace))))


def _means(activities: Sequence[GpuActivity], times_us: Sequence[Sequence[float]]) -> dict[GpuActivity, Figure]:
    pairs = zip(activities, times_us, strict=True)
    return {activity: Figure(statistics.fmean(us), "us", (min(us), max(us))) for activity, us in pairs}


def _lasting(times: _Times, activities: Sequence[GpuActivity]) -> Cell:
    if not activities:
        return None
    lasts, overlap = (_sum(each[activity] for activity in activities) for each in (times.duration, times.overlap))
    return duration_cell(lasts.number, overlap.number)


def _row(change: Change, old: _Times, new: _Times) -> list[Cell]:
    before = _sum(old.duration[activity] for activity in change.before)
    after = _sum(new.duration[activity] for activity in change.after)
    names = [kernel_name_html(activity.name) for activity in change.before or change.after]
    if change.kind == "replaced":
        names += [Html(f'<span class="after">→ {kernel_name_html(activity.name)}</span>') for activity in change.after]
    kind = ON_PAGE[change.kind]
    badge = Html(f'<span class="change {kind}">{SIGNS[change.kind]} {kind}</span>')
    times = [_lasting(old, change.before), _lasting(new, change.after)]
    return [badge, Html("<br>".join(names)), *times, _difference(before, after)]


def _sum(times: Iterable[Figure]) -> Figure:
    bounds = [(time.number, *time.bounds) for time in times]
    value, low, high = (math.fsum(each[index] for each in bounds) for index in range(3))
    return Figure(value, "us", (low, high))


def _totals(trace: Trace, label: str, known: StepWork) -> dict[str, Figure | None]:
    def cpu_us(step: Step) -> float:
        return annotation_us(step, label) if label else step.end_us - step.start_us

    steps = trace.steps
    return {
        "GPU busy": per_step(steps, lambda step: busy_us(step.activities), "us"),
        "GPU time from first start to last end": per_step(steps, lambda step: extent_us(step.activities), "us"),
        "sum of kernel times": per_step(steps, lambda step: kernel_time_us(step.activities), "us"),
        "GPU activities": per_step(steps, lambda step: len(step.activities)),
        "CUDA calls that launch GPU work": per_step(steps, count_launches),
        "all CUDA calls": per_step(steps, lambda step: len(step.calls)),
        "operators and regions": per_step(steps, lambda step: sum(not op.is_annotation for op in step.ops)),
        "CPU time": per_step(steps, cpu_us, "us"),
        "bytes moved": _moved(trace, known),
    }


def _moved(trace: Trace, known: StepWork) -> Figure | None:
    """Bytes that a step must move; `at least` if the work of some activities is unknown, None if all work is
    unknown."""
    works = step_work(middle_step(trace), known)
    if not any(works):
        return None
    moved = per_step(trace.steps, lambda step: sum(work.bytes for work in step_work(step, known) if work), "bytes")
    return moved if all(works) else replace(moved, display=f"at least {moved.text}")


def _cell(figure: Figure | None) -> Cell:
    return None if figure is None else figure_cell(figure)


def _difference(old: Figure | None, new: Figure | None) -> Cell:
    """The difference with its percentage, or a note that the steps vary by more; None if a side is not fully known."""
    if old is None or new is None or old.display or new.display:
        return None
    assert isinstance(old.value, int | float)
    assert isinstance(new.value, int | float)
    before, after = old.value, new.value
    if round(after - before, 6) == 0:  # sums of times may differ in the last bit
        return "0"
    signed = _signed(after - before, old.unit)
    if new.bounds[0] <= old.bounds[1] and old.bounds[0] <= new.bounds[1]:
        return Html(f"{signed}<small>within the spread</small>")
    percent = f"<small>{100 * (after - before) / before:+.0f} %</small>" if old.unit and before and after else ""
    return Html(signed + percent.replace("-", "−"))


def _signed(value: float, unit: str) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{format_value(abs(value), unit)}"
