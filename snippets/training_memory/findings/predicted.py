"""What the page on peaks lets a reader compute."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.lab.finding import Device, Figure, Measure
from snippets.lab.page import Computation, prediction as prediction, show as show
from snippets.training_memory.findings.keeping import forward_work
from snippets.training_memory.findings.steps import run_of, share_of_gpu_time

SECOND_FORWARD = Computation(
    "If a step runs forward twice, how many times as long does the step take?",
    "training_memory.second_forward",
    "The time of one step, and {training_memory.forward_time_share} of this time again.",
    "Add the share of a step that forward takes to one.",
    {2.0: "your result counts a second backward, but only forward runs twice."},
)


def second_forward(device: Device) -> Figure:
    """A step and the share of it that forward takes, as a multiple of the step."""
    share = share_of_gpu_time(run_of(device, "autocast"), forward_work)
    return Figure(1 + share.number / 100, "x", origin=share.origin)


KEPT_FOR_GOOD = Computation(
    "Parameters and AdamW's two moments have how many times the bytes of the parameters?",
    "training_memory.kept_for_good",
    "Parameters and both moments have the same shapes, in float32.",
    "AdamW keeps two numbers for each parameter.",
    {
        4.0: "your result counts all gradients, but at the peak, backward has only begun.",
        2.0: "your result leaves out the parameters themselves or one of the two moments.",
    },
)
FIGURES: Mapping[str, Measure] = {
    "second_forward": second_forward,
    "kept_for_good": lambda device: Figure(3.0, "x", origin="parameters and two moments"),
}
