"""The GPU and CPU time of one layer, eager and compiled, at two shapes and with a growing number of rows."""

from collections.abc import Mapping
from functools import partial

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.queries import find_op
from snippets.lab.finding import Device, Figure, Run, at_least, at_most, between, claim, equals, matches
from snippets.lab.finding.measure import derived, paired_ratio, ratio_of_kinds
from snippets.lab.page import (
    Computation,
    figure_cell,
    kernel_name_html,
    prediction as prediction,
    race_bars,
    regimes,
    roofline,
    show as show,
    timeline,
    waiting,
)
from snippets.linear.findings.layer import ending, input_strides, one_and_the_same, same_work

PAIRS = {
    "1024x32→64": ("linear/eager", "linear/compiled"),
    "64x1024→4096": ("linear/eager_wide", "linear/compiled_wide"),
}
"""Shape -> the same layer eager and compiled, timed interleaved."""
LAYERS = tuple(experiment for pair in PAIRS.values() for experiment in pair)
SWEEPS = {"eager": "linear/sweep_eager", "compiled": "linear/sweep_compiled"}
"""The wide layer with a growing number of rows, timed interleaved."""
ROWS = {f"{n:,} row{'s' * (n > 1)}": f"linear/sweep_eager[batch={n}]" for n in (1, 16, 64, 256, 1024, 4096)}
"""Points of the sweep."""
MATMULS = ("linear/eager", "linear/eager_wide", "matmul_add/eager_64", "matmul_add/eager_4096", "mlp/eager")
"""Steps with matmuls whose second factor is a transposed view, and others."""


@claim("O-L1", equals(True), scope="this-gpu")
def same_wide_kernel(device: Device) -> Figure:
    """To turn 64 rows of 1024 numbers into rows of 4096, nn.Linear runs one kernel, which is the same in eager code and
    in compiled code."""
    return one_and_the_same(device["linear/eager_wide"], device["linear/compiled_wide"])


@claim("O-L2", equals(False), scope="this-gpu")
def same_at_both_shapes(device: Device) -> Figure:
    """nn.Linear runs different kernels to turn 1024 rows of 32 numbers into rows of 64, and to turn 64 rows of 1024
    numbers into rows of 4096."""
    return same_work(device["linear/eager"], device["linear/eager_wide"])


@claim("O-L3", matches("[^,+]*Launch[^,+]*"), scope="this-gpu")
def cuda_calls(device: Device) -> Figure:
    """At both shapes, an eager forward and a compiled forward of nn.Linear each make one CUDA call, the launch, and no
    occupancy query."""
    calls = [device[layer].per_step(lambda step: " + ".join(call.name for call in step.calls)) for layer in LAYERS]
    kinds = ", ".join(dict.fromkeys(figure.text for figure in calls))
    return derived(kinds, *calls, display=f"{kinds}, in all {len(calls)} variants")


def compiled_to_eager(device: Device, shape: str, kind: str) -> Figure:
    """The time of the compiled layer / the eager layer's."""
    eager, compiled = PAIRS[shape]
    return paired_ratio(device[compiled], device[eager], kind)


def deciding(figures: Mapping[str, Figure], value: float) -> Figure:
    """The deciding one of several ratios, with all of them as text."""
    display = ", ".join(f"{figure.text} at {heading}" for heading, figure in figures.items())
    return derived(value, *figures.values(), unit="x", display=display)


@claim("O-L4", at_least(1.2), scope="timing")
def dearer_calls(device: Device) -> Figure:
    """At both shapes, a call of the compiled nn.Linear takes the CPU at least 20 % longer than an eager call."""
    ratios = {shape: compiled_to_eager(device, shape, "enqueue") for shape in PAIRS}
    return deciding(ratios, min(ratio.number for ratio in ratios.values()))


@claim("O-L5", between(0.9, 1.1), scope="timing")
def same_gpu_time(device: Device) -> Figure:
    """At both shapes, compiling nn.Linear changes its GPU time by at most 10 %."""
    ratios = {shape: compiled_to_eager(device, shape, "interleaved") for shape in PAIRS}
    return deciding(ratios, max((ratio.number for ratio in ratios.values()), key=lambda number: abs(number - 1)))


@claim("O-L6", at_least(2), scope="timing")
def overhead_bound(device: Device) -> Figure:
    """On this host, eager and compiled calls of nn.Linear are overhead-bound at both shapes: enqueueing a call takes
    the CPU at least twice the call's GPU time."""
    ratios = {experiment: ratio_of_kinds(device[experiment], "enqueue") for experiment in LAYERS}
    return deciding(ratios, min(ratio.number for ratio in ratios.values()))


def matmuls(run: Run) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
    """The matmuls of a step: shape and strides of the second factor, kernel."""
    second = {"aten::mm": 1, "aten::addmm": 2}
    pairs = ((kernel, kernel.op, second.get(kernel.op.name)) for kernel in run.step.kernels if kernel.op)
    return [(op.input_shapes[at], input_strides(op, at), kernel.name) for kernel, op, at in pairs if at is not None]


@claim("O-L7", equals(True), scope="this-gpu")
def first_letters(device: Device) -> Figure:
    """The three letters at the end of an nvjet name begin with T if the second factor is a transposed view, and
    otherwise with N."""
    pairs = [(strides[0] == 1, ending(name)[:1]) for run in MATMULS for _, strides, name in matmuls(device[run])]
    fits, views = sum(letter == ("T" if view else "N") for view, letter in pairs), sum(view for view, _ in pairs)
    display = f"{fits} of {len(pairs)} products, {views} of them with a transposed view"
    return Figure(fits == len(pairs) and 0 < views < len(pairs), origin=", ".join(MATMULS), display=display)


@claim("O-L8", at_least(1.2), scope="timing")
def matrix_to_row(device: Device) -> Figure:
    """At size 64, aten::addmm takes the GPU at least 20 % longer with a matrix of bias than with a row of bias."""
    return paired_ratio(device["matmul_add/matrix_bias_64"], device["matmul_add/row_bias_64"])


@claim("O-L9", at_most(1.2), scope="timing")
def sixty_four_rows(device: Device) -> Figure:
    """The wide layer takes the GPU at most 20 % longer with 64 rows than with one row."""
    many, single = (device[f"linear/sweep_eager[batch={rows}]"].time() for rows in (64, 1))
    return derived(many.number / single.number, many, single, unit="x")


def rows_bound(run: Run) -> int:
    """The largest number of rows in a sweep at which a call takes longer on the CPU than on the GPU; 0 for none."""
    timed = ((int(at.parameters["batch"]), run.at(**at.parameters)) for at in run.points)
    return max((rows for rows, point in timed if ratio_of_kinds(point, "enqueue").number > 1), default=0)


@claim("O-L10", at_least(2), scope="timing")
def rows_of_both(device: Device) -> Figure:
    """On this host, the compiled wide layer stays overhead-bound up to at least twice as many rows as the eager
    layer."""
    eager, compiled = (rows_bound(device[sweep]) for sweep in SWEEPS.values())
    display = f"eager up to {eager:,} rows, compiled up to {compiled:,}"
    return Figure(compiled / eager, "x", origin=", ".join(SWEEPS.values()), display=display)


@claim("O-L11", at_least(1.5), scope="timing")
def loop_of_both(device: Device) -> Figure:
    """On this host, a Python loop over the wide layer with 4096 rows takes at least 50 % longer if the layer is
    compiled than if the layer is eager."""
    eager, compiled = (device[f"{sweep}[batch=4096]"] for sweep in SWEEPS.values())
    return paired_ratio(compiled, eager, "from_python")


def idle_share(run: Run) -> Figure:
    """Share of a Python loop's step in which the GPU is idle."""
    share = 100 * (1 - run.timing().median_us / run.timing("from_python").median_us)
    return Figure(share, "%", origin=f"{run.origin}, 1 - interleaved / from_python")


READING_ROWS = Computation(
    "With 64 rows, the layer moves how many times the bytes that it moves with one row?",
    "linear.bytes_of_rows",
    "With one row and with 64 rows, the kernel reads the weight of 1024 x 4096 numbers once.",
    "Count the weight once. For each row, count 1024 numbers of input and 4096 numbers of output.",
    {64.0: "that is the factor of the arithmetic. But the kernel reads the weight only once."},
)
FIGURES = {
    "bytes_of_rows": lambda device: Figure(
        device["linear/sweep_eager[batch=64]"].point.bytes / device["linear/sweep_eager[batch=1]"].point.bytes,
        "x",
        origin="the shapes",
    ),
    "compiled_gpu": lambda device: compiled_to_eager(device, "1024x32→64", "interleaved"),
    "matrix_bias_bytes": lambda device: device["matmul_add/matrix_bias_64"].per_step(
        lambda step: step.memcpys[0].moved_bytes or 0, "bytes"
    ),
    "compiled_cpu": lambda device: compiled_to_eager(device, "1024x32→64", "enqueue"),
    "compiled_loop": lambda device: compiled_to_eager(device, "1024x32→64", "from_python"),
    "replay": lambda device: ratio_of_kinds(device["linear/eager"], "from_python"),
    "idle": lambda device: idle_share(device["linear/eager"]),
    "idle_wide": lambda device: idle_share(device["linear/eager_wide"]),
}


HEADINGS = {"1024x32→64": "1,024 rows, 32 to 64 numbers", "64x1024→4096": "64 rows, 1,024 to 4,096 numbers"}
opening = partial(
    waiting, sizes={HEADINGS[shape]: dict(zip(SWEEPS, pair, strict=True)) for shape, pair in PAIRS.items()}
)
row_and_matrix = partial(
    timeline, variants={f"addmm with a {kind} of bias": f"matmul_add/{kind}_bias_64" for kind in ("row", "matrix")}
)
both_layers = partial(
    race_bars,
    variants={f"{how}, {at}": name for at, pair in PAIRS.items() for how, name in zip(SWEEPS, pair, strict=True)},
    kinds=("interleaved", "steady", "from_python", "enqueue"),
)
wide_roofline = partial(roofline, variants=ROWS)


def biases(device: Device) -> Html:
    """GPU work and time of `addmm` with a row and with a matrix of bias, of the layer and of Part 1's function."""
    rows: list[list[Cell]] = []
    for heading, experiment in {
        "nn.Linear, eager": "linear/eager",
        "addmm with a row of bias": "matmul_add/row_bias_64",
        "addmm with a matrix of bias": "matmul_add/matrix_bias_64",
        "compiled matmul + add": "matmul_add/compiled_64",
    }.items():
        run = device[experiment]
        shape = "x".join(map(str, find_op(run.step, "aten::addmm").input_shapes[0]))
        listed = Html("<br>".join(kernel_name_html(activity.name) for activity in run.step.activities))
        rows.append([heading, shape, listed, figure_cell(run.time())])
    head = ["step", "shape of the bias", "GPU work of a step, in order", "GPU time, interleaved"]
    return table("GPU work of aten::addmm, by kind of bias", head, rows, text_columns=3)


def layouts(device: Device) -> Html:
    """The layout of each matmul's second factor, and the end of its kernel's name."""
    rows: list[list[Cell]] = []
    for experiment in MATMULS:
        for shape, strides, name in matmuls(device[experiment]):
            read = "transposed" if strides[0] == 1 else "as stored"
            factor = Html(f"{'x'.join(map(str, shape))} {read}<small>strides {strides}</small>")
            rows.append([experiment, factor, ending(name), kernel_name_html(name)])
    head = ["experiment", "second factor", "end of the name", "kernel"]
    return table("The last letters of kernel names, by layout of the second factor", head, rows, text_columns=4)


wide_regimes = partial(regimes, variants=SWEEPS, size=lambda at: int(at["batch"]), unit="rows")
