"""What the page on peaks lets a reader compute."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.lab.finding import Device, Figure, Measure
from snippets.lab.page import Computation, prediction as prediction, show as show
from snippets.training_memory.findings.keeping import forward_work
from snippets.training_memory.findings.steps import run_of, share_of_gpu_time

SECOND_FORWARD = Computation(
    "A step plus its forward once more is how many steps?",
    "training_memory.second_forward",
    "One, and {training_memory.forward_time_share} of it again.",
    "Add the share of a step that its forward takes.",
    {2.0: "that runs backward again, too."},
)


def second_forward(device: Device) -> Figure:
    """A step and the share of it that forward takes, as a multiple of the step."""
    share = share_of_gpu_time(run_of(device, "autocast"), forward_work)
    return Figure(1 + share.number / 100, "x", origin=share.origin)


KEPT_FOR_GOOD = Computation(
    "Parameters and AdamW's two moments: how many times the parameters?",
    "training_memory.kept_for_good",
    "All three have the shape of the parameters, in float32.",
    "AdamW keeps two numbers for each parameter.",
    {
        4.0: "that counts all gradients. At the peak, backward has only begun.",
        2.0: "AdamW keeps two moments, and the parameters themselves are there, too.",
    },
)
FIGURES: Mapping[str, Measure] = {
    "second_forward": second_forward,
    "kept_for_good": lambda device: Figure(3.0, "x", origin="parameters and two moments"),
}
