"""Kernels that only change a convolution's memory format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import GpuActivity, Step

_CONVERSION = re.compile(r"nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw|batched_transpose_|tensorTransformGeneric", re.I)


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the names of kernels."""
    return findings(RULE, facts, _look, _describe)


def _is_conversion(activity: GpuActivity) -> bool:
    return activity.kind == "kernel" and _names_conversion(activity.name)


@cache
def _names_conversion(name: str) -> bool:
    return _CONVERSION.search(name.partition("(")[0]) is not None


def _look(step: Step) -> list[Waste]:
    return [Waste((activity,), activity.duration_us) for activity in step.activities if _is_conversion(activity)]


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    return f"{count_text(len(waste), 'layout conversion')} around convolutions: {duration_text(time_us)} per step"


RULE = Rule(
    name="layout-conversions",
    title="Convolutions convert the layout of their tensors",
    looks_for="Kernels of cuDNN or MIOpen copy a tensor from channels-first to channels-last or back (nchwToNhwc, "
    "nhwcToNchw, batched_transpose), because the fast convolutions need the other layout.",
    threshold="These kernels take at least 1 % of a step.",
    source="PyTorch, channels last memory format: "
    "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html; the threshold is this book's",
    advice="Convert model and input once: `model.to(memory_format=torch.channels_last)`, "
    "`x.to(memory_format=torch.channels_last)`.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The convolution saves more time in the other layout than the conversions take, and the input can't "
    "have this layout.",
)
