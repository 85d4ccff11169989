"""The articles' claims about kernels and bytes: structure, the same on every GPU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from kinetoscope.trace.averages import key_averages
from kinetoscope.trace.events import Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import extent_us, idle_us, kernel_names
from kinetoscope.trace.work import step_work
from snippets.fact_check.findings.sources import ANYWHERE, deep_dive, digest, news, tutorial
from snippets.lab.finding import Device, Figure, Measure, Run, at_least, at_most, between, claim, equals, matches
from snippets.lab.finding.measure import derived, point_ratio
from snippets.mlp.findings.eager import moved_bytes
from snippets.mlp.findings.fusion import saved_bytes
from snippets.mlp.findings.steps import BF16_BYTES, VARIANTS, gate_bytes, gemms, matmul_shapes, pointwise

FIVE_TO_FOUR = "5 GPU kernels launched per forward pass in standard eager mode, reduced to 4 after compiling"
LINEAR = "aten::linear"


def kernel_count(device: Device, experiment: str) -> Figure:
    """Kernels of one step."""
    return device[experiment].per_step(lambda step: len(step.kernels))


@claim("FC1", matches(r"5 to 4; .*fused.*_view_gelu_mul.*"), source=digest(FIVE_TO_FOUR))
def five_to_four(device: Device) -> Figure:
    """Compiling takes the MLP from five kernels to four. The name of one of the four kernels contains a reshape, GELU
    and the multiplication."""
    eager, compiled = kernel_count(device, "mlp/eager"), kernel_count(device, "mlp/compiled")
    fused = device["mlp/compiled"].per_step(lambda step: ", ".join(kernel.name for kernel in pointwise(step)))
    return derived(f"{eager.value} to {compiled.value}; {fused.value}", eager, compiled, fused)


@claim(
    "FC51", at_least(1), scope="timing", source=digest("the gaps between them are time the chip spends coordinating")
)
def idle_between_kernels(device: Device) -> Figure:
    """The GPU idles between the kernels of the eager MLP: from the start to the end of a step's GPU work, it idles at
    least 1 % of the time."""
    return device["mlp/eager"].per_step(lambda step: 100 * idle_us(step.activities) / extent_us(step.activities), "%")


@claim("FC52", equals(0), source=digest("executing each operation as a separate GPU kernel", ANYWHERE))
def operators_without_work(device: Device) -> Figure:
    """Eager mode executes each operation as a separate GPU kernel. Counted here: the operators of the eager MLP, by
    name, that launch no GPU work.

    The products, GELU and the multiplication run as one kernel each. But a transpose, a reshape or a view only
    describes its tensor in another way, and launches no kernel. To count kernels, count them in the GPU lane, and don't
    count operators."""
    idle = [row.name for row in key_averages(device["mlp/eager"].whole.trace) if row.is_idle]
    return Figure(len(idle), origin="mlp/eager, operators without GPU time", display=f"{len(idle)} operators")


@claim("FC2", between(45e6, 55e6), source=digest("a tensor shaped 8192 by 768 … roughly 50 MB"))
def bytes_of_the_named_shape(device: Device) -> Figure:
    """The tensor that fusing removes from the MLP's forward has the shape 8192 by 768 and takes roughly 50 MB.

    The MLP's input has the shape in the quote. Between GELU and the multiplication, every token has 3072 numbers, four
    times as many. The tensor with these wider rows does take 50 megabytes, and Part 2 gives its shape correctly. To
    find a tensor's size, read the shapes of the operator that makes the tensor."""

    def input_bytes(step: Step) -> int:
        rows, columns, _ = matmul_shapes(step)[0]
        return BF16_BYTES * rows * columns

    return device["mlp/eager"].per_step(input_bytes, "bytes")


@claim("FC3", between(45e6, 55e6), source=digest("roughly 50 MB of intermediate memory traffic"))
def traffic_removed(device: Device) -> Figure:
    """Fusing removes roughly 50 MB of memory traffic from each forward pass of the MLP.

    The removed tensor takes 50 megabytes, but eager moves the tensor twice: GELU writes it, and the multiplication
    reads it back. So fusing removes twice this traffic. The same article's sentence about 50 megabytes of writes is
    right."""
    return saved_bytes(device)


@claim("FC43", between(45e6, 55e6), source=digest("about 50 MB of intermediate tensor writes"))
def writes_removed(device: Device) -> Figure:
    """Fusing removes about 50 MB of writes from each forward pass of the MLP. Counted here: one written tensor for each
    pointwise kernel."""

    def written(step: Step) -> int:
        return len(pointwise(step)) * gate_bytes(step)

    eager, compiled = (device[name].per_step(written, "bytes") for name in ("mlp/eager", "mlp/compiled"))
    return derived(eager.number - compiled.number, eager, compiled, unit="bytes")


@claim("FC44", equals("8192 by 768"), source=digest("Test tensor shaped 8192 by 768"))
def shape_of_the_input(device: Device) -> Figure:
    """The input of the MLP's first product has the shape 8192 by 768."""
    return device["mlp/eager"].per_step(lambda step: "{} by {}".format(*matmul_shapes(step)[0]))


@claim(
    "FC47", equals("3 and 3"), source=deep_dive("separates each linear transform with its own kernel launch", ANYWHERE)
)
def launch_for_each_linear(device: Device) -> Figure:
    """Eager mode launches a separate kernel for each linear transform. Counted here: calls of aten::linear in the MLP's
    forward, and the kernels that these calls launch."""

    def counts(step: Step) -> str:
        linears = [op for op in step.ops if op.name == LINEAR]
        below = [kernel for kernel in step.kernels if kernel.op and any(op.name == LINEAR for op in kernel.op.chain)]
        return f"{len(linears)} and {len(below)}"

    return device["mlp/eager"].per_step(counts)


def _is_stack(widths: Figure) -> bool:
    """Whether each of three Linears reads as many numbers to a row as the Linear before it writes."""
    linears = [linear.split(" to ") for linear in str(widths.value).split(", ")]
    return len(linears) == 3 and all(before[1] == after[0] for before, after in itertools.pairwise(linears))


@claim(
    "FC50",
    _is_stack,
    source=news("Three of these are then stacked with an activation function between them", ANYWHERE),
)
def widths_of_the_linears(device: Device) -> Figure:
    """The MLP is a stack of three Linears with an activation between them: each Linear reads rows as wide as the
    previous Linear writes.

    The MLP has three Linears, but two of them read the same input. The MLP's activation and a multiplication join the
    results of these two Linears, and the third Linear reads the joined result. Part 2 also says “stack”, but its code
    shows the branch. To see which Linear feeds which, read the shapes of the operators' inputs."""
    return device["mlp/eager"].per_step(
        lambda step: ", ".join(f"{read} to {written}" for _, read, written in matmul_shapes(step))
    )


@claim(
    "FC4", equals("5 tensors, then 3"), source=news("fused operations reduce the number of times data moves", ANYWHERE)
)
def tensors_moved(device: Device) -> Figure:
    """Fused operations reduce how often data moves between memory and compute units. Counted here: tensors of the
    hidden size that the MLP's pointwise kernels read or write, in the eager forward and in the compiled forward."""

    eager, fused = (_tensors(device[name]) for name in ("mlp/eager", "mlp/compiled"))
    return derived(f"{eager.value} tensors, then {fused.value}", eager, fused)


def _tensors(run: Run) -> Figure:
    """Tensors of the hidden size that the pointwise part moves."""
    moved = moved_bytes(run)
    return derived(round(moved.number / gate_bytes(run.step)), moved)


@claim("FC41", at_most(0.5), source=tutorial("significantly reduces the pressure on the memory bus", ANYWHERE))
def bytes_of_fused_linear(device: Device) -> Figure:
    """A Linear's kernel that also computes GELU moves far fewer bytes: by the shapes, at 8192 tokens, at most half the
    bytes of eager's two kernels."""
    eager = device["fused_mlp/linear_8192_eager"].per_step(
        lambda step: sum(work.bytes for work in step_work(step) if work), "bytes"
    )
    moved = device["fused_mlp/linear_8192_fused"].point.bytes
    fused = Figure(moved, "bytes", origin="the shapes")
    display = f"{fused.text}, eager {eager.text}"
    return derived(moved / eager.number, eager, fused, unit="x", display=display)


@claim("FC39", at_most(1.0), scope="this-gpu", source=digest("the same model produces the same answers", ANYWHERE))
def largest_difference(device: Device) -> Figure:
    """The same model gives the same answers, however it is packaged: the answers of the eager, the compiled and the
    Liger MLP differ by at most 1 %. Computed as the sum of the two largest errors against float64."""
    *_, second, first = sorted(device[name].point.relative_error for name in VARIANTS.values())
    return Figure(100 * (first + second), "%", origin=f"errors of {', '.join(VARIANTS.values())}")


def error_of_compiled(device: Device) -> Figure:
    """The compiled MLP's error against float64 / eager's."""
    return point_ratio(device["mlp/compiled"], device["mlp/eager"], "relative_error")


@claim("FC5", at_most(0.5), scope="this-gpu", source=news("the same operation wearing a cleaner coat", ANYWHERE))
def linear_is_matmul_and_add(device: Device) -> Figure:
    """nn.Linear is the same operation as a matmul and an add: in bf16, its result equals x @ w.T + b in float64 to
    within half a percent."""
    run = device["linear/eager"]
    return Figure(100 * run.point.relative_error, "%", origin=f"{run.origin}, error against float64")


def kernels_of_matmul_and_add(device: Device) -> Figure:
    """Kernels of an eager matmul and add of matrices, and of an eager nn.Linear."""
    written, layer = kernel_count(device, "matmul_add/eager_64"), kernel_count(device, "linear/eager")
    return derived(f"{written.value} and {layer.value}", written, layer)


@claim("FC6", equals("aten::addmm"), source=tutorial("aten::addmm as the primary CUDA kernel", ANYWHERE))
def kernel_of_the_linear(device: Device) -> Figure:
    """The primary CUDA kernel of nn.Linear is aten::addmm.

    The name aten::addmm belongs to the operator, which runs on the CPU and launches the kernel. The GPU runs a cuBLAS
    kernel, which has another name. PyTorch's table makes this mistake easy, because the table gives an operator the
    time of the kernels that it launches. Before you ask which code is slow, look for the kernel's own row."""
    return device["fact_check/article_linear"].per_step(kernel_names)


@claim(
    "FC49", equals("cublas"), scope="this-gpu", source=tutorial("highly optimized by NVIDIA's cuBLAS library", ANYWHERE)
)
def library_of_the_linear(device: Device) -> Figure:
    """The kernel of the n1n.ai tutorial's Linear comes from NVIDIA's cuBLAS library, by the kernel's name."""
    names = device["fact_check/article_linear"].per_step(kernel_names)
    return derived(decode_kernel_name(str(names.value)).library, names)


def _table_rows(device: Device) -> list[Mapping[str, object]]:
    rows: list[Mapping[str, object]] = device["fact_check/article_table"].data["rows"]
    return rows


@claim("FC7", equals(True))
def operator_has_the_kernels_time(device: Device) -> Figure:
    """In the profiler's table of the n1n.ai tutorial's Linear, the operator aten::addmm has the kernel's GPU time as
    its own time, and the kernel has a row, too."""
    rows = _table_rows(device)
    kernels = [row for row in rows if row["is_kernel"] and str(row["name"]) != "linear_forward"]
    of_operator = [row["self_device_us"] for row in rows if row["name"] == "aten::addmm"]
    same = bool(kernels) and of_operator == [sum(float(str(row["self_device_us"])) for row in kernels)]
    return Figure(same, origin="fact_check/article_table, rows")


@claim("FC13", at_least(1.5), scope="this-gpu")
def total_of_the_operator(device: Device) -> Figure:
    """In the profiler's table of a process's first call, the CUDA total of aten::addmm is at least 1.5 times the time
    of the only kernel that ran. The total counts the kernel again for each row below the operator that the driver or
    the profiler adds."""
    rows = _table_rows(device)
    (total,) = (float(str(row["device_us"])) for row in rows if row["name"] == "aten::addmm")
    kernels_us = sum(each["us"] for each in device["fact_check/article_table"].data["activities"])
    return Figure(total / kernels_us, "x", origin="fact_check/article_table, CUDA total over the GPU's activities")


@claim(
    "FC8",
    matches(r"(?!.*ampere_bf16_s16816gemm).+"),
    scope="this-gpu",
    source=deep_dive("kernel characteristics change", ANYWHERE),
)
def other_kernels(device: Device) -> Figure:
    """The kernels change on another architecture: none of the MLP's products runs ampere_bf16_s16816gemm."""
    return device["mlp/eager"].per_step(lambda step: ", ".join(dict.fromkeys(kernel.name for kernel in gemms(step))))


@claim("FC12", at_most(1))
def peak_of_compiled(device: Device) -> Figure:
    """The compiled forward of the MLP has no higher peak memory than the eager forward."""
    return point_ratio(device["mlp/compiled"], device["mlp/eager"], "peak_memory_bytes")


FIGURES: Mapping[str, Measure] = {
    "linear_kernel": lambda device: device["fact_check/article_linear"].per_step(kernel_names)
}
