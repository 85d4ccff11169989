"""The figures and claims of the chapter fused_mlp, in the order of its pages.

probes.py          what probes returned, and what only Hopper runs
traffic.py         the bytes of a forward, and why the compiler moves them
first_kernels.py   a pointwise kernel, and a Linear with its activation
activation.py      the error of a sigmoid, and of one rough instruction
halves.py          gate, up and the activation in one kernel
architectures.py   the portable kernels for every GPU
residency.py       the schedule of the warps, the resources of a multiprocessor, and the tiles
ideas.py           the gain of each idea, the choices of tuning
forward.py         the whole forward
quack.py           the same against QuACK's
launching.py       dependent launch in traces
shapes.py          other shapes
new_shapes.py      the first call at a new one
calls.py           the forward from Python, and within compiled code
few_tokens.py      one token to sixty-four
in_use.py          errors, training, the package, and the exercises
"""

from snippets.fused_mlp.findings import (
    activation,
    architectures,
    calls,
    few_tokens,
    first_kernels,
    forward,
    halves,
    ideas,
    in_use,
    launching,
    new_shapes,
    quack,
    residency,
    shapes,
    traffic,
)

PARTS = (
    traffic,
    first_kernels,
    activation,
    halves,
    architectures,
    residency,
    ideas,
    forward,
    quack,
    launching,
    shapes,
    new_shapes,
    calls,
    few_tokens,
    in_use,
)
