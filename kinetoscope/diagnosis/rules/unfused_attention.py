"""Softmax between two batched products: attention that writes its scores to memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work, unseen
from kinetoscope.diagnosis.peaks import HALF, Peaks, find_peaks
from kinetoscope.diagnosis.products import is_product
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sites import around, is_inside
from kinetoscope.diagnosis.sources import GPUPROF
from kinetoscope.diagnosis.waste import Waste, findings, streams
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import ActivityWork, step_work

MAX_BETWEEN = 40
MATH = "aten::_scaled_dot_product_attention_math"
_BATCHED = {"aten::bmm": 0, "aten::baddbmm": 1}
"""Operator -> index of its left factor."""
_NEVER_BETWEEN = {"gemm", "gemv", "convolution", "communication", "normalization"}


@dataclass(frozen=True)
class _Region:
    """Two batched products, all activities between them, and the further work that one kernel would do or avoid."""

    first: GpuActivity
    last: GpuActivity
    activities: tuple[GpuActivity, ...]
    beside: tuple[GpuActivity, ...] = ()
    """Batched products directly before and after that read the same scores."""


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check operators; with shapes and the device's datasheet, also compute the saving."""
    if any(map(_is_softmax, (a for step in facts.steps for a in step.activities))) and (
        unable := unseen(RULE, facts, is_product, needs_shapes=False)
    ):
        return unable
    peaks = find_peaks(facts.trace.device)

    def look(step: Step) -> list[Waste]:
        regions = [region for stream in streams(step) for region in _regions(stream)]
        works = dict(zip(map(id, step.activities), step_work(step, of=_is_batched), strict=True)) if regions else {}
        return [Waste(region.activities, _avoidable_us(region, works, peaks)) for region in regions]

    return findings(RULE, facts, look, _describe)


def _is_batched(activity: GpuActivity) -> bool:
    return activity.kind == "kernel" and activity.op is not None and activity.op.name in _BATCHED


def _is_softmax(activity: GpuActivity) -> bool:
    """Whether it is a kernel of softmax or its gradient, by its operator's name or its own; log_softmax does not
    count."""
    name = f"{activity.op.name if activity.op else ''} {activity.name}".lower().replace("-", "_")
    return activity.kind == "kernel" and "softmax" in name and "log_softmax" not in name and "logsoftmax" not in name


def _regions(stream: Sequence[GpuActivity]) -> Iterator[_Region]:
    first: int | None = None
    for index, activity in enumerate(stream):
        if not _is_batched(activity):
            if first is not None and _ends(activity, index - first):
                first = None
            continue
        if first is not None and _is_attention(stream[first : index + 1]):
            yield _with_math(stream, first, index)
        first = index


def _ends(activity: GpuActivity, distance: int) -> bool:
    if distance > MAX_BETWEEN:
        return True
    return activity.kind == "kernel" and decode_kernel_name(activity.name).operation in _NEVER_BETWEEN


def _is_attention(activities: Sequence[GpuActivity]) -> bool:
    """Whether there is a softmax between, and the last product reads scores of the shape that the first product
    wrote."""
    if not any(map(_is_softmax, activities[1:-1])):
        return False
    scores = _scores(activities[0].op)
    factors = _factors(activities[-1].op)
    return scores is None or not factors or any(_same_scores(shape, scores) for shape in factors)


def _factors(op: CpuOp | None) -> tuple[tuple[int, ...], ...]:
    """The shapes of the two factors of a batched product; empty without shapes."""
    if op is None:
        return ()
    left = _BATCHED[op.name]
    factors = op.input_shapes[left : left + 2]
    return factors if len(factors) == 2 and all(len(shape) == 3 for shape in factors) else ()


def _scores(op: CpuOp | None) -> tuple[int, int, int] | None:
    """(batch, queries, keys) of the scores that a batched product writes."""
    factors = _factors(op)
    return (factors[0][0], factors[0][1], factors[1][2]) if factors else None


def _same_scores(shape: tuple[int, ...], scores: tuple[int, int, int]) -> bool:
    """Whether a shape is that of the scores, or of their transpose, which backward reads."""
    return shape[0] == scores[0] and sorted(shape[1:]) == sorted(scores[1:])


def _with_math(stream: Sequence[GpuActivity], first: int, last: int) -> _Region:
    """The region, with the conversions and masks around it if PyTorch's math path computes attention.

    Else with adjacent products that read the same scores, such as backward's, and with copies of their other factors,
    since fused kernels read and write any layout.
    """
    math_op = _math_op(stream[first])
    scores = _scores(stream[first].op)
    if math_op is not None:
        begin, end = _widened(stream, first, last + 1, lambda activity: _math_op(activity) is math_op)
    elif scores is not None:
        begin, end = _widened(stream, first, last + 1, lambda activity: _is_of(activity, scores))
    else:
        begin, end = first, last + 1
    around_it = (*stream[begin:first], *stream[last + 1 : end])
    beside = tuple(filter(_is_batched, around_it)) if math_op is None else ()
    return _Region(stream[first], stream[last], tuple(stream[begin:end]), beside)


def _widened(
    stream: Sequence[GpuActivity], begin: int, end: int, belongs: Callable[[GpuActivity], bool]
) -> tuple[int, int]:
    """The range, extended by adjacent activities that belong to it, across memsets."""
    for index in range(begin - 1, -1, -1):
        if belongs(stream[index]):
            begin = index
        elif stream[index].kind != "memset":
            break
    for index in range(end, len(stream)):
        if belongs(stream[index]):
            end = index + 1
        elif stream[index].kind != "memset":
            break
    return begin, end


def _is_of(activity: GpuActivity, scores: tuple[int, int, int]) -> bool:
    """Whether it is a product that reads these scores, or changes the layout of queries, keys, values or output."""
    op = activity.op
    if op is None:
        return False
    if _is_batched(activity):
        return any(_same_scores(shape, scores) for shape in _factors(op))
    is_copy = op.name == "aten::copy_" and len(op.input_shapes) > 1 and op.input_types[:1] == op.input_types[1:2]
    return is_copy and _is_of_heads(op.input_shapes[0], scores)


def _is_of_heads(shape: tuple[int, ...], scores: tuple[int, int, int]) -> bool:
    """Whether a shape has batch, heads, and queries or keys, and another size, in any layout that begins with the
    batch."""
    products, queries, keys = scores
    return len(shape) == 4 and any(
        shape[0] * heads == products and {queries, keys} & {*rest}
        for heads, rest in ((shape[1], shape[2:]), (shape[2], (shape[1], shape[3])))
    )


def _math_op(activity: GpuActivity) -> CpuOp | None:
    return next((op for op in around(activity) if op.name == MATH), None)


def _avoidable_us(region: _Region, works: dict[int, ActivityWork | None], peaks: Peaks | None) -> float:
    """The region's time beyond the needs of one kernel; products keep their time if shapes or device are unknown.

    One kernel reads queries, keys and values and writes the output in 16 bits, and a causal mask halves the operations.
    For a product next to the two, only its output counts, since its inputs may be read already.
    """
    total_us = math.fsum(a.duration_us for a in region.activities)
    products = works.get(id(region.first)), works.get(id(region.last))
    scores = _scores(region.first.op)
    if peaks is None or scores is None or products[0] is None or products[1] is None:
        kept = (region.first, region.last, *region.beside)
        return max(0.0, total_us - math.fsum(product.duration_us for product in kept))
    factors = [*_factors(region.first.op), *_factors(region.last.op)]
    elements = sum(math.prod(shape) for shape in factors if not _same_scores(shape, scores))
    rows, _, columns = products[1].matmul or (0, 0, 0)
    flops = products[0].flops + products[1].flops
    written = rows * columns
    for work in filter(None, (works.get(id(product)) for product in region.beside)):
        rows, _, columns = work.matmul or (0, 0, 0)
        flops += work.flops
        written += rows * columns
    least_us = peaks.roof_us(flops // 2, 2 * (elements + written), HALF) or 0.0
    return max(0.0, total_us - least_us)


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    is_math = any(is_inside(found.activities[0], MATH) for found in waste)
    what = "PyTorch's math path for attention" if is_math else "softmax between two batched products"
    return f"{what}, {count_text(len(waste), 'time')} a step: {duration_text(time_us)}"


RULE = Rule(
    name="unfused-attention",
    title="Attention writes its scores to memory",
    looks_for="A softmax runs between two batched products, and the second product reads the result of the softmax, "
    "in a forward or backward pass. Products and copies of the same heads also count. Or PyTorch calls "
    "`aten::_scaled_dot_product_attention_math`, because no fused kernel accepts the inputs.",
    threshold=f"At most {MAX_BETWEEN} kernels and no other product run between the two products. The ceiling is at "
    "least 1 % of a step.",
    source=f"{GPUPROF} (softmax and bmm, no fused attention); regions and ceiling are this book's",
    advice="Call `F.scaled_dot_product_attention` (or FlexAttention for your own masks) with 16-bit inputs. If this "
    "function takes the math path, `torch.nn.attention.sdpa_kernel` says why a fused kernel refuses the inputs: "
    "type, head size, mask or layout.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The program needs the scores themselves, for example to show or to regularize them.",
)
