"""What the chapter linear shows and claims: one layer is one kernel, and all the rest happens on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from snippets.lab.drawing.charts import cpu_gpu_bars, regimes, roofline
from snippets.lab.drawing.timeline import timeline
from snippets.lab.finding.claim import Claim, Source, Status
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import of_steps, paired_samples_ratio, per_step
from snippets.lab.finding.quantities import UnknownFigure, figure, point
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page.diff import diff_table
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.page.tables import dispatch_tree, figure_cell, kernel_table, profiler_table
from snippets.lab.recording.device import DEFAULT_DEVICE, shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Timings
from snippets.lab.trace.events import CpuOp, GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import busy_us, middle_step

# KEEP timeline

LABEL = "linear_fwd"
A100_KERNEL = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8"
EAGER, COMPILED = "linear/eager", "linear/compiled"
WIDE, COMPILED_WIDE = "linear/eager_wide", "linear/compiled_wide"
PAIRS = {"1024x32→64": (EAGER, COMPILED), "64x1024→4096": (WIDE, COMPILED_WIDE)}
"""Shape -> the same layer eager and compiled, recorded in turns."""
SWEEPS = {"eager": "linear/sweep_eager", "compiled": "linear/sweep_compiled"}
"""The wide layer with more and more rows, recorded in turns."""
SIDES = {"the GPU": "warm", "the CPU": "enqueue"}
"""Who works on a step -> the timing of its share."""
PRODUCTS = (EAGER, WIDE, "matmul_add/eager_64", "matmul_add/eager_4096", "mlp/eager")
"""Products whose second factor is a transposed view, and others."""
ROUNDING = 0.05
"""By so much two results of the layer in bf16 may differ and both be right."""
COMPILED_ROWS = ("TorchDynamo Cache", "Torch-Compiled Region", "AOTDispatcher Runtime", "## Call CompiledFxGraph")


def in_steps(experiment: str, device: str, of: Callable[[Trace, Step], int | str | bool]) -> Figure:
    """What every active step of an experiment shows."""
    traced = load_trace(experiment, device)
    return of_steps(traced, lambda step: of(traced, step), experiment)


def work(_: Trace, step: Step) -> str:
    """GPU work of a step, counted by kind."""
    plural = "" if len(step.kernels) == 1 else "s"
    return f"{len(step.kernels)} kernel{plural}, {len(step.memcpys)} memcpy, {len(step.memsets)} memset"


def gpu_names(_: Trace, step: Step) -> str:
    """GPU work of a step by name, in order."""
    return " + ".join(activity.name for activity in step.activities)


def calls(traced: Trace, step: Step) -> str:
    """Operators under the step's label as they call each other: `f(g, h)`."""

    def called(op: CpuOp) -> str:
        inner = ", ".join(map(called, traced.children(op)))
        return f"{op.name}({inner})" if inner else op.name

    label = traced.label_span(step, LABEL)
    return ", ".join(map(called, traced.children(label))) if label else ""


def aten_ops(_: Trace, step: Step) -> str:
    """PyTorch's operators in a step, each once."""
    return ", ".join(dict.fromkeys(op.name for op in step.ops if op.name.startswith("aten::")))


def under(name: str, traced: Trace, step: Step) -> list[GpuActivity]:
    """GPU work put there by operators of this name or inside them. Raises `TraceError` when a step has none of them."""
    if not any(op.name == name for op in step.ops):
        raise TraceError(f"{step.name} has no {name}")
    owners = [(activity, traced.op_of(activity)) for activity in step.activities]
    return [one for one, op in owners if op and any(above.name == name for above in traced.dispatch_chain(op))]


def launched_by(device: str) -> Figure:
    """The operators that put work on the GPU, in order."""

    def owners(traced: Trace, step: Step) -> str:
        found = (traced.op_of(activity) for activity in step.activities)
        return ", ".join(op.name if op else "none" for op in found)

    return in_steps(EAGER, device, owners)


def strides(experiment: str, device: str) -> Mapping[int | None, tuple[tuple[int, ...], ...]]:
    """Strides of the inputs of each operator, by its external id: `record_shapes` writes them beside the shapes."""
    found = {op.external_id: op.input_strides for op in load_trace(experiment, device).cpu_ops if op.input_strides}
    if not found:
        raise TraceError(f"{experiment}: its trace has no strides; record it with a newer torch")
    return found


def transpose_share(device: str) -> Figure:
    """CPU time of `aten::t` and what it calls, in percent of that of the `aten::linear` around it, in the trace."""

    def share(step: Step) -> float:
        transpose, linear = (
            sum(op.duration_us for op in step.ops if op.name == name) for name in ("aten::t", "aten::linear")
        )
        if not transpose or not linear:
            raise TraceError(f"{step.name} has no transpose inside an aten::linear")
        return 100 * transpose / linear

    return per_step(load_trace(EAGER, device), share, "%", f"{EAGER}, per step of its trace")


def same_work(first: str, second: str, device: str) -> Figure:
    """Whether two experiments put work of the same names on the GPU, in the same order."""
    one, other = (in_steps(experiment, device, gpu_names) for experiment in (first, second))
    same = one.value == other.value
    said = f"in both {one.value}" if same else f"{one.value} against {other.value}"
    return Figure(same, said=said, origin=f"{first}, {second}", conclusive=one.conclusive and other.conclusive)


def one_and_the_same(eager: str, compiled: str, device: str) -> Figure:
    """Whether both variants of a layer are one kernel and nothing else, the same one."""
    found, counted = same_work(eager, compiled, device), in_steps(eager, device, work)
    one = str(counted.value).startswith("1 kernel, 0 memcpy")
    return Figure(bool(found.value) and one, said=f"{counted.value}, {found.text}", conclusive=found.conclusive)


def work_of_transpose(device: str) -> Figure:
    """How much GPU work `aten::t` causes."""
    found = in_steps(EAGER, device, lambda traced, step: len(under("aten::t", traced, step)))
    traced = load_trace(EAGER, device)
    us = sum(one.duration_us for step in traced.steps for one in under("aten::t", traced, step))
    return Figure(
        found.value, said=f"{found.value} GPU activities, {format_value(us, 'us')}", conclusive=found.conclusive
    )


def rows_of_compiled(device: str) -> Figure:
    """Rows of the CPU lane that only the compiled step has, operators left out."""

    def rows(_: Trace, step: Step) -> str:
        return ", ".join(dict.fromkeys(_without_hash(op.name) for op in step.ops if "aten::" not in op.name))

    eager, compiled = in_steps(EAGER, device, rows), in_steps(COMPILED, device, rows)
    only = [row for row in str(compiled.value).split(", ") if row not in str(eager.value).split(", ")]
    return Figure(", ".join(only), origin=COMPILED, conclusive=eager.conclusive and compiled.conclusive)


def _without_hash(row: str) -> str:
    return "## Call CompiledFxGraph … ##" if row.startswith("## Call CompiledFxGraph ") else row


def weight_as_view(device: str) -> Figure:
    """Whether the weight reaches `aten::addmm` as `aten::t` got it, shape and strides reversed and nothing moved."""
    given = strides(EAGER, device)

    def seen(traced: Trace, step: Step) -> str:
        stored = next(op for op in step.ops if op.name == "aten::t")
        used = next(op for op in step.ops if op.name == "aten::addmm")
        before, after = (stored.input_shapes[0], used.input_shapes[2])
        walked, then = given[stored.external_id][0], given[used.external_id][2]
        moved = len(under("aten::t", traced, step)) + len(step.memcpys)
        is_view = (after, then, moved) == (before[::-1], walked[::-1], 0)
        verdict = "a view" if is_view else "no view"
        return f"{verdict}: {before} with strides {walked}, then {after} with strides {then}, {moved} GPU activities"

    return in_steps(EAGER, device, seen)


def weight_strides(device: str) -> Figure:
    """The strides with which `aten::addmm` gets the weight."""
    given = strides(EAGER, device)

    def walked(_: Trace, step: Step) -> str:
        return str(given[next(op for op in step.ops if op.name == "aten::addmm").external_id][2])

    return in_steps(EAGER, device, walked)


def fed_new_strides(device: str) -> Figure:
    """What came of feeding a compiled layer other strides: an error, a wrong result, or neither."""
    data = load_recording("linear/new_strides", device).data
    before, after = data["graphs"]
    result = f"{data['raised'] or 'no error'}, {after - before} more graph compiled"
    said = f"{result}, largest difference from eager {data['largest_difference']:g}"
    wrong = data["largest_difference"] > ROUNDING
    outcome = "an error" if data["raised"] else "a wrong result" if wrong else "neither"
    return Figure(outcome, said=said, origin="linear/new_strides")


def products(experiment: str, device: str) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
    """The products of a step: shape and strides of the second factor, kernel."""
    traced, given, found = load_trace(experiment, device), strides(experiment, device), []
    for kernel in middle_step(traced).kernels:
        op = traced.op_of(kernel)
        if op is not None and op.name in ("aten::mm", "aten::addmm"):
            place = 1 if op.name == "aten::mm" else 2
            found.append((op.input_shapes[place], given[op.external_id][place], kernel.name))
    return found


def ending(name: str) -> str:
    """What stands behind the last underscore of a kernel's name."""
    return name.rpartition("_")[2]


def first_letters(device: str) -> Figure:
    """Whether a name's ending begins with T where the second factor is a transposed view, and with N elsewhere."""
    seen = [(walked[0] == 1, ending(name)[:1]) for one in PRODUCTS for _, walked, name in products(one, device)]
    fits = [letter == ("T" if view else "N") for view, letter in seen]
    views = sum(view for view, _ in seen)
    said = f"{sum(fits)} of {len(fits)} products, {views} of them with a transposed view"
    return Figure(all(fits) and 0 < views < len(seen), said=said, origin=", ".join(PRODUCTS))


def layout_in_name(device: str) -> Figure:
    """The layout letters of the layer's kernel: a part like `tn`, else the name's ending."""

    def letters(_: Trace, step: Step) -> str:
        name = step.kernels[0].name
        return next((part for part in name.split("_") if part in ("nn", "nt", "tn", "tt")), ending(name))

    return in_steps(EAGER, device, letters)


def cuda_calls(device: str) -> Figure:
    """What a forward calls in CUDA, over both shapes and both variants."""
    layers = [one for pair in PAIRS.values() for one in pair]
    seen = [in_steps(one, device, lambda _, step: " + ".join(call.name for call in step.launches)) for one in layers]
    kinds = ", ".join(dict.fromkeys(str(one.value) for one in seen))
    return Figure(kinds, said=f"{kinds}, in all {len(seen)} variants", conclusive=all(one.conclusive for one in seen))


def timings(experiment: str, device: str, place: str = "") -> Timings:
    """The timings of an experiment, at its only point or at `batch=64`."""
    found = point(load_recording(experiment, device), place).timings
    if found is None:
        raise UnknownFigure(f"{experiment} was not timed")
    return found


def compiled_to_eager(which: str, shape: str, device: str) -> Figure:
    """How many times as long the compiled layer takes, from samples taken in turns."""
    eager, compiled = PAIRS[shape]
    upper, lower = getattr(timings(compiled, device), which), getattr(timings(eager, device), which)
    return paired_samples_ratio(upper, lower, f"{compiled} over {eager}, {which}")


def cheaper(device: str) -> Figure:
    """For whom a call of the compiled layer is cheaper by a tenth or more, at the shape of the series."""
    ratios = {of: compiled_to_eager(which, next(iter(PAIRS)), device) for of, which in SIDES.items()}
    found = [of for of, times in ratios.items() if number(times) < 0.9]
    value = "both" if len(found) > 1 else found[0] if found else "neither"
    said = ", ".join(f"{times.text} on {of}" for of, times in ratios.items())
    return Figure(value, said=said, origin=f"{COMPILED} over {EAGER}")


def waits(experiment: str, device: str) -> Figure:
    """CPU time of a call over GPU time of its work: above one, the GPU waits for the CPU."""
    times = timings(experiment, device)
    return Figure(times.enqueue.median_us / times.warm.median_us, "x", origin=f"{experiment}, enqueue over warm")


def idle(experiment: str, device: str) -> Figure:
    """Share of a step of a Python loop in which the GPU has nothing to do."""
    times = timings(experiment, device)
    share = 100 * (1 - times.warm.median_us / times.launched.median_us)
    return Figure(share, "%", origin=f"{experiment}, 1 - warm / launched")


def launched_to_warm(experiment: str, device: str) -> Figure:
    """How many times as long a step takes in a Python loop as it does replayed from a CUDA graph."""
    times = timings(experiment, device)
    return Figure(times.launched.median_us / times.warm.median_us, "x", origin=f"{experiment}, launched over warm")


def matrix_to_row(size: int, device: str) -> Figure:
    """GPU time of `addmm` with a matrix of bias over that with one row, of square matrices of a size."""
    names = [f"matmul_add/{one}_bias_{size}" for one in ("matrix", "row")]
    matrix, row = (timings(one, device).warm for one in names)
    return paired_samples_ratio(matrix, row, f"{' over '.join(names)}, warm")


def rows_to_one(rows: int, device: str) -> Figure:
    """GPU time of the wide layer at so many rows over that at one row."""
    many, one = (timings(SWEEPS["eager"], device, f"batch={count}").warm.median_us for count in (rows, 1))
    return Figure(many / one, "x", origin=f"{SWEEPS['eager']}, warm at {rows} rows over warm at 1")


def rows_bound(experiment: str, device: str) -> int:
    """The most rows of a sweep at which a call takes the CPU longer than its work takes the GPU; 0 for none."""
    found = {int(at.parameters["batch"]): at.timings for at in load_recording(experiment, device).points}
    return max((n for n, at in found.items() if at and at.enqueue.median_us > at.warm.median_us), default=0)


def rows_bound_compiled_to_eager(device: str) -> Figure:
    """To how many times as many rows the compiled layer is overhead-bound."""
    eager, compiled = (rows_bound(one, device) for one in SWEEPS.values())
    said = f"eager up to {eager:,} rows, compiled up to {compiled:,}"
    return Figure(compiled / eager, "x", said=said, origin=", ".join(SWEEPS.values()))


def looped_compiled_to_eager(rows: int, device: str) -> Figure:
    """A step of a Python loop over the wide layer at so many rows: compiled over eager."""
    eager, compiled = (timings(one, device, f"batch={rows}").launched for one in SWEEPS.values())
    return paired_samples_ratio(compiled, eager, f"{' over '.join(reversed(SWEEPS.values()))} at {rows} rows, launched")


def deciding(found: Mapping[str, Figure], pick: Callable[[Iterable[float]], float]) -> Figure:
    """Of several ratios the one that decides, all of them in words."""
    said = ", ".join(f"{one.text} at {where}" for where, one in found.items())
    return Figure(pick(number(one) for one in found.values()), "x", said=said)


def number(found: Figure) -> float:
    """The value of a figure that is a number."""
    assert isinstance(found.value, int | float), found
    return found.value


def over_shapes(which: str, pick: Callable[[Iterable[float]], float], device: str) -> Figure:
    """The compiled over the eager layer at both shapes."""
    return deciding({shape: compiled_to_eager(which, shape, device) for shape in PAIRS}, pick)


def least_wait(device: str) -> Figure:
    """The smallest of all four ratios of CPU time to GPU time."""
    return deciding({one: waits(one, device) for pair in PAIRS.values() for one in pair}, min)


def farthest_from_one(ratios: Iterable[float]) -> float:
    """The ratio that is least like one."""
    return max(ratios, key=lambda one: abs(one - 1))


DIFFERS: Mapping[str, Status] = {DEFAULT_DEVICE: "differs"}
DIFFERS_EVERYWHERE: Mapping[str, Status] = {"*": "differs"}


def _one_kernel(found: Figure) -> bool:
    return str(found.value).startswith("1 kernel, 0 memcpy")


def _listed(found: Figure) -> set[str]:
    return set(str(found.value).split(", "))


CLAIMS = (
    Claim(
        "L1",
        "A forward of an eager nn.Linear with a bias puts one kernel on the GPU, and no copy.", "every-gpu",
        lambda device: in_steps(EAGER, device, work), _one_kernel, Source("Part 2", "1 kernel, 0 copies"),
    ),
    Claim(
        "L2",
        "aten::linear calls aten::t, which calls aten::transpose, which calls aten::as_strided; then aten::addmm.",
        "every-gpu", lambda device: in_steps(EAGER, device, calls),
        lambda found: found.value == "aten::linear(aten::t(aten::transpose(aten::as_strided)), aten::addmm)",
        Source("Part 2", "aten::linear: aten::t, then aten::addmm"),
    ),
    Claim(
        "L3",
        "aten::t takes no GPU time: neither it nor anything it calls puts work on the GPU.", "every-gpu",
        work_of_transpose, lambda found: found.value == 0, Source("Part 2", "no kernel, no time on the GPU"),
    ),
    Claim(
        "L4",
        "The bias is added without an aten::add anywhere in the step.", "every-gpu",
        lambda device: in_steps(EAGER, device, aten_ops),
        lambda found: "aten::addmm" in _listed(found) and not {"aten::add", "aten::add_"} & _listed(found),
        Source("Part 2", "no aten::add"),
    ),
    Claim(
        "L5",
        "Compiled, the layer is still one kernel, and its name is the eager one's, byte for byte.", "every-gpu",
        partial(one_and_the_same, EAGER, COMPILED), lambda found: found.value is True,
        Source("Part 2", "1 kernel in both, the same name"),
    ),
    Claim(
        "L6",
        "The compiled step calls aten::addmm with neither aten::linear nor aten::t around it.", "every-gpu",
        lambda device: in_steps(COMPILED, device, aten_ops),
        lambda found: "aten::addmm" in _listed(found) and not {"aten::linear", "aten::t"} & _listed(found),
        Source("Part 2", "aten::addmm alone"),
    ),
    Claim(
        "L7",
        "The compiled step has rows on the CPU lane that the eager one lacks: Dynamo's cache lookup, the region it "
        "compiled, the prologue of AOTDispatcher, and the call of the compiled graph.", "every-gpu", rows_of_compiled,
        lambda found: all(row in str(found.value) for row in COMPILED_ROWS), Source("Part 2", "a few extra rows"),
    ),
    Claim(
        "L8",
        "The layer's kernel is the CUTLASS one that the series shows.", "this-gpu",
        lambda device: in_steps(EAGER, device, gpu_names), lambda found: found.value == A100_KERNEL,
        Source("Part 2", A100_KERNEL), DIFFERS,
        "cuBLAS brings different kernels for different GPUs: a CUTLASS kernel compiled for sm80 there, one of a family "
        "called nvjet, made for sm90, here. Library, GPU, data type and shape decide the name, so compare names within "
        "one machine, never between two.",
    ),
    Claim(
        "L9",
        "The kernel's name carries the layouts of its two inputs as the suffix tn: one transposed, one not.",
        "this-gpu", layout_in_name, lambda found: found.value == "tn", Source("Part 2", "tn"), DIFFERS,
        "An nvjet name ends in three capital letters instead of two small ones. In our recordings the first follows "
        "the layout of the weight, but NVIDIA publishes no grammar for these names and has called the convention "
        "confidential. Reading them is inference; the strides in the trace are fact.",
    ),
    Claim(
        "L10",
        "A transpose reverses shape and strides and moves no data. Checked on the layer's weight, as aten::t gets it "
        "and as aten::addmm gets it, with no GPU work between; the 3x2 matrix of the series runs on the page.",
        "every-gpu", weight_as_view, lambda found: str(found.value).startswith("a view"),
        Source("Part 2", "3x2 with strides (2, 1), then 2x3 with strides (1, 2)"),
    ),
    Claim(
        "L11",
        "A compiled layer throws an error when its input has other strides than those it was compiled for.",
        "every-gpu", fed_new_strides, lambda found: found.value == "an error",
        Source("Part 2", "an error"), DIFFERS_EVERYWHERE,
        "The compiled code does rely on the strides, but a guard checks them before it runs. When they are new, Dynamo "
        "compiles another graph and the result stays right. Expect a long first call with a new layout, not an error.",
    ),
    Claim(
        "L12",
        "The addmm of Part 1's compiled function does on the GPU what the addmm of an eager nn.Linear does. Checked "
        "at size 64: that function against addmm with one row of bias, which is what a layer has.", "every-gpu",
        partial(same_work, "matmul_add/compiled_64", "matmul_add/row_bias_64"), lambda found: found.value is True,
        Source("Part 2", "the same kernel"), DIFFERS_EVERYWHERE,
        "The operator is the same, the work is not. A matrix of bias is copied into the result first and the product "
        "added onto it; one row of bias is added by the kernel's epilogue. The name of an operator does not tell what "
        "the GPU did: look at the GPU lane.",
    ),
    Claim(
        "O-L1",
        "At 64x1024→4096 too, the layer is one kernel, the same one eager and compiled.", "this-gpu",
        partial(one_and_the_same, WIDE, COMPILED_WIDE), lambda found: found.value is True,
    ),
    Claim(
        "O-L2",
        "The two shapes run two different kernels.", "this-gpu", partial(same_work, EAGER, WIDE),
        lambda found: found.value is False,
    ),
    Claim(
        "O-L3",
        "A forward makes one call of CUDA, the launch, eager or compiled and at either shape: no occupancy query.",
        "this-gpu", cuda_calls, lambda found: "Launch" in str(found.value) and not {",", "+"} & set(str(found.value)),
    ),
    Claim(
        "O-L4",
        "Compiling the layer makes each call cost at least a fifth more CPU time, at both shapes.", "timing",
        partial(over_shapes, "enqueue", min), lambda found: number(found) > 1.2,
    ),
    Claim(
        "O-L5",
        "Compiling the layer changes its time on the GPU by less than a tenth, at both shapes.", "timing",
        partial(over_shapes, "warm", farthest_from_one), lambda found: 0.9 < number(found) < 1.1,
    ),
    Claim(
        "O-L6",
        "Both shapes are overhead-bound: a call takes the CPU at least twice as long as its work takes the GPU.",
        "timing", least_wait, lambda found: number(found) > 2,
    ),
    Claim(
        "O-L7",
        "The letters that end an nvjet name begin with T where the second factor is a transposed view, and with N "
        "where it is not.", "this-gpu", first_letters, lambda found: found.value is True,
    ),
    Claim(
        "O-L8",
        "At size 64, addmm takes at least a fifth longer on the GPU with a matrix of bias than with a row of it.",
        "timing", partial(matrix_to_row, 64), lambda found: number(found) > 1.2,
    ),
    Claim(
        "O-L9",
        "With 64 rows the wide layer takes the GPU less than a fifth longer than with one.", "timing",
        partial(rows_to_one, 64), lambda found: number(found) < 1.2,
    ),
    Claim(
        "O-L10",
        "The compiled wide layer stays overhead-bound to at least twice as many rows as the eager one.", "timing",
        rows_bound_compiled_to_eager, lambda found: number(found) >= 2,
    ),
    Claim(
        "O-L11",
        "With 4096 rows, a Python loop over the wide layer takes at least half as long again when it is compiled.",
        "timing", partial(looped_compiled_to_eager, 4096), lambda found: number(found) > 1.5,
    ),
)  # fmt: skip

FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "kernel": lambda device: in_steps(EAGER, device, gpu_names),
    "launched_by": launched_by,
    "transpose_share": transpose_share,
    "weight_strides": weight_strides,
    "new_strides": fed_new_strides,
    "cheaper": cheaper,
    "compiled_cpu": partial(compiled_to_eager, "enqueue", "1024x32→64"),
    "replay": partial(launched_to_warm, EAGER),
    "idle": partial(idle, EAGER),
    "idle_wide": partial(idle, WIDE),
    "matrix_to_row": partial(matrix_to_row, 64),
    "sixty_four_rows": partial(rows_to_one, 64),
}
"""Numbers of the chapter's own, for its prose and its guesses."""


def kernels() -> Html:
    """The GPU work of one eager step."""
    return kernel_table(EAGER, shown_device(), "One forward of the layer, eager")


def forward() -> Html:
    """One eager step as a picture."""
    return timeline({"nn.Linear": EAGER}, shown_device(), "One forward of the layer, eager")


def averages() -> Html:
    """The profiler's table of the eager steps."""
    return profiler_table(EAGER, shown_device())


def chains() -> Html:
    """What calls what in the eager layer and in the compiled one."""
    device = shown_device()
    shown = {"eager": EAGER, "compiled": COMPILED}
    return Html("".join(f"<p>{how}:</p>{dispatch_tree(one, device)}" for how, one in shown.items()))


def row_and_matrix() -> Html:
    """`addmm` with both kinds of bias as pictures on one scale."""
    shown = {f"addmm, a {kind} of bias": f"matmul_add/{kind}_bias_64" for kind in ("row", "matrix")}
    return timeline(shown, shown_device(), "The same operator with two kinds of bias")


def biases() -> Html:
    """GPU work and time of `addmm` with a row and with a matrix of bias, beside the layer and Part 1's function."""
    device, rows = shown_device(), []
    for what, experiment in {
        "nn.Linear, eager": EAGER,
        "addmm, a row of bias": "matmul_add/row_bias_64",
        "addmm, a matrix of bias": "matmul_add/matrix_bias_64",
        "compiled matmul + add": "matmul_add/compiled_64",
    }.items():
        step = middle_step(load_trace(experiment, device))
        shape = next(op.input_shapes[0] for op in step.ops if op.name == "aten::addmm")
        listed = Html("<br>".join(kernel_name_html(one.name) for one in step.activities))
        warm = figure_cell(figure(f"{experiment.replace('/', '.')}.warm_us", device))
        rows.append([what, "x".join(map(str, shape)), listed, warm])
    head = ["what runs", "bias", "GPU work of a step, in order", "GPU time, warm"]
    return table("One operator, two kinds of GPU work", head, rows, text_columns=3)


def eager_and_compiled() -> Html:
    """The same layer eager and compiled, as pictures on one scale."""
    shown = {"eager": EAGER, "compiled": COMPILED}
    return timeline(shown, shown_device(), "One forward of the layer, eager and compiled")


def changed_by_compiling() -> Html:
    """What compiling changes in a step."""
    names = ("eager", "compiled")
    return diff_table(EAGER, COMPILED, shown_device(), names, "From the eager layer to the compiled one")


def gpu_and_cpu() -> Html:
    """How long GPU and CPU take for a step, eager and compiled, at both shapes."""
    shown = {f"{how}, {shape}": one for shape, pair in PAIRS.items() for how, one in zip(SWEEPS, pair, strict=True)}
    return cpu_gpu_bars(shown, shown_device(), "One forward without the profiler: GPU time and CPU time")


def strides_table(shown: Mapping[str, object]) -> Html:
    """What `model.strides()` returned, while this page was built."""

    def words(value: object) -> str:
        match value:
            case bool():
                return "yes" if value else "no"
            case (tuple() as shape, tuple() as walked):
                return f"shape {shape}, strides {walked}"
            case _:
                return str(value)

    rows: list[list[Cell]] = [[code(name), words(value)] for name, value in shown.items()]
    return table("Run on the CPU while this page was built", ["", "what PyTorch says"], rows, text_columns=2)


def new_strides_table() -> Html:
    """A compiled layer fed two inputs of one shape and different strides."""
    data = load_recording("linear/new_strides", shown_device()).data
    rows: list[list[Cell]] = [
        *([str(tuple(one)), count] for one, count in zip(data["strides"], data["graphs"], strict=True)),
        ["error raised", data["raised"] or None],
        ["largest difference from eager", f"{data['largest_difference']:g}"],
    ]
    return table("Two inputs of the same shape", ["strides of the input", "graphs compiled so far"], rows)


def layouts() -> Html:
    """How each product reads its second factor, beside the end of its kernel's name."""
    device, rows = shown_device(), []
    for experiment in PRODUCTS:
        for shape, walked, name in products(experiment, device):
            read = "transposed" if walked[0] == 1 else "as stored"
            factor = Html(f"{'x'.join(map(str, shape))} {read}<small>strides {walked}</small>")
            rows.append([experiment, factor, ending(name), kernel_name_html(name)])
    head = ["experiment", "second factor", "ending", "kernel"]
    return table("What the last letters follow", head, rows, text_columns=4)


def roofline() -> Html:
    """The work of the wide layer with more and more rows below this GPU's roofs."""
    rows = (1, 16, 64, 256, 1024, 4096)
    shown = {f"{count:,} row{'s' * (count > 1)}": f"{SWEEPS['eager']}[batch={count}]" for count in rows}
    return roofline(shown, shown_device(), "The wide layer, 1024→4096, from one row to many")


def regimes() -> Html:
    """Who waits for whom in the wide layer, over its rows."""
    device, caption = shown_device(), "The wide layer, 1024→4096, over its rows"
    return regimes(SWEEPS, device, lambda at: int(at["batch"]), caption, axis="rows")


def copies() -> Html:
    """What the copy of a matrix of bias moves, how fast, how much of a step it is, and how much longer that step is."""
    device, columns = shown_device(), []
    for size in (64, 4096):
        step = middle_step(load_trace(f"matmul_add/matrix_bias_{size}", device))
        (copy,) = step.memcpys
        moved, us = 2 * (copy.moved_bytes or 0), copy.duration_us
        amounts = (
            (moved, "bytes"),
            (us, "us"),
            (moved / us * 1e6, "bytes/s"),
            (100 * us / busy_us(step.activities), "%"),
        )
        columns.append([*(format_value(*one) for one in amounts), figure_cell(matrix_to_row(size, device))])
    heads = (
        "read and written",
        "time of the copy",
        "rate",
        "share of the step in GPU time",
        "step with a matrix over one with a row",
    )
    rows = [[what, *row] for what, *row in zip(heads, *columns, strict=True)]
    return table("The copy that a matrix of bias costs", ["", "64", "4096"], rows)
