"""What recordings say, as tables: kernels of a step, the profiler's table, variants side by side, dispatch tree."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape

from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.quantities import figure
from snippets.lab.html import Cell, Html, cell_html, code, details, table
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.page.rates import byte_rate, flop_rate, rates_note
from snippets.lab.recording.ceilings import ceiling_rates
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Recording
from snippets.lab.trace.averages import Average, key_averages
from snippets.lab.trace.events import CpuOp, GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import durations_us, middle_step, require_kernels, require_steps
from snippets.lab.trace.work import KnownWork, step_work

RATES = ("FLOP/s", "bytes/s")
"""Columns that a table of kernels has only where something is known."""


def figure_cell(shown: Figure) -> Html:
    """A figure with its spread in small type below it, where three digits show one."""
    is_wide = shown.spread is not None and len({format_value(bound, shown.unit) for bound in shown.spread}) > 1
    spread = f"<small>{escape(shown.spread_text)}</small>" if is_wide else ""
    mark = "" if shown.conclusive else ' <span class="inconclusive" title="the steps disagree">?</span>'
    return Html(f"{escape(shown.text)}{mark}{spread}")


def kernel_table(
    experiment: str,
    device: str,
    caption: str = "",
    *,
    work: KnownWork | Callable[[Trace, Step], KnownWork] | None = None,
) -> Html:
    """The GPU activities of one step in order: name, time and share of it, who launched it and how, rates, footprint.

    Shows the middle step; durations are means over all steps when they agree, else of that step alone. Rates stand
    where the trace tells how much work there was, or `work` does: FLOPs and bytes by place in the step.
    """
    traced = load_trace(experiment, device)
    require_kernels(traced)
    step = middle_step(traced)
    times, works = tuple(map(statistics.fmean, durations_us(traced, step))), step_work(traced, step, work)
    ceilings = ceiling_rates(load_recording(experiment, device))
    whole = math.fsum(times) or 1.0
    columns: dict[Cell, list[Cell]] = {
        "GPU activity": [kernel_name_html(one.name) for one in step.activities],
        "time": [format_value(us, "us") for us in times],
        "share": [_bar(100 * us / whole) for us in times],
        _text("from operator, by call"): [_from(traced, one) for one in step.activities],
        "launch delay": [_us(traced.launch_delay_us(one)) for one in step.activities],
        "FLOP/s": [flop_rate(*one, ceilings) for one in zip(works, times, strict=True)],
        "bytes/s": [byte_rate(*one, ceilings) for one in zip(works, times, strict=True)],
        "grid, block": [_stacked(_triple(one.grid), _triple(one.block)) for one in step.activities],
        "registers, shared bytes": [
            _stacked(one.registers, None if one.shared_memory_bytes is None else f"{one.shared_memory_bytes:,}")
            for one in step.activities
        ],
    }
    shown = {head: cells for head, cells in columns.items() if head not in RATES or any(cells)}
    listed = table(caption or f"One step of {experiment}", list(shown), zip(*shown.values(), strict=True))
    return Html(f'<div class="lab-kernels">{listed}{rates_note(works, ceilings)}</div>')


def _bar(percent: float) -> Html:
    bar = f'<span class="share" style="width: {percent:.1f}%"></span>'
    return Html(f'{format_value(percent, "%")}<span class="shares">{bar}</span>')


def _text(content: str) -> Html:
    """A cell of text in a column of numbers."""
    return Html(f'<span class="text">{content}</span>')


def _from(traced: Trace, activity: GpuActivity) -> Html | None:
    names = [code(one.name, 40) for one in (traced.op_of(activity), traced.launch_of(activity)) if one]
    return _text("<br>".join(names)) if names else None


def _stacked(upper: Cell, lower: Cell) -> Html | None:
    return None if upper is None and lower is None else Html(f"{cell_html(upper)}<br>{cell_html(lower)}")


def _us(value: float | None) -> str | None:
    return None if value is None else format_value(value, "us")


def _triple(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))


def profiler_table(experiment: str, device: str, caption: str = "") -> Html:
    """The table that `key_averages()` prints, computed from the trace: own and total time on both sides, calls.

    Sums over the whole trace. Operators that never reach the GPU, most of which only rewrite metadata, are folded.
    """
    traced = load_trace(experiment, device)
    require_steps(traced)
    rows = key_averages(traced)
    whole = math.fsum(row.self_cpu_us for row in rows) or 1.0
    head = ["name", "self CPU %", "self CPU", "CPU total", "self GPU", "GPU total", "calls"]
    busy, idle = ([_averages(row, whole) for row in rows if row.is_idle is folded] for folded in (False, True))
    shown = table(caption or f"{experiment}: sums over the whole trace, {len(traced.steps)} steps", head, busy)
    if idle:
        title = f"{len(idle)} operator{'s' * (len(idle) > 1)} that never reach{'es' * (len(idle) == 1)} the GPU"
        shown = Html(shown + details(title, table(title, head, idle)))
    return Html(f'<div class="lab-averages">{shown}</div>')


def _averages(row: Average, whole_us: float) -> list[Cell]:
    kind = "" if row.kind == "operator" else f"<small>{row.kind}</small>"
    times = (row.self_cpu_us, row.cpu_us, row.self_gpu_us, row.gpu_us)
    name = Html(f"{code(row.name)}{kind}")
    share = format_value(100 * row.self_cpu_us / whole_us, "%")
    return [name, share, *(format_value(us, "us") if us else None for us in times), row.calls]


def comparison_table(experiments: Mapping[str, str], quantities: Mapping[str, str], device: str, caption: str) -> Html:
    """Variants side by side: a row for each quantity, a column for each experiment.

    Args:
        experiments: heading of a column -> `chapter/experiment`, or a point of it: `mlp/sweep_eager[batch=1,seq=1]`.
        quantities: heading of a row -> name of a quantity, as in a figure's name.
    """
    rows: list[Sequence[Cell]] = [
        [heading, *(figure_cell(figure(_name(one, quantity), device)) for one in experiments.values())]
        for heading, quantity in quantities.items()
    ]
    return table(caption, ["", *experiments], rows)


def _name(experiment: str, quantity: str) -> str:
    path, bracket, place = experiment.partition("[")
    return f"{path.replace('/', '.')}.{quantity}{bracket}{place}"


def sweep_table(
    experiments: Mapping[str, str],
    heads: Mapping[str, Callable[[Recording, int], Cell]],
    device: str,
    caption: str,
    label: Callable[[Mapping[str, int | str]], str],
) -> Html:
    """A row for each point of a sweep: `label(parameters)`, then each of `heads` for each experiment.

    Args:
        experiments: prefix of a heading -> `chapter/experiment`; all must have the same points.
        heads: heading -> function of a recording and the index of its point.
    """
    found = {prefix: load_recording(name, device) for prefix, name in experiments.items()}
    first = next(iter(found.values()))
    rows = [
        [label(at.parameters), *(cell(one, i) for cell in heads.values() for one in found.values())]
        for i, at in enumerate(first.points)
    ]
    return table(caption, ["", *(f"{prefix} {name}".strip() for name in heads for prefix in found)], rows)


def dispatch_tree(experiment: str, device: str) -> Html:
    """The operators of the middle step, nested as they call each other, with the GPU work each one launches."""
    traced = load_trace(experiment, device)
    step = middle_step(traced)
    inside = {op.index for op in step.ops}
    of_op: dict[int, list[GpuActivity]] = defaultdict(list)
    for activity in step.activities:
        op = traced.op_of(activity)
        if op is not None:
            of_op[op.index].append(activity)
    roots = [op for op in step.ops if op.parent not in inside]
    return Html(f'<ul class="dispatch">{"".join(_branch(op, traced, of_op) for op in roots)}</ul>')


def _branch(op: CpuOp, traced: Trace, of_op: Mapping[int, Sequence[GpuActivity]]) -> str:
    shapes = " · ".join("x".join(map(str, shape)) for shape in op.input_shapes if shape)
    shown = f' <span class="shapes">{escape(shapes)}</span>' if shapes else ""
    gpu = "".join(
        f'<li class="gpu">GPU: {kernel_name_html(one.name)} {format_value(one.duration_us, "us")}</li>'
        for one in of_op.get(op.index, ())
    )
    inner = gpu + "".join(_branch(child, traced, of_op) for child in traced.children(op))
    nested = f"<ul>{inner}</ul>" if inner else ""
    return f"<li>{code(op.name)} {format_value(op.duration_us, 'us')}{shown}{nested}</li>"


def journey(experiment: str, device: str, caption: str = "") -> Html:
    """How the first kernel of the middle step came to run: operators, call, kernel, and what ties them."""
    traced = load_trace(experiment, device)
    require_kernels(traced)
    step = middle_step(traced)
    if not step.kernels:
        raise TraceError(f"{experiment}: {step.name} has no kernel, though another step has one")
    kernel = step.kernels[0]
    op, launch = traced.op_of(kernel), traced.launch_of(kernel)
    rows: list[Sequence[Cell]] = []
    for one in traced.dispatch_chain(op) if op else ():
        kind = "annotation" if one.is_annotation else "operator"
        tie = f"External id {one.external_id}" if one is op else "time: it encloses the next row"
        rows.append(
            [code(one.name), f"{kind}, CPU", tie, _since(step, one.start_us), format_value(one.duration_us, "us")]
        )
    if launch:
        tie = f"External id {launch.external_id}, correlation {launch.correlation}"
        rows.append(
            [
                code(launch.name),
                "CUDA call, CPU",
                tie,
                _since(step, launch.start_us),
                format_value(launch.duration_us, "us"),
            ]
        )
    tie = f"External id {kernel.external_id}, correlation {kernel.correlation}"
    rows.append(
        [
            kernel_name_html(kernel.name),
            f"kernel, stream {kernel.stream}",
            tie,
            _since(step, kernel.start_us),
            format_value(kernel.duration_us, "us"),
        ]
    )
    head = ["name", "what and where", "tied by", "begins after", "lasts"]
    return table(caption or f"From annotation to kernel: {experiment}, {step.name}", head, rows, text_columns=3)


def _since(step: Step, time_us: float) -> str:
    return format_value(time_us - step.start_us, "us")


FIRST_LOOK = {
    "kernels in a step": "kernels_per_step",
    "copies in a step": "memcpys_per_step",
    "fills in a step": "memsets_per_step",
    "GPU busy": "busy_us",
    "the step on the CPU": "cpu_us",
}


def first_look(device: str) -> Html:
    """The numbers to look at first, for a step that waits for the CPU and for one that does not."""
    steps = {"linear, eager": "linear/eager", "MLP, eager": "mlp/eager", "MLP, compiled": "mlp/compiled"}
    return comparison_table(steps, FIRST_LOOK, device, "A first look at three traces")
