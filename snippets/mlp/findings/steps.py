"""The common parts of the steps in the chapter's traces: three matmuls, and a pointwise part of one or two kernels."""

import math
from functools import partial

from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import op_name
from kinetoscope.trace.work import step_work
from snippets.lab.finding import Source, TraceError

VARIANTS = {"eager": "mlp/eager", "compiled": "mlp/compiled", "Liger": "mlp/liger"}
BF16_BYTES = 2
part_2 = partial(Source, "Part 2")
"""The source of values from the series' second post."""


def kernel_ops(step: Step) -> str:
    """Operators that launched the kernels of a step, in the kernels' order."""
    return ", ".join(op_name(kernel).removeprefix("aten::") for kernel in step.kernels)


def gemms(step: Step) -> tuple[GpuActivity, ...]:
    """The kernels of `aten::mm`, in order: gate, up, down. Raises `TraceError` when they are not three."""
    kernels = tuple(kernel for kernel in step.kernels if op_name(kernel) == "aten::mm")
    if len(kernels) != 3:
        raise TraceError(f"{step.name} has {len(kernels)} matmuls instead of three; make record CHAPTER=mlp")
    return kernels


def matmul_shapes(step: Step) -> list[tuple[int, int, int]]:
    """(M, K, N) of each matmul of a step."""
    shapes = [kernel.op.input_shapes for kernel in gemms(step) if kernel.op]
    return [(left[0], left[1], right[1]) for left, right, *_ in shapes]


def gate_bytes(step: Step) -> int:
    """Bytes of the tensor that the gate's GEMM writes."""
    rows, _, columns = matmul_shapes(step)[0]
    return BF16_BYTES * rows * columns


def pointwise(step: Step) -> tuple[GpuActivity, ...]:
    """The other kernels: GELU and the multiplication, or one kernel for both."""
    return tuple(kernel for kernel in step.kernels if op_name(kernel) != "aten::mm")


def launch_size(kernel: GpuActivity) -> tuple[int, int]:
    """Blocks of a launch and threads of a block; 0 if the trace lacks them."""
    return math.prod(kernel.grid or (0,)), math.prod(kernel.block or (0,))


def fused_work(step: Step) -> dict[int, tuple[int, int]]:
    """Work that a trace lacks: a fused kernel reads the tensors it is launched with and writes a factor of `down`.

    No FLOPs, and these bytes, by the kernel's index in its step; nothing for a step with two pointwise kernels."""
    kernels = pointwise(step)
    if len(kernels) != 1 or kernels[0].op is None:
        return {}
    rows, inner, _ = matmul_shapes(step)[-1]
    read = sum(math.prod(shape) for shape in kernels[0].op.input_shapes if shape)
    return {step.activities.index(kernels[0]): (0, BF16_BYTES * (read + rows * inner))}


def pointwise_bytes(step: Step) -> list[int]:
    """The bytes that each pointwise kernel must move. Raises `TraceError` if the trace lacks shapes."""
    works = dict(zip(step.activities, step_work(step, fused_work), strict=True))
    known = [work.bytes for kernel in pointwise(step) if (work := works[kernel])]
    if len(known) < len(pointwise(step)):
        raise TraceError(f"{step.name} lacks the shapes of its operators; make record CHAPTER=mlp")
    return known
