"""Tables of recordings: kernels of a step, the profiler's table, variants side by side, dispatch tree."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape

from kinetoscope.html import Cell, Html, cell_html, code, details, note, table
from kinetoscope.timeline.canvas import overlap_text
from kinetoscope.trace.averages import Average, key_averages
from kinetoscope.trace.events import CpuOp, Step
from kinetoscope.trace.queries import durations_us, overlaps_us, require_kernels, step_overlaps_us
from kinetoscope.trace.units import format_value
from kinetoscope.trace.work import KnownWork, step_work
from snippets.lab.charts.numbers import duration_cell, figure_cell, spread_sentence
from snippets.lab.experiment import Parameters
from snippets.lab.finding.device import KINDS, Device, Run
from snippets.lab.finding.quantities import quantity
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.page.rates import Rates

RATES = ("FLOP/s", "bytes/s")
"""Columns of a kernel table that are omitted if no rate is known."""
FOLDED = ("operator", "call", "launch delay", "registers", "shared memory")
"""What a kernel table folds into the row: who launched the activity, and its footprint."""
Columns = Mapping[str, str | Callable[[Run], Cell]]
"""Heading -> name of a quantity, shown without its spread, or a function of a run."""


def kernel_table(
    device: Device,
    experiment: str,
    caption: str = "",
    *,
    work: KnownWork | Callable[[Step], KnownWork] | None = None,
) -> Html:
    """The GPU activities of one step in order: name, time, share, rates, grid and block. The other data are folded.

    Shows the middle step; durations are means over all steps if they agree, else those of the middle step. A share
    counts the time in which two kernels of a stream overlap once. A rate needs the work of the activity, from the trace
    or from `work`: FLOPs and bytes by index in the step.
    """
    run, rates = device[experiment], Rates(device[experiment])
    require_kernels(run.trace)
    activities, durations, works = run.step.activities, durations_us(run.trace), step_work(run.step, work)
    times, overlaps = ([*map(statistics.fmean, each)] for each in (durations, step_overlaps_us(run.trace)))
    whole = math.fsum(us - overlap for us, overlap in zip(times, overlaps, strict=True)) or 1.0
    columns: dict[Cell, list[Cell]] = {
        "GPU activity": [kernel_name_html(activity.name) for activity in activities],
        "time, share": [
            Html(f"{duration_cell(us, overlap)}{_bar(100 * (us - overlap) / whole)}")
            for us, overlap in zip(times, overlaps, strict=True)
        ],
        "FLOP/s": [rates.flops(*pair) for pair in zip(works, durations, strict=True)],
        "bytes/s": [rates.bytes(*pair) for pair in zip(works, durations, strict=True)],
        "grid, block": [_stacked(_triple(activity.grid), _triple(activity.block)) for activity in activities],
        "operator": [code(activity.op.name, 40) if activity.op else None for activity in activities],
        "call": [code(activity.launch.name, 40) if activity.launch else None for activity in activities],
        "launch delay": [_us(activity.launch_delay_us) for activity in activities],
        "registers": [activity.registers for activity in activities],
        "shared memory": [_bytes(activity.shared_memory_bytes) for activity in activities],
    }
    filled = {head: cells for head, cells in columns.items() if head not in RATES or any(cells)}
    listed = table(
        caption or f"One step of {experiment}", list(filled), zip(*filled.values(), strict=True), folded=FOLDED
    )
    return Html(f'<div class="lab-kernels">{listed}{rates.note(works)}{note(_SHARED if any(overlaps) else "")}</div>')


_SHARED = (
    "A kernel that starts before the previous kernel has ended may only wait. Shares count the overlapping time once, "
    "with the previous kernel. Rates count it with both kernels."
)


def _bytes(number: int | None) -> str | None:
    return None if number is None else f"{number:,} bytes"


def _bar(percent: float) -> Html:
    bar = f'<span class="share" style="width: {percent:.1f}%"></span>'
    return Html(f'<small>{format_value(percent, "%")}</small><span class="shares">{bar}</span>')


def _stacked(upper: Cell, lower: Cell) -> Html | None:
    return None if upper is None and lower is None else Html(f"{cell_html(upper)}<br>{cell_html(lower)}")


def _us(value: float | None) -> str | None:
    return None if value is None else format_value(value, "us")


def _triple(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))


def profiler_table(device: Device, experiment: str, caption: str = "") -> Html:
    """The table that `key_averages()` prints, computed from the trace: own and total time on CPU and GPU, and calls.

    Sums over the whole trace. Operators without GPU work, most of which only rewrite metadata, are folded.
    """
    run = device[experiment]
    rows = key_averages(run.trace)
    whole = math.fsum(row.self_cpu_us for row in rows) or 1.0
    head = ["name", "self CPU %", "self CPU", "CPU total", "self GPU", "GPU total", "calls"]
    busy, idle = ([_averages(row, whole) for row in rows if row.is_idle is folded] for folded in (False, True))
    listed = table(
        caption or f"{experiment}: sums of the profiler over the {len(run.steps)} steps of the trace", head, busy
    )
    if idle:
        title = f"{len(idle)} operator{'s' * (len(idle) > 1)} without GPU work"
        listed = Html(listed + details(title, table(title, head, idle)))
    overlap = math.fsum(us for step in run.steps for us in overlaps_us(step))
    summed = f"GPU times are sums: they count {format_value(overlap, 'us')} twice, because kernels of a stream overlap."
    return Html(f'<div class="lab-averages">{listed}{note(summed if overlap else "")}</div>')


def _averages(row: Average, whole_us: float) -> list[Cell]:
    kind = "" if row.kind == "operator" else f"<small>{row.kind}</small>"
    times = (row.self_cpu_us, row.cpu_us, row.self_gpu_us, row.gpu_us)
    name = Html(f"{code(row.name)}{kind}")
    share = format_value(100 * row.self_cpu_us / whole_us, "%")
    return [name, share, *(format_value(us, "us") if us else None for us in times), row.calls]


def comparison_table(
    device: Device, variants: Mapping[str, str], caption: str, *, quantities: Mapping[str, str]
) -> Html:
    """Variants side by side: a row for each quantity, a column for each experiment.

    Args:
        device: whose recordings.
        variants: heading of a column -> `chapter/experiment`, or a point: `mlp/sweep_eager[batch=1,seq=1]`.
        caption: what the table shows.
        quantities: heading of a row -> name of a quantity, as in a figure's name.
    """
    rows: list[Sequence[Cell]] = [
        [heading, *(figure_cell(quantity(device[experiment], name)) for experiment in variants.values())]
        for heading, name in quantities.items()
    ]
    kinds = [name.removesuffix("_us") for name in quantities.values() if name.removesuffix("_us") in KINDS]
    timings = [device[experiment].timing(kind) for kind in kinds for experiment in variants.values()]
    return Html(table(caption, ["", *variants], rows) + note(spread_sentence(timings)))


def variants_table(
    device: Device,
    variants: Mapping[str, str],
    caption: str,
    *,
    columns: Columns,
    text_columns: int = 1,
) -> Html:
    """A row for each variant and a column for each quantity, unlike `comparison_table`.

    Args:
        device: whose recordings.
        variants: heading of a row -> experiment.
        caption: what the table shows.
        columns: heading -> the content of the column.
        text_columns: number of text columns, including the row headings.
    """
    rows = [
        [name, *(quantity(run, of).text if isinstance(of, str) else of(run) for of in columns.values())]
        for name, run in ((name, device[experiment]) for name, experiment in variants.items())
    ]
    return table(caption, ["", *columns], rows, text_columns=text_columns)


def sweep_table(
    device: Device,
    variants: Mapping[str, str],
    caption: str,
    *,
    cells: Mapping[str, Callable[[Run], Cell]],
    label: Callable[[Parameters], str],
) -> Html:
    """A row for each point of a sweep: the point's label, then the cells of each experiment.

    Args:
        device: whose recordings.
        variants: prefix of a heading -> `chapter/experiment`; all must have the same points.
        caption: what the table shows.
        cells: heading -> function of a run at a point.
        label: function from a point's parameters to its label.
    """
    runs = {prefix: device[experiment] for prefix, experiment in variants.items()}
    points = next(iter(runs.values())).points
    rows = [
        [
            label(point.parameters),
            *(cell(run.at(**point.parameters)) for cell in cells.values() for run in runs.values()),
        ]
        for point in points
    ]
    return table(caption, ["", *(f"{prefix} {name}".strip() for name in cells for prefix in runs)], rows)


def dispatch_tree(device: Device, experiment: str) -> Html:
    """The operators of the middle step, nested as they call each other, with the GPU work each one launches."""
    step = device[experiment].step
    launched: dict[CpuOp, list[str]] = defaultdict(list)
    for activity, overlap in zip(step.activities, overlaps_us(step), strict=True):
        if activity.op is not None:
            lasts = f"{format_value(activity.duration_us, 'us')}{f', {overlap_text(overlap)}' if overlap else ''}"
            launched[activity.op].append(f'<li class="gpu">GPU: {kernel_name_html(activity.name)} {lasts}</li>')
    roots = [op for op in step.ops if op.parent not in step.ops]
    return Html(f'<ul class="dispatch">{"".join(_branch(step, op, launched) for op in roots)}</ul>')


def _branch(step: Step, op: CpuOp, launched: Mapping[CpuOp, Sequence[str]]) -> str:
    shapes = " · ".join("x".join(map(str, shape)) for shape in op.input_shapes if shape)
    listed = f' <span class="shapes">{escape(shapes)}</span>' if shapes else ""
    gpu = "".join(launched.get(op, ()))
    inner = gpu + "".join(_branch(step, child, launched) for child in step.children(op))
    nested = f"<ul>{inner}</ul>" if inner else ""
    return f"<li>{code(op.name)} {format_value(op.duration_us, 'us')}{listed}{nested}</li>"
