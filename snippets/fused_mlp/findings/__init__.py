"""What the chapter fused_mlp shows and claims, in the order of its page.

measures.py   what more than one part needs
single.py     the bytes to save, the compiler's code, a pointwise kernel, a Linear with its activation
pingpong.py   two products in one kernel, consumers in turns, the whole forward
peers.py      other shapes, new shapes, errors, training, the package
"""

from collections.abc import Callable, Mapping

from snippets.fused_mlp.findings import peers, pingpong, single
from snippets.fused_mlp.findings.peers import (
    activations,
    errors_table,
    first_calls,
    handed_over,
    packaged_kernels,
    python_table,
    shape_roofline,
    shape_table,
    training_kernels,
    training_table,
)
from snippets.fused_mlp.findings.pingpong import (
    beside_quack,
    forwards,
    halves,
    our_kernels,
    residency,
    steps_table,
    three_forwards,
    tuned_table,
    turns,
)
from snippets.fused_mlp.findings.single import (
    floors,
    forward_traffic,
    generated_kernel,
    linear_compared,
    linear_diff,
    pointwise_compared,
)
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure

CLAIMS: tuple[Claim, ...] = (*single.CLAIMS, *pingpong.CLAIMS, *peers.CLAIMS)
FIGURES: Mapping[str, Callable[[str], Figure]] = {**single.FIGURES, **pingpong.FIGURES, **peers.FIGURES}

__all__ = [
    "CLAIMS",
    "FIGURES",
    "activations",
    "beside_quack",
    "errors_table",
    "first_calls",
    "floors",
    "forward_traffic",
    "forwards",
    "generated_kernel",
    "halves",
    "handed_over",
    "linear_compared",
    "linear_diff",
    "our_kernels",
    "packaged_kernels",
    "pointwise_compared",
    "python_table",
    "residency",
    "shape_roofline",
    "shape_table",
    "steps_table",
    "three_forwards",
    "training_kernels",
    "training_table",
    "tuned_table",
    "turns",
]
