"""Softmax between two batched products: attention that writes its scores to memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from snippets.lab.diagnosis.amounts import count_text, duration_text
from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.missing import no_gpu_work, unseen
from snippets.lab.diagnosis.peaks import HALF, Peaks, find_peaks
from snippets.lab.diagnosis.products import is_product
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.sites import around, is_inside
from snippets.lab.diagnosis.sources import GPUPROF
from snippets.lab.diagnosis.waste import Waste, findings, streams
from snippets.lab.trace.events import CpuOp, GpuActivity, Step
from snippets.lab.trace.kernel_names import decode_kernel_name
from snippets.lab.trace.work import ActivityWork, step_work

MAX_BETWEEN = 40
MATH = "aten::_scaled_dot_product_attention_math"
_BATCHED = {"aten::bmm": 0, "aten::baddbmm": 1}
"""Operator -> index of its left factor."""
_NEVER_BETWEEN = {"gemm", "gemv", "convolution", "communication", "normalization"}


@dataclass(frozen=True)
class _Region:
    """Two batched products, all between them, and what else the math path of PyTorch runs for them."""

    first: GpuActivity
    last: GpuActivity
    activities: tuple[GpuActivity, ...]


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """By operators; the ceiling also by shapes and the datasheet of the device."""
    if unable := no_gpu_work(RULE, facts):
        return unable
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
    """Whether it is a kernel of softmax or its gradient, by its operator's name or its own; log_softmax is none."""
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
    """Whether a softmax lies between, and the last product reads scores of the shape that the first one wrote."""
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
    """Backward reads them transposed."""
    return shape[0] == scores[0] and sorted(shape[1:]) == sorted(scores[1:])


def _with_math(stream: Sequence[GpuActivity], first: int, last: int) -> _Region:
    """The region, with the conversions and masks around it if PyTorch's math path computes attention."""
    math_op = _math_op(stream[first])
    begin, end = first, last + 1
    if math_op is not None:
        while begin > 0 and _math_op(stream[begin - 1]) is math_op:
            begin -= 1
        while end < len(stream) and _math_op(stream[end]) is math_op:
            end += 1
    return _Region(stream[first], stream[last], tuple(stream[begin:end]))


def _math_op(activity: GpuActivity) -> CpuOp | None:
    return next((op for op in around(activity) if op.name == MATH), None)


def _avoidable_us(region: _Region, works: dict[int, ActivityWork | None], peaks: Peaks | None) -> float:
    """All but what one kernel needs; the two products stay as they are where shapes or device are unknown.

    One kernel reads queries, keys and values and writes the output in 16 bits, and a causal mask halves the operations.
    """
    total_us = math.fsum(a.duration_us for a in region.activities)
    products = works.get(id(region.first)), works.get(id(region.last))
    scores = _scores(region.first.op)
    if peaks is None or scores is None or products[0] is None or products[1] is None:
        return max(0.0, total_us - region.first.duration_us - region.last.duration_us)
    factors = [*_factors(region.first.op), *_factors(region.last.op)]
    elements = sum(math.prod(shape) for shape in factors if not _same_scores(shape, scores))
    rows, _, columns = products[1].matmul or (0, 0, 0)
    flops = (products[0].flops + products[1].flops) // 2
    least_us = peaks.roof_us(flops, 2 * (elements + rows * columns), HALF) or 0.0
    return max(0.0, total_us - least_us)


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    is_math = any(is_inside(found.activities[0], MATH) for found in waste)
    what = "PyTorch's math path for attention" if is_math else "softmax between two batched products"
    return f"{what}, {count_text(len(waste), 'time')} a step: {duration_text(time_us)}"


RULE = Rule(
    name="unfused-attention",
    title="Attention writes its scores to memory",
    looks_for=(
        "A batched product, then a softmax, then a batched product that reads its result, forward or backward; or "
        "`aten::_scaled_dot_product_attention_math`, which PyTorch takes if no fused kernel accepts the inputs."
    ),
    threshold=f"At most {MAX_BETWEEN} kernels and no other product lie between; the ceiling is at least 1 % of a step.",
    source=f"{GPUPROF} (softmax and bmm, no fused attention); regions and ceiling are this book's",
    advice=(
        "Call `F.scaled_dot_product_attention` (or FlexAttention for masks of your own) with 16-bit inputs. If it "
        "takes "
        "the math path, `torch.nn.attention.sdpa_kernel` says at the call why a fused kernel refuses: type, head size, "
        "mask or layout."
    ),
    check=check,
)
