"""Elementwise kernels that a compiler could fuse, and the least time of one kernel in their place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

from kinetoscope.diagnosis.peaks import MAX_AMOUNT, Peaks
from kinetoscope.diagnosis.sites import around
from kinetoscope.trace.events import CpuOp, GpuActivity, Shapes
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import TYPE_BYTES

Shape = tuple[int, ...]
OPTIMIZER = "Optimizer.step#"
_ACCUMULATION = "torch::autograd::AccumulateGrad"
"""Adds a gradient to that of earlier backwards, and runs hooks, such as DDP's."""
_FILLS = {"aten::fill_", "aten::zero_"}
_BOOLEAN = {
    *("aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::logical_and", "aten::logical_not"),
    *("aten::isnan", "aten::isinf", "aten::isneginf", "aten::isposinf"),
}


def is_elementwise(activity: GpuActivity) -> bool:
    """Whether it is a kernel of ATen that computes element by element, or converts a type, in code that a compiler
    could fuse; a fill does not count."""
    if activity.kind != "kernel":
        return False
    decoded = decode_kernel_name(activity.name)
    if decoded.library != "aten" or "multi_tensor_apply" in activity.name:
        return False
    if decoded.operation == "copy":
        return is_conversion(activity.op) and not (in_optimizer(activity) or _accumulates(activity))
    if decoded.operation != "elementwise" or in_optimizer(activity) or _accumulates(activity):
        return False
    return not (activity.op and activity.op.name in _FILLS)


def is_conversion(op: CpuOp | None) -> bool:
    """Whether an operator copies a tensor to another type, element by element."""
    return (
        op is not None
        and op.name == "aten::copy_"
        and len(op.input_types) > 1
        and len(op.input_shapes) > 1
        and op.input_types[0] != op.input_types[1]
        and op.input_shapes[0] == op.input_shapes[1]
        and TYPE_BYTES.keys() >= set(op.input_types[:2])
    )


def in_optimizer(activity: GpuActivity) -> bool:
    """Whether an optimizer's step launched it."""
    return any(op.name.startswith(OPTIMIZER) for op in around(activity))


def _accumulates(activity: GpuActivity) -> bool:
    """Whether autograd launched it to accumulate a gradient: no compiler reaches it, and each gradient has its own."""
    return any(op.name == _ACCUMULATION for op in around(activity))


def output_shape(op: CpuOp | None) -> Shape | None:
    """The shape that an elementwise operator writes, broadcast from its inputs; None without shapes."""
    return None if op is None else _broadcast(op.input_shapes)


@cache
def _broadcast(inputs: Shapes) -> Shape | None:
    shapes = [shape for shape in inputs if shape]
    if not shapes:
        return None
    longest = max(map(len, shapes))
    columns = zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True)
    sizes = [{size for size in column if size != 1} or {1} for column in columns]
    return tuple(size.pop() for size in sizes) if all(len(size) == 1 for size in sizes) else None


def chains(stream: Sequence[GpuActivity]) -> Iterator[list[GpuActivity]]:
    """Two or more successive elementwise kernels, each with an input of the shape that its predecessor wrote.

    Fills of one element between them do not count. The shapes of an operator that launches several kernels are not
    those of each kernel.
    """
    kernels_of = Counter(id(activity.op) for activity in stream if activity.kind == "kernel")
    chain: list[GpuActivity] = []
    for activity in stream:
        if _is_small_fill(activity):
            continue
        fuses = is_elementwise(activity) and kernels_of[id(activity.op)] == 1
        if fuses and chain and activity.op and output_shape(chain[-1].op) in activity.op.input_shapes:
            chain.append(activity)
            continue
        if len(chain) > 1:
            yield chain
        chain = [activity] if fuses and output_shape(activity.op) is not None else []
    if len(chain) > 1:
        yield chain


def _is_small_fill(activity: GpuActivity) -> bool:
    if activity.kind == "memset":
        return True
    op = activity.op
    return op is not None and op.name in _FILLS and math.prod(op.input_shapes[0] if op.input_shapes else (2,)) <= 1


def avoidable_us(chain: Sequence[GpuActivity], peaks: Peaks | None) -> float:
    """The most that fusing a chain saves: one kernel reads each input once and writes the last output.

    That kernel runs at most at the datasheet's bandwidth, or at the rate of the chain's fastest kernel if that is
    higher (caches) or the device is unknown. If the trace does not tell the bytes, fusing saves all but the longest
    kernel.
    """
    total_us = math.fsum(kernel.duration_us for kernel in chain)
    longest_us = max(kernel.duration_us for kernel in chain)
    moved = [(_read(kernel.op), _written(kernel.op)) for kernel in chain]
    if not all(0 < amount < MAX_AMOUNT for each in moved for amount in each):
        return total_us - longest_us
    rates = [(sum(each) / kernel.duration_us) for each, kernel in zip(moved, chain, strict=True) if kernel.duration_us]
    between = sum(written for _, written in moved[:-1])  # the next kernel reads each
    fused_bytes = max(0, sum(read for read, _ in moved) - between) + moved[-1][1]
    rate = max(1.0, *rates, peaks.bandwidth_gb_per_s * 1e3 if peaks else 0.0)
    return max(0.0, total_us - fused_bytes / rate)


def _read(op: CpuOp | None) -> int:
    """Bytes of an elementwise operator's inputs; a destination that it only writes does not count. 0 if unknown."""
    if op is None or len(op.input_shapes) != len(op.input_types):
        return 0
    first = 1 if op.name == "aten::copy_" else 0
    pairs = list(zip(op.input_shapes, op.input_types, strict=True))[first:]
    tensors = [(shape, kind) for shape, kind in pairs if shape]
    if not all(kind in TYPE_BYTES for _, kind in tensors):
        return 0
    return sum(math.prod(shape) * TYPE_BYTES[kind] for shape, kind in tensors)


def _written(op: CpuOp | None) -> int:
    """Bytes of an elementwise operator's output, in the smallest type that it can have."""
    shape = output_shape(op)
    if op is None or shape is None:
        return 0
    kinds = zip(op.input_shapes, op.input_types, strict=False)
    sizes = [TYPE_BYTES.get(kind, 0) for shape, kind in kinds if shape]
    if op.name in _BOOLEAN:
        return math.prod(shape)
    if op.name == "aten::copy_":
        return math.prod(shape) * sizes[0] if sizes else 0
    return math.prod(shape) * min(filter(None, (size for size in sizes if size > 1)), default=1)
