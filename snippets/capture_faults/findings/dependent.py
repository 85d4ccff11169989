"""Kernels that start before their predecessor has ended: the time that their durations count twice."""

import math
from dataclasses import replace
from functools import partial

from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import busy_us
from snippets.lab.finding import Device, Figure, at_least, claim, format_value
from snippets.lab.page import show as show, timeline

BACKWARD = "pingpong_backward_kernel"
"""The kernel that begins our forward's backward."""


@claim("C16", at_least(1.02), scope="this-gpu")
def counted_twice(device: Device) -> Figure:
    """In a trace of the fused MLP, the two kernels' durations add up to at least 2 % more than the GPU's busy time."""
    return device["fused_mlp/fused"].per_step(
        lambda step: math.fsum(kernel.duration_us for kernel in step.kernels) / busy_us(step.activities), "x"
    )


def second_starts(device: Device) -> Figure:
    """When our forward's second kernel starts: how long before or after the end of its first."""

    def late_us(step: Step) -> float:
        first, second, *_ = step.kernels
        return second.start_us - first.end_us

    late = device["fused_mlp/fused"].per_step(late_us, "us")
    length = format_value(abs(late.number), "us")
    where = f"{length} before the first kernel ends" if late.number < 0 else f"{length} after the first kernel ends"
    return replace(late, display=where)


def early_when_recomputing(device: Device) -> Figure:
    """The number of recomputing training steps whose backward kernel starts before its predecessor has ended."""

    def is_early(step: Step) -> bool:
        kernels = step.kernels
        place = next(index for index, kernel in enumerate(kernels) if kernel.name == BACKWARD)
        return kernels[place].start_us < kernels[place - 1].end_us

    run = device["fused_mlp/training_fused_recompute"]
    early = [is_early(step) for step in run.steps]
    return Figure(f"{sum(early)} of {len(early)} steps", origin=run.origin)


early_launch = partial(
    timeline,
    variants={"our forward": "fused_mlp/fused"},
    caption="The two kernels of our forward, and when the second kernel starts",
)
