"""Two steps side by side, aligned kernel by kernel: what stayed, what took its place, what vanished, what is new."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import per_step
from snippets.lab.html import Cell, Html, table
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.page.tables import figure_cell
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.trace.alignment import Change, ChangeKind, align
from snippets.lab.trace.events import GpuActivity, Step, Trace
from snippets.lab.trace.queries import (
    annotation_us,
    busy_us,
    count_launches,
    durations_us,
    kernel_time_us,
    middle_step,
    require_kernels,
)
from snippets.lab.trace.work import KnownWork, step_work

StepWork = KnownWork | Callable[[Trace, Step], KnownWork] | None
SIGNS: Mapping[ChangeKind, str] = {"same": "=", "replaced": "→", "vanished": "−", "new": "+"}


def diff_table(
    before: str,
    after: str,
    device: str,
    names: tuple[str, str],
    caption: str,
    *,
    work: tuple[StepWork, StepWork] = (None, None),
) -> Html:
    """What changed from one experiment's step to another's: `chapter/experiment` twice, and what to call them.

    `work` as in `tables.kernel_table`, for either. Raises `RecordingMissing` without a recording of both, `TraceError`
    where a trace has no step or no kernel.
    """
    traces = (load_trace(before, device), load_trace(after, device))
    labels = (load_recording(before, device).label, load_recording(after, device).label)
    return diff_of(*traces, names, caption, labels=labels, work=work)


def diff_of(
    before: Trace,
    after: Trace,
    names: tuple[str, str],
    caption: str,
    *,
    labels: tuple[str, str] = ("", ""),
    work: tuple[StepWork, StepWork] = (None, None),
) -> Html:
    """Two tables: the GPU work of the middle steps aligned, and the totals of a step.

    `labels` name the spans whose CPU time is compared; without one it is that of the whole step.
    """
    for traced in (before, after):
        require_kernels(traced)
    steps = (middle_step(before), middle_step(after))
    times = tuple(map(_times, (before, after), steps))
    rows = [_row(pair, *times) for pair in align(*steps)]
    listed = table(caption, ["change", "GPU work", *names, "difference"], rows, text_columns=2)
    old, new = (_totals(*one) for one in zip((before, after), labels, work, strict=True))
    compared = [[name, _cell(old[name]), _cell(new[name]), _difference(old[name], new[name])] for name in old]
    totals = table(f"{caption}: a step in all", ["", *names, "difference"], compared)
    return Html(f'<div class="lab-diff">{listed}{totals}</div>')


def _times(traced: Trace, step: Step) -> dict[GpuActivity, Figure]:
    """How long each activity took: the mean over the steps that agree, with their shortest and longest."""
    found = zip(step.activities, durations_us(traced, step), strict=True)
    return {one: Figure(statistics.fmean(us), "us", (min(us), max(us))) for one, us in found}


def _row(pair: Change, old: Mapping[GpuActivity, Figure], new: Mapping[GpuActivity, Figure]) -> list[Cell]:
    before, after = _sum(old[one] for one in pair.before), _sum(new[one] for one in pair.after)
    shown = [kernel_name_html(one.name) for one in pair.before or pair.after]
    if pair.change == "replaced":
        shown += [Html(f'<span class="after">→ {kernel_name_html(one.name)}</span>') for one in pair.after]
    change = Html(f'<span class="change {pair.change}">{SIGNS[pair.change]} {pair.change}</span>')
    times = (before.text if pair.before else None, after.text if pair.after else None)
    return [change, Html("<br>".join(shown)), *times, _difference(before, after)]


def _sum(times: Iterable[Figure]) -> Figure:
    found = [_range(one) for one in times]
    value, least, most = (math.fsum(one[place] for one in found) for place in range(3))
    return Figure(value, "us", (least, most))


def _totals(traced: Trace, label: str, known: StepWork) -> dict[str, Figure | None]:
    def cpu_us(step: Step) -> float:
        return annotation_us(traced, step, label) if label else step.end_us - step.start_us

    return {
        "kernel time": per_step(traced, lambda step: kernel_time_us(step.activities), "us"),
        "GPU busy": per_step(traced, lambda step: busy_us(step.activities), "us"),
        "GPU activities": per_step(traced, lambda step: len(step.activities)),
        "CUDA calls that launch them": per_step(traced, lambda step: count_launches(traced, step)),
        "CUDA calls in all": per_step(traced, lambda step: len(step.launches)),
        "operators and regions": per_step(traced, lambda step: sum(not op.is_annotation for op in step.ops)),
        "CPU time": per_step(traced, cpu_us, "us"),
        "bytes moved": _moved(traced, known),
    }


def _moved(traced: Trace, known: StepWork) -> Figure | None:
    """Bytes that a step has to move, `at least` where the work of some activities is not known; None where of all."""
    works = step_work(traced, middle_step(traced), known)
    if not any(works):
        return None
    found = per_step(traced, lambda step: sum(one.bytes for one in step_work(traced, step, known) if one), "bytes")
    return found if all(works) else replace(found, said=f"at least {found.text}")


def _cell(shown: Figure | None) -> Cell:
    return None if shown is None else figure_cell(shown)


def _difference(old: Figure | None, new: Figure | None) -> Cell:
    """With its percentage, or a word that the steps differ by more; None where either side is not known in full."""
    if old is None or new is None or old.said or new.said:
        return None
    (before, least, most), (after, lower, upper) = _range(old), _range(new)
    if round(after - before, 6) == 0:  # sums of times may differ in the last bit
        return "0"
    signed = _signed(after - before, old.unit)
    if lower <= most and least <= upper:
        return Html(f"{signed}<small>within the spread</small>")
    percent = f"<small>{100 * (after - before) / before:+.0f} %</small>" if old.unit and before and after else ""
    return Html(signed + percent.replace("-", "−"))


def _range(shown: Figure) -> tuple[float, float, float]:
    """Value, smallest and largest step of a number."""
    assert isinstance(shown.value, int | float)
    return (shown.value, *(shown.spread or (shown.value, shown.value)))


def _signed(value: float, unit: str) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{format_value(abs(value), unit)}"
