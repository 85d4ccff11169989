"""What recordings say, as tables: kernels of a step, the profiler's table, variants side by side, dispatch tree."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape

from snippets.lab import recording, trace
from snippets.lab.figures import Figure, figure, in_words
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.recording import Recording
from snippets.lab.trace import CpuOp, GpuActivity, Step, Trace


def figure_cell(shown: Figure) -> Html:
    """A figure with its spread in small type below it."""
    spread = f"<small>{escape(shown.spread_text)}</small>" if shown.spread_text else ""
    mark = "" if shown.conclusive else ' <span class="inconclusive" title="the steps disagree">?</span>'
    return Html(f"{escape(shown.text)}{mark}{spread}")


def kernel_table(experiment: str, device: str, caption: str = "") -> Html:
    """The GPU activities of one step in order: name, operator, launch, mean duration over the active steps, footprint.

    Shows the middle step; durations are means over all steps when they agree, else of that step alone.
    """
    traced = recording.trace(experiment, device)
    trace.require_kernels(traced)
    step = middle_step(traced)
    agree = trace.steps_agree(traced)
    rows = []
    for place, activity in enumerate(step.activities):
        same = [other.activities[place].duration_us for other in traced.steps] if agree else [activity.duration_us]
        op, launch = traced.op_of(activity), traced.launch_of(activity)
        delay = traced.launch_delay_us(activity)
        rows.append(
            [
                code(activity.name) if activity.kind == "kernel" else activity.name,
                Html("<br>".join(code(one.name, 40) for one in (op, launch) if one)) or None,
                in_words(statistics.fmean(same), "us"),
                None if delay is None else in_words(delay, "us"),
                _triple(activity.grid),
                _triple(activity.block),
                activity.registers,
                None if activity.shared_memory_bytes is None else f"{activity.shared_memory_bytes:,}",
            ]
        )
    head = ["GPU activity", "from operator, by call", "time", "launch delay"]
    head += ["grid", "block", "registers", "shared memory, bytes"]
    return table(caption or f"One step of {experiment}", head, rows, text_columns=2)


def middle_step(traced: Trace) -> Step:
    """The step in the middle: the first may carry start-up, the last the closing wait. Raises `TraceError`."""
    trace.require_steps(traced)
    return traced.steps[len(traced.steps) // 2]


def _triple(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))


def profiler_table(experiment: str, device: str, caption: str = "") -> Html:
    """The table `key_averages()` prints, computed from the trace: self and total CPU time, GPU time, calls.

    Sums over all active steps. A row's GPU time is that of the work its operator launched itself; an operator that
    only rewrites metadata shows a dash.
    """
    traced = recording.trace(experiment, device)
    trace.require_steps(traced)
    ops = [op for step in traced.steps for op in step.ops]
    gpu_us: dict[int, float] = defaultdict(float)
    for activity in (activity for step in traced.steps for activity in step.activities):
        op = traced.op_of(activity)
        if op is not None:
            gpu_us[op.index] += activity.duration_us
    rows: dict[str, list[float]] = {}
    for op in ops:
        row = rows.setdefault(op.name, [0.0, 0.0, 0.0, 0])
        inside = sum(child.duration_us for child in traced.children(op))
        for place, amount in enumerate((op.duration_us - inside, op.duration_us, gpu_us[op.index], 1)):
            row[place] += amount
    ordered = sorted(rows.items(), key=lambda item: (-item[1][2], -item[1][1], item[0]))
    cells = [
        [code(name), in_words(own, "us"), in_words(total, "us"), in_words(gpu, "us") if gpu else None, int(calls)]
        for name, (own, total, gpu, calls) in ordered
    ]
    head = ["operator", "self CPU", "CPU total", "self GPU", "calls"]
    return table(caption or f"{experiment}: sums over {len(traced.steps)} steps", head, cells)


def compared(experiments: Mapping[str, str], quantities: Mapping[str, str], device: str, caption: str) -> Html:
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
    found = {prefix: recording.load(name, device) for prefix, name in experiments.items()}
    first = next(iter(found.values()))
    rows = [
        [label(at.parameters), *(cell(one, i) for cell in heads.values() for one in found.values())]
        for i, at in enumerate(first.points)
    ]
    return table(caption, ["", *(f"{prefix} {name}".strip() for name in heads for prefix in found)], rows)


def dispatch_tree(experiment: str, device: str) -> Html:
    """The operators of the middle step, nested as they call each other, with the GPU work each one launches."""
    traced = recording.trace(experiment, device)
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
        f'<li class="gpu">GPU: {code(one.name)} {in_words(one.duration_us, "us")}</li>'
        for one in of_op.get(op.index, ())
    )
    inner = gpu + "".join(_branch(child, traced, of_op) for child in traced.children(op))
    nested = f"<ul>{inner}</ul>" if inner else ""
    return f"<li>{code(op.name)} {in_words(op.duration_us, 'us')}{shown}{nested}</li>"


def journey(experiment: str, device: str, caption: str = "") -> Html:
    """How the first kernel of the middle step came to run: operators, call, kernel, and what ties them."""
    traced = recording.trace(experiment, device)
    trace.require_kernels(traced)
    step = middle_step(traced)
    kernel = step.kernels[0]
    op, launch = traced.op_of(kernel), traced.launch_of(kernel)
    rows: list[Sequence[Cell]] = []
    for one in traced.dispatch_chain(op) if op else ():
        kind = "annotation" if one.is_annotation else "operator"
        tie = f"External id {one.external_id}" if one is op else "time: it encloses the next row"
        rows.append([code(one.name), f"{kind}, CPU", tie, _since(step, one.start_us), in_words(one.duration_us, "us")])
    if launch:
        tie = f"External id {launch.external_id}, correlation {launch.correlation}"
        rows.append(
            [
                code(launch.name),
                "CUDA call, CPU",
                tie,
                _since(step, launch.start_us),
                in_words(launch.duration_us, "us"),
            ]
        )
    tie = f"External id {kernel.external_id}, correlation {kernel.correlation}"
    rows.append(
        [
            code(kernel.name),
            f"kernel, stream {kernel.stream}",
            tie,
            _since(step, kernel.start_us),
            in_words(kernel.duration_us, "us"),
        ]
    )
    head = ["name", "what and where", "tied by", "begins after", "lasts"]
    return table(caption or f"From annotation to kernel: {experiment}, {step.name}", head, rows, text_columns=3)


def _since(step: Step, time_us: float) -> str:
    return in_words(time_us - step.start_us, "us")


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
    return compared(steps, FIRST_LOOK, device, "A first look at three traces")
