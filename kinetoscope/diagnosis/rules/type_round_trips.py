"""Tensors that are converted to another type and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.fusing import is_conversion
from kinetoscope.diagnosis.missing import no_gpu_work, unseen
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sites import around
from kinetoscope.diagnosis.sources import OWN
from kinetoscope.diagnosis.waste import Waste, findings, streams
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import FLOAT_TYPES

MAX_BETWEEN = 16
_BETWEEN = {"elementwise", "reduction", "softmax", "normalization", "copy", "other"}
"""Operations allowed between two conversions; any other, such as a product, needs the type that the first conversion
made."""
_OTHER_RULES = {"aten::_scaled_dot_product_attention_math"}

Conversion = tuple[tuple[int, ...], str, str]  # shape, type before, type after


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the types and shapes of `aten::copy_`."""
    return findings(RULE, facts, _look, _describe)


def _may_convert(activity: GpuActivity) -> bool:
    if activity.kind != "kernel":
        return False
    decoded = decode_kernel_name(activity.name)
    return decoded.library == "aten" and decoded.operation == "copy"


def _conversion(activity: GpuActivity) -> Conversion | None:
    op = activity.op
    if op is None or not _may_convert(activity) or not is_conversion(op):
        return None
    if not FLOAT_TYPES.keys() >= {*op.input_types[:2]}:
        return None
    if any("ToCopyBackward" in op.name or op.name in _OTHER_RULES for op in around(activity)):
        return None
    return op.input_shapes[0], op.input_types[1], op.input_types[0]


def _look(step: Step) -> list[Waste]:
    return [Waste(pair, sum(a.duration_us for a in pair)) for stream in streams(step) for pair in _round_trips(stream)]


def _round_trips(stream: Sequence[GpuActivity]) -> Iterator[tuple[GpuActivity, GpuActivity]]:
    """A conversion and its reverse of the same shape, with at most `MAX_BETWEEN` kernels and no product between."""
    waiting: dict[Conversion, tuple[int, GpuActivity]] = {}
    for index, activity in enumerate(stream):
        if activity.kind == "kernel" and decode_kernel_name(activity.name).operation not in _BETWEEN:
            waiting.clear()
        elif (conversion := _conversion(activity)) is not None:
            shape, before, after = conversion
            first = waiting.pop((shape, after, before), None)
            if first is not None and index - first[0] <= MAX_BETWEEN + 1:
                yield first[1], activity
            else:
                waiting[conversion] = index, activity


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    return f"{count_text(len(waste), 'tensor')} converted to another type and back: {duration_text(time_us)} per step"


RULE = Rule(
    name="type-round-trips",
    title="Tensors are converted to another type and back",
    looks_for="`aten::copy_` converts a tensor from one floating-point type to another type. After a few kernels and "
    "no product, a second copy of the same shape converts back. For example, a normalization or softmax is in "
    "float32 between 16-bit layers. Autograd's own conversions of gradients don't count.",
    threshold=f"At most {MAX_BETWEEN} kernels run between the two conversions, and the conversions take at least 1 % "
    "of a step.",
    source=OWN,
    advice="Let one kernel convert while it computes: use `torch.compile`, or the fused operators (`F.rms_norm`, "
    "`F.layer_norm`, `F.softmax(x, dtype=...)`), which sum in float32.",
    find=find,
    needs=(no_gpu_work, partial(unseen, concerns=_may_convert, needs_shapes=True)),
    confidence="medium",
    mistaken="The operator between the conversions needs the wider type, and no fused operator keeps this type.",
)
