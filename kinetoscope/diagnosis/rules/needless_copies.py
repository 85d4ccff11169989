"""Copies that change neither values nor type, only the layout in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work, unseen
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sites import is_inside
from kinetoscope.diagnosis.sources import OWN, PERFESSOR
from kinetoscope.diagnosis.token_work import heads_repeated
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import copy_direction

_COPIERS = "aten::clone", "aten::contiguous"
_OTHER_RULES = ("aten::_scaled_dot_product_attention_math",)


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the operators around each copy."""
    return findings(RULE, facts, _look, _describe)


def _is_copy(activity: GpuActivity) -> bool:
    if activity.kind == "memcpy":
        return copy_direction(activity.name) == "DtoD"
    return activity.kind == "kernel" and decode_kernel_name(activity.name).operation == "copy"


def _is_needless(activity: GpuActivity) -> bool:
    types = activity.op.input_types[:2] if activity.op else ()
    if not _is_copy(activity) or len(set(types)) > 1 or heads_repeated(activity) is not None:
        return False
    return is_inside(activity, *_COPIERS) and not is_inside(activity, *_OTHER_RULES)


def _look(step: Step) -> list[Waste]:
    return [Waste((activity,), activity.duration_us) for activity in step.activities if _is_needless(activity)]


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    return f"{count_text(len(waste), 'copy')} for contiguous or clone: {duration_text(time_us)} per step"


RULE = Rule(
    name="needless-copies",
    title="Tensors are copied without need",
    looks_for="`aten::contiguous` or `aten::clone` copies a tensor within the GPU. Some copies make a view "
    "contiguous for the next operator (as `reshape` and `repeat` do). Other copies belong to an operator that isn't "
    "in place, such as `masked_fill`. A clone that your code needs looks the same.",
    threshold="These copies take at least 1 % of a step.",
    source=f"{OWN}; {PERFESSOR} warns of memcpys above 10 %",
    advice="Let the producer write the layout that its consumer reads. Use operators that take views (`expand` "
    "instead of `repeat`, grouped-query attention instead of repeated heads), and in-place operators where autograd "
    "allows this.",
    find=find,
    needs=(no_gpu_work, partial(unseen, concerns=_is_copy, needs_shapes=False)),
    confidence="medium",
    mistaken="The program needs the copy: it changes the copy, or keeps the copy while the original changes.",
)
