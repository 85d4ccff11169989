"""The parts of one layer's forward: operators, kernels, strides and the names of kernels."""

import json
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.queries import find_op, gpu_names
from snippets.lab.cache import cached, code_key
from snippets.lab.finding import (
    Device,
    Figure,
    Run,
    Source,
    TraceError,
    claim,
    derived,
    equals,
    format_value,
    matches,
)
from snippets.lab.finding.band import Band
from snippets.lab.page import (
    diff_table,
    dispatch_tree,
    show as show,
    timeline,
)

A100_KERNEL = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8"
OPERATORS = "aten::linear(aten::t(aten::transpose(aten::as_strided)), aten::addmm)"
VARIANTS = {"eager": "linear/eager", "compiled": "linear/compiled"}
COMPILED_ROWS = ("TorchDynamo Cache", "Torch-Compiled Region", "AOTDispatcher Runtime", "## Call CompiledFxGraph")
ROUNDING = 0.05
"""The largest difference of two correct results of the layer in bf16."""


def work(step: Step) -> str:
    """GPU work of a step, counted by kind."""
    plural = "" if len(step.kernels) == 1 else "s"
    return f"{len(step.kernels)} kernel{plural}, {len(step.memcpys)} memcpy, {len(step.memsets)} memset"


def aten_ops(step: Step) -> str:
    """PyTorch's operators in a step, each once."""
    return ", ".join(dict.fromkeys(op.name for op in step.ops if op.name.startswith("aten::")))


def work_under(step: Step, name: str) -> list[GpuActivity]:
    """Activities launched by operators of this name or inside them. Raises `TraceError` without such an operator."""
    find_op(step, name)
    return [activity for activity in step.activities if activity.op and name in (op.name for op in activity.op.chain)]


def input_strides(op: CpuOp, index: int) -> tuple[int, ...]:
    """The strides of an input, which `record_shapes` writes next to the shapes."""
    if not op.input_strides:
        raise TraceError(f"the trace has no strides of {op.name}; record it with a newer torch")
    return op.input_strides[index]


def same_work(first: Run, second: Run) -> Figure:
    """Whether two runs have GPU activities of the same names, in the same order."""
    first_names, second_names = (run.per_step(gpu_names) for run in (first, second))
    is_same = first_names.value == second_names.value
    display = f"in both {first_names.value}" if is_same else f"{first_names.value} against {second_names.value}"
    return derived(is_same, first_names, second_names, display=display)


def one_and_the_same(eager: Run, compiled: Run) -> Figure:
    """Whether both variants of a layer launch a single, equal kernel."""
    is_same, counted = same_work(eager, compiled), eager.per_step(work)
    is_one = str(counted.value).startswith("1 kernel, 0 memcpy")
    return derived(bool(is_same.value) and is_one, is_same, display=f"{counted.value}, {is_same.text}")


def lists(present: str, *absent: str) -> Band:
    """A band: a list has one name and lacks the others."""
    return lambda figure: present in (names := figure.text.split(", ")) and not set(absent) & set(names)


@claim("L1", matches("1 kernel, 0 memcpy.*"), source=Source("Part 2", "1 kernel, 0 copies"))
def one_kernel(device: Device) -> Figure:
    """A forward of an eager nn.Linear with a bias puts one kernel and no copy on the GPU."""
    return device["linear/eager"].per_step(work)


@claim("L2", equals(OPERATORS), source=Source("Part 2", "aten::linear: aten::t, then aten::addmm"))
def calls(device: Device) -> Figure:
    """aten::linear first calls aten::t, which calls aten::transpose, which calls aten::as_strided. Then aten::linear
    calls aten::addmm."""

    def called(step: Step, op: CpuOp) -> str:
        inner = ", ".join(called(step, child) for child in step.children(op))
        return f"{op.name}({inner})" if inner else op.name

    return device["linear/eager"].per_step(
        lambda step: ", ".join(called(step, op) for op in step.children(find_op(step, "linear_fwd")))
    )


@claim("L3", equals(0), source=Source("Part 2", "no kernel, no time on the GPU"))
def work_of_transpose(device: Device) -> Figure:
    """aten::t takes no GPU time: neither aten::t nor any operator inside it puts work on the GPU."""
    run = device["linear/eager"]
    count = run.per_step(lambda step: len(work_under(step, "aten::t")))
    us = sum(activity.duration_us for step in run.steps for activity in work_under(step, "aten::t"))
    return derived(count.value, count, display=f"{count.value} GPU activities, {format_value(us, 'us')}")


@claim("L4", lists("aten::addmm", "aten::add", "aten::add_"), source=Source("Part 2", "no aten::add"))
def no_add(device: Device) -> Figure:
    """A forward of nn.Linear adds its bias by aten::addmm, without any aten::add in the step."""
    return device["linear/eager"].per_step(aten_ops)


@claim("L5", equals(True), source=Source("Part 2", "1 kernel in both, the same name"))
def same_kernel(device: Device) -> Figure:
    """The compiled layer runs one kernel, and this kernel has exactly the same name as the kernel of the eager
    layer."""
    return one_and_the_same(device["linear/eager"], device["linear/compiled"])


@claim("L6", lists("aten::addmm", "aten::linear", "aten::t"), source=Source("Part 2", "aten::addmm alone"))
def addmm_alone(device: Device) -> Figure:
    """A step of the compiled layer calls aten::addmm, but neither aten::linear nor aten::t."""
    return device["linear/compiled"].per_step(aten_ops)


@claim("L7", lambda rows: all(row in rows.text for row in COMPILED_ROWS), source=Source("Part 2", "a few extra rows"))
def rows_of_compiled(device: Device) -> Figure:
    """Only the compiled layer has CPU rows for Dynamo's cache lookup, the compiled region, AOTDispatcher's prologue and
    the call of the compiled graph."""

    def rows(step: Step) -> str:
        names = (op.name for op in step.ops if "aten::" not in op.name)
        hashed = "## Call CompiledFxGraph "
        return ", ".join(dict.fromkeys(f"{hashed}… ##" if name.startswith(hashed) else name for name in names))

    eager, compiled = (device[experiment].per_step(rows) for experiment in VARIANTS.values())
    in_eager = str(eager.value).split(", ")
    return derived(", ".join(row for row in str(compiled.value).split(", ") if row not in in_eager), eager, compiled)


@claim("L8", equals(A100_KERNEL), scope="this-gpu", source=Source("Part 2", A100_KERNEL))
def kernel(device: Device) -> Figure:
    """The kernel of nn.Linear is the CUTLASS kernel that the series shows.

    cuBLAS has different kernels for different GPUs. On the A100 cuBLAS ran a CUTLASS kernel for sm80, and here cuBLAS
    runs an nvjet kernel for sm90. Library, GPU, data type and shape decide the name, so compare names only within one
    machine."""
    return device["linear/eager"].per_step(gpu_names)


def ending(name: str) -> str:
    """The part of a kernel's name after the last underscore."""
    return name.rpartition("_")[2]


@claim("L9", equals("tn"), scope="this-gpu", source=Source("Part 2", "tn"))
def layout_in_name(device: Device) -> Figure:
    """The kernel name of nn.Linear has the part tn, which says that one of the two inputs is transposed.

    An nvjet name ends in three capital letters instead of two small letters. In our recordings, the first capital
    letter follows the layout of the weight. NVIDIA publishes no grammar for these names and has called the convention
    confidential. So the letters' meaning is inferred, and the strides in the trace are fact."""

    def letters(step: Step) -> str:
        name = step.kernels[0].name
        return next((part for part in name.split("_") if part in ("nn", "nt", "tn", "tt")), ending(name))

    return device["linear/eager"].per_step(letters)


@claim("L10", matches("a view.*"), source=Source("Part 2", "3x2 with strides (2, 1), then 2x3 with strides (1, 2)"))
def weight_as_view(device: Device) -> Figure:
    """Between aten::t and aten::addmm, the weight's shape and strides are reversed, and no data moves."""

    def view(step: Step) -> str:
        stored, used = find_op(step, "aten::t"), find_op(step, "aten::addmm")
        before, after = stored.input_shapes[0], used.input_shapes[2]
        first, then = input_strides(stored, 0), input_strides(used, 2)
        moved = len(work_under(step, "aten::t")) + len(step.memcpys)
        is_view = (after, then, moved) == (before[::-1], first[::-1], 0)
        shapes = f"{before} with strides {first}, then {after} with strides {then}"
        return f"{'a view' if is_view else 'no view'}: {shapes}, {moved} GPU activities"

    return device["linear/eager"].per_step(view)


@claim("L11", equals("an error"), source=Source("Part 2", "an error"))
def new_strides(device: Device) -> Figure:
    """A compiled layer raises an error if its input has other strides than the input that it was compiled for.

    The compiled code relies on the strides, but a guard checks the strides before this code runs. If the strides are
    new, Dynamo compiles another graph, and the result is right. Expect a long first call with a new layout, not an
    error."""
    run = device["linear/new_strides"]
    raised, difference, (before, after) = (run.data[key] for key in ("raised", "largest_difference", "graphs"))
    outcome = "an error" if raised else "a wrong result" if difference > ROUNDING else "neither"
    result = f"{raised or 'no error'}, {after - before} more graph compiled"
    return Figure(outcome, origin=run.origin, display=f"{result}, largest difference from eager {difference:g}")


@claim("L12", equals(True), source=Source("Part 2", "the same kernel"))
def addmm_of_both(device: Device) -> Figure:
    """The addmm of Part 1's compiled function puts the same kinds of work on the GPU as the addmm of an eager
    nn.Linear.

    The operator is the same, but the GPU's work isn't. A matrix of bias is first copied into the result, and then the
    kernel adds the product to the result. A row of bias is added by the kernel's epilogue. The GPU lane shows which of
    the two ran, but the operator's name doesn't."""
    compiled, layer = (device[name].per_step(work) for name in ("matmul_add/compiled_64", "linear/eager"))
    return derived(compiled.value == layer.value, compiled, layer, display=f"{compiled.text} against {layer.text}")


def launched_by(device: Device) -> Figure:
    """The operators that launch GPU activities, in order."""
    run = device["linear/eager"]
    return run.per_step(
        lambda step: ", ".join(activity.op.name if activity.op else "none" for activity in step.activities)
    )


def transpose_share(device: Device) -> Figure:
    """CPU time of `aten::t` and its calls, in percent of the enclosing `aten::linear`'s, in the trace."""

    def cpu_us(step: Step, name: str) -> float:
        find_op(step, name)
        return sum(op.duration_us for op in step.ops if op.name == name)

    run = device["linear/eager"]
    return run.per_step(lambda step: 100 * cpu_us(step, "aten::t") / cpu_us(step, "aten::linear"), "%")


def weight_strides(device: Device) -> Figure:
    """The strides of the weight in the call of `aten::addmm`."""
    return device["linear/eager"].per_step(lambda step: str(input_strides(find_op(step, "aten::addmm"), 2)))


def chains(device: Device) -> Html:
    """The operator calls of the eager and of the compiled layer."""
    return Html("".join(f"<p>{how}:</p>{dispatch_tree(device, name)}" for how, name in VARIANTS.items()))


eager_and_compiled = partial(timeline, variants=VARIANTS)
changed_by_compiling = partial(diff_table, variants=VARIANTS)


def strides_table(_: Device) -> Html:
    """The result of `model.strides()`, the same for every device: it runs on the CPU while the page is built."""
    key = ("linear strides", version("torch"), code_key(Path(__file__).parents[1] / "model.py"))
    return values_table(json.loads(cached(key, _strides)))


def _strides() -> str:
    from snippets.linear.model import strides  # importing torch takes seconds

    return json.dumps(strides())


def values_table(values: Mapping[str, object]) -> Html:
    """Values by name; a pair of sequences is a shape with its strides."""

    def text(value: object) -> str:
        match value:
            case bool():
                return "yes" if value else "no"
            case [[*shape], [*steps]]:
                return f"shape {tuple(shape)}, strides {tuple(steps)}"
        return str(value)

    rows: list[list[Cell]] = [[code(name), text(value)] for name, value in values.items()]
    return table(
        "Results on the CPU, while this page was built", ["expression", "what PyTorch says"], rows, text_columns=2
    )


def new_strides_table(device: Device) -> Html:
    """A compiled layer with two inputs of one shape and different strides."""
    data = device["linear/new_strides"].data
    rows: list[list[Cell]] = [
        *(
            [f"graphs compiled after strides {tuple(strides)}", count]
            for strides, count in zip(data["strides"], data["graphs"], strict=True)
        ),
        ["error raised", data["raised"] or "none"],
        ["largest difference from eager", f"{data['largest_difference']:g}"],
    ]
    return table("The compiled layer, called with two inputs of the same shape", ["result", "value"], rows)
