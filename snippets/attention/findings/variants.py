"""The variants of the chapter, and what several of its parts ask of their steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from snippets.lab.finding import Device, Figure, Run, listed
from snippets.lab.trace.events import GpuActivity, Step, TraceError

BF16_BYTES = 2
VARIANTS = {
    "naive": "attention/naive",
    "in place": "attention/in_place",
    "math": "attention/math",
    "efficient": "attention/efficient",
    "flash": "attention/flash",
    "cuDNN": "attention/cudnn",
    "auto": "attention/auto",
    "compiled": "attention/compiled",
    "Flex": "attention/flex",
}
"""Every variant of one forward, as the page calls it -> experiment."""
EIGHT = {heading: experiment for heading, experiment in VARIANTS.items() if heading != "auto"}
"""Without `auto`, which runs one of the others."""
ONE_KERNEL = ("efficient", "flash", "cuDNN", "Flex")
"""The variants that never write the scores to memory."""


def op_name(activity: GpuActivity) -> str:
    """Name of the operator that launched an activity, empty where the trace ties it to none."""
    return activity.op.name if activity.op else ""


def kernels_and_copies(step: Step) -> tuple[GpuActivity, ...]:
    """The activities of a step without its fills."""
    return tuple(activity for activity in step.activities if activity.kind != "memset")


def first_of(step: Step, operator: str) -> GpuActivity:
    """The first kernel or copy that an operator launched. Raises `TraceError` without one."""
    for activity in kernels_and_copies(step):
        if op_name(activity) == operator:
            return activity
    raise TraceError(f"{step.name} has no kernel or copy of {operator}")


def first_us(run: Run, operator: str) -> Figure:
    """Time of the first kernel or copy of an operator."""
    return run.per_step(lambda step: first_of(step, operator).duration_us, "us")


def kernel_names(step: Step) -> str:
    """Names of the kernels of a step, in their order."""
    return ", ".join(kernel.name for kernel in step.kernels)


def count_and_names(step: Step) -> str:
    """How many kernels a step runs and their names, without what stands in parentheses or angle brackets."""
    names = ", ".join(re.split(r"[(<]", kernel.name)[0].removeprefix("void ") for kernel in step.kernels)
    return f"{len(step.kernels)} kernel{'s' * (len(step.kernels) != 1)}: {names}"


def per_variant(
    device: Device, variants: Mapping[str, str], of: Callable[[Step], int | str], separator: str = "; "
) -> Figure:
    """What the steps of several variants show, as `math X; naive Y`."""
    return listed({heading: device[experiment].per_step(of) for heading, experiment in variants.items()}, separator)
