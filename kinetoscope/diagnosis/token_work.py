"""What a step that produces one token reads: the products of its few rows, and attention over the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.products import is_product
from kinetoscope.diagnosis.sites import around
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.tokens import ATTENTION, EMBEDDING
from kinetoscope.trace.work import PRODUCTS, TYPE_BYTES, ActivityWork, op_work

_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def attention_op(activity: GpuActivity) -> CpuOp | None:
    """The outermost attention operator around an activity; None outside of attention."""
    found = None
    for op in around(activity):
        if ATTENTION.fullmatch(op.name):
            found = op
    return found


def heads_repeated(activity: GpuActivity) -> int | None:
    """How often a copy repeats each head of keys or values: 4 for 32 query heads of 8; None for another activity.

    1 if the trace does not tell how often.
    """
    op = activity.op
    if activity.kind != "kernel" or op is None:
        return None
    if op.name == "aten::copy_" and len(op.input_shapes) > 1 and len(op.input_shapes[1]) == 5:
        shape, strides = op.input_shapes[1], op.input_strides[1] if len(op.input_strides) > 1 else ()
        times = [size for size, stride in zip(shape, strides, strict=False) if size > 1 and stride == 0]
        return times[0] if len(times) == 1 and op.input_types[:1] == op.input_types[1:2] else None
    outer = next((each for each in around(activity) if each.name == "aten::repeat_interleave"), None)
    return 1 if outer is not None and len(outer.input_shapes[:1] and outer.input_shapes[0]) == 4 else None


def product_works(step: Step) -> Iterator[tuple[CpuOp, ActivityWork]]:
    """The matrix products of a step that launched kernels, each once, with their work as far as shapes tell it."""
    seen: set[tuple[int, int]] = set()
    for activity in step.activities:
        op, launch = activity.op, activity.launch
        replay = id(launch) if launch is not None and "GraphLaunch" in launch.name else 0
        if activity.kind == "kernel" and op is not None and op.name in PRODUCTS and (id(op), replay) not in seen:
            seen.add((id(op), replay))
            work = op_work(op)
            if work is not None and work.matmul is not None:
                yield op, work


def cache_bytes(step: Step) -> int:
    """Bytes of the keys and values that the attention operators of a step read; of a repeated head once."""
    times = min((count for a in step.activities if (count := heads_repeated(a)) is not None), default=1)
    ops = {id(op): op for activity in step.activities if (op := attention_op(activity)) is not None}.values()
    return sum(_bytes(op, index) for op in ops for index in (1, 2)) // times


def reads(activity: GpuActivity) -> bool:
    """Whether it is a kernel of a product or of attention, which read the weights and the cache."""
    is_attention = activity.kind == "kernel" and decode_kernel_name(activity.name).operation == "attention"
    return is_attention or is_product(activity)


def reads_known_bytes(activity: GpuActivity) -> bool:
    """Whether the operator of a product or of attention tells the bytes that it reads."""
    op = activity.op
    if op is not None and op.name in PRODUCTS:
        return op_work(op) is not None
    outer = attention_op(activity)
    return outer is not None and _bytes(outer, 1) > 0


def prompt_weight_bytes(facts: Facts) -> int:
    """Bytes of the weights that products before the first token read, of one forward pass over a prompt; 0 if there is
    another number of passes, or without shapes."""
    first = facts.token_steps[0].start_us
    before = [op for op in facts.trace.cpu_ops if op.start_us < first]
    if sum(op.name == EMBEDDING for op in before) != 1:
        return 0
    products = [op for op in before if op.name in ("aten::mm", "aten::addmm", "aten::linear")]
    inner = [op for op in products if not any(op is product.parent for product in products)]
    total = 0
    for op in inner:
        work = op_work(op)
        if work is None or work.matmul is None:
            return 0
        _, depth, columns = work.matmul
        total += depth * columns * _BYTES[work.dtype]
    return total


def _bytes(op: CpuOp, index: int) -> int:
    if len(op.input_shapes) <= index or len(op.input_types) <= index or len(op.input_shapes[index]) != 4:
        return 0
    strides = op.input_strides[index] if len(op.input_strides) > index else ()
    sizes = [
        1 if stride == 0 else size
        for size, stride in zip(op.input_shapes[index], strides or op.input_shapes[index], strict=False)
    ]
    return math.prod(sizes) * TYPE_BYTES.get(op.input_types[index], 0)
