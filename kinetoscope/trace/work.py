"""The work of a kernel: the floating-point operations of its matmul and the bytes it must move.

A trace holds the operator that launched a kernel, and with `record_shapes` the shapes, strides and types of its inputs.
They determine the work of matmuls and pointwise operators. For a kernel that a compiler fused, and in any uncertain
case, the result is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from kinetoscope.trace.events import CpuOp, GpuActivity, Shapes, Step

MatmulShape = tuple[int, int, int]
KnownWork = Mapping[int, tuple[int, int]]
"""Index of an activity in its step -> FLOPs and bytes, given by the caller for work that the trace lacks."""


@dataclass(frozen=True)
class ActivityWork:
    """The minimum work of an activity: read each input once, write each output once."""

    flops: int
    """Floating-point operations of a matmul, where a multiply-add counts as two; 0 for other work."""
    bytes: int
    matmul: MatmulShape | None = None
    """(M, K, N) of the matmul, with the batch folded into M."""
    layout: str = field(default="", compare=False)
    """How the matmul's factors are stored: `x @ w` or `x @ weight.t()`; empty for other layouts and other work."""
    dtype: str = field(default="", compare=False)
    """Type of the matmul's factors, such as `bfloat16`."""


class _Tensor(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: str

    @property
    def bytes(self) -> int:
        """Bytes of the distinct elements: elements that an expanded dimension repeats count once.

        0 for a tensor without dimensions: nearly always a Python number, passed as a launch argument. Raises
        `_Unknown` if rows may overlap.
        """
        count, reach = min(len(self.shape), 1), 0
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size > 1 and 0 < stride <= reach:
                raise _Unknown
            reach += stride * (size - 1)
            count *= size if stride else min(size, 1)
        return count * TYPE_BYTES[self.type]


class _Unknown(Exception):
    """The trace does not determine the work."""


TYPE_BYTES = {
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "short int": 2,
    "int": 4,
    "long int": 8,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "float": 4,
    "double": 8,
}
"""Type of an input, as the profiler writes it -> bytes of an element."""
FLOAT_TYPES = {"c10::Half": "float16", "c10::BFloat16": "bfloat16", "float": "float32", "double": "float64"}
"""Floating-point type of an input, as the profiler writes it -> its name in PyTorch."""
_NO_TENSORS = {"", "Scalar", "ScalarList"}
PRODUCTS = {
    "aten::mm": (0, 1, None, 2),
    "aten::bmm": (0, 1, None, 2),
    "aten::matmul": (0, 1, None, 2),
    "aten::linear": (0, 1, 2, 3),
    "aten::addmm": (1, 2, 0, 5),
    "aten::baddbmm": (1, 2, 0, 5),
}
"""Operator -> indices of both factors and of the addend, and the number of inputs before `out`."""
_OF_ONE = "abs cos erf exp gelu log neg relu rsqrt sigmoid silu sin sqrt tanh"
_OF_TWO = """
    add clamp_max clamp_min div maximum minimum mul pow rsub sub
    gelu_backward sigmoid_backward silu_backward tanh_backward threshold_backward
"""
_POINTWISE = {f"aten::{name}": 1 for name in _OF_ONE.split()} | {f"aten::{name}": 2 for name in _OF_TWO.split()}
"""Operator -> how many inputs it reads element by element; numbers among them are not read from memory."""


def step_work(
    step: Step,
    known: KnownWork | Callable[[Step], KnownWork] | None = None,
    *,
    of: Callable[[GpuActivity], bool] = lambda activity: True,
) -> tuple[ActivityWork | None, ...]:
    """Return the work of each activity of a step, in order; None if neither `known` nor the trace determines it.

    A copy within GPU memory reads and writes its bytes; any other memcpy or memset accesses them once there. A kernel
    has the work of its operator if the operator launched only this kernel: the work of two cannot be divided. Two
    inputs that are the same tensor count twice, and the addend of `addmm` counts even if `beta` is 0: the trace
    records neither fact. `of` chooses activities: the work of any other is None.
    """
    stated = known(step) if callable(known) else known or {}
    kernels = Counter(activity.op for activity in step.activities if activity.kind == "kernel")
    return tuple(
        (ActivityWork(*stated[index]) if index in stated else _work(activity, kernels[activity.op]))
        if of(activity)
        else None
        for index, activity in enumerate(step.activities)
    )


def _work(activity: GpuActivity, kernels_of_op: int) -> ActivityWork | None:
    if activity.kind != "kernel":
        twice = activity.kind == "memcpy" and "DtoD" in activity.name
        return None if activity.moved_bytes is None else ActivityWork(0, (1 + twice) * activity.moved_bytes)
    op = activity.op
    if op is None or kernels_of_op != 1:
        return None
    return _op_work(op.name, op.input_shapes, op.input_strides, op.input_types)


def op_work(op: CpuOp) -> ActivityWork | None:
    """The work of an operator by its inputs, whatever kernels compute it; None if unknown."""
    return _op_work(op.name, op.input_shapes, op.input_strides, op.input_types)


@cache
def _op_work(name: str, shapes: Shapes, strides: Shapes, types: tuple[str, ...]) -> ActivityWork | None:
    """The work of an operator with these inputs; a step repeats few of them."""
    if not len(shapes) == len(strides) == len(types):
        return None
    try:
        return _of_op(name, tuple(map(_tensor, shapes, strides, types)))
    except (_Unknown, IndexError):  # IndexError: fewer inputs than the operator of this name has
        return None


def _tensor(shape: tuple[int, ...], strides: tuple[int, ...], kind: str) -> _Tensor | None:
    if kind in TYPE_BYTES and len(shape) == len(strides):
        return _Tensor(shape, strides, kind)
    if kind in _NO_TENSORS and not shape:
        return None
    raise _Unknown


def _of_op(name: str, inputs: Sequence[_Tensor | None]) -> ActivityWork:
    if name in PRODUCTS:
        return _product(inputs, *PRODUCTS[name], transposed=name == "aten::linear")
    if name in ("aten::fill_", "aten::zero_", "aten::copy_") and (written := inputs[0]) is not None:
        read = [inputs[1]] if name == "aten::copy_" else []
        return ActivityWork(0, _written(written.shape, written.type) + _read(read))
    base = name.removesuffix("_")
    if base not in _POINTWISE:
        raise _Unknown
    return _pointwise(inputs, _POINTWISE[base], in_place=base != name)


def _product(
    inputs: Sequence[_Tensor | None], left: int, right: int, added: int | None, count: int, *, transposed: bool
) -> ActivityWork:
    """The work of `inputs[left] @ inputs[right] + inputs[added]`; `linear` transposes the right factor."""
    if len(inputs) not in (count, count + 1):
        raise _Unknown
    a, b, c = inputs[left], inputs[right], None if added is None else inputs[added]
    if a is None or b is None or a.type != b.type or a.type not in FLOAT_TYPES or min(len(a.shape), len(b.shape)) < 2:
        raise _Unknown
    columns, depth = b.shape[-2:] if transposed else b.shape[:-3:-1]
    shape = (*_broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], columns)
    if a.shape[-1] != depth or (c is not None and (c.type != a.type or _broadcast(c.shape, shape) != shape)):
        raise _Unknown
    written = _out(inputs[count:], shape, a.type)
    product = (math.prod(shape[:-1]), depth, columns)
    layout = _layout(a, b, transposed)
    return ActivityWork(2 * math.prod(product), _read((a, b, c)) + written, product, layout, FLOAT_TYPES[a.type])


def _layout(left: _Tensor, right: _Tensor, transposed: bool) -> str:
    """`x @ w` if the rows of both factors are stored in order, `x @ weight.t()` if the right one's columns are."""
    stored = "weight.t()" if (right.strides[-1] == 1) == transposed else "w"
    is_plain = left.strides[-1] == 1 and 1 in right.strides[-2:]
    return f"x @ {stored}" if is_plain else ""


def _pointwise(inputs: Sequence[_Tensor | None], count: int, *, in_place: bool) -> ActivityWork:
    """The work of an operator that broadcasts its first `count` inputs and writes one output of that shape."""
    read = [tensor for tensor in inputs[:count] if tensor is not None and tensor.shape]
    if not read or {tensor.type for tensor in read} - set(FLOAT_TYPES) or len({tensor.type for tensor in read}) > 1:
        raise _Unknown  # for mixed types or integers, the result's type depends on the operator
    shape = _broadcast(*(tensor.shape for tensor in read))
    if in_place and (inputs[0] is None or inputs[0].shape != shape):
        raise _Unknown
    out = [tensor for tensor in inputs[count:] if tensor is not None]
    return ActivityWork(0, _read(read) + _out(out, shape, read[0].type))


def _out(inputs: Sequence[_Tensor | None], shape: tuple[int, ...], kind: str) -> int:
    """Bytes written: to `out` if given, else to a new tensor."""
    if not inputs:
        return _written(shape, kind)
    if len(inputs) > 1 or inputs[0] is None or inputs[0].shape != shape:
        raise _Unknown
    return _written(shape, inputs[0].type)


def _written(shape: tuple[int, ...], kind: str) -> int:
    return math.prod(shape) * TYPE_BYTES[kind]


def _read(tensors: Sequence[_Tensor | None]) -> int:
    return sum(tensor.bytes for tensor in tensors if tensor is not None)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that PyTorch broadcasts `shapes` to. Raises `_Unknown` if PyTorch would raise."""
    longest = max(map(len, shapes))
    sizes = []
    for column in zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True):
        distinct = {size for size in column if size != 1} or {1}
        if len(distinct) > 1:
            raise _Unknown
        sizes.append(distinct.pop())
    return tuple(sizes)
