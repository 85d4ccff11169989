"""What is measured of the kernels on GPUs that are not there: machine code for
every architecture, and the code of one run on another. And one token to
sixty-four."""

from __future__ import annotations

from typing import Any

from snippets.fused_mlp.forwards import forward_step
from snippets.fused_mlp.subjects import need_kernels, steps_alone
from snippets.lab.experiment import Instruments

FEW_TOKENS = (1, 2, 4, 8, 16, 32, 64)
STEADY_TOKENS = (1, 16)
WIDE = (4096, 14336)
"""dim and hidden: weights of 352 MB, which no cache holds."""


def few_tokens(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The forward of few tokens, where reading the weights is the work.

    Returns {"interleaved": {tokens: {variant: samples in microseconds}}, sample
    i of any two a pair; "steady": {tokens: {variant: {"samples_us",
    "clock_mhz", "watts"}}}}. The sizes given do not matter.
    """
    import torch

    from snippets.mlp.model import GeGLU

    need_kernels(device)
    dim, hidden = WIDE
    plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16).eval()
    names = ("eager", "compiled", "max_autotune", "fused")
    found: dict[str, Any] = {"interleaved": {}, "steady": {}}
    for tokens in FEW_TOKENS:
        torch._dynamo.reset()
        variants = {name: forward_step(name, plain, device) for name in names}
        subjects = steps_alone(variants, tokens, dim)
        times = instruments.time_interleaved(subjects)
        found["interleaved"][str(tokens)] = {
            name: list(one.samples_us) for name, one in times.items()
        }
        if tokens in STEADY_TOKENS:
            found["steady"][str(tokens)] = {
                name: {
                    "samples_us": list(one.samples_us),
                    "clock_mhz": one.clock_mhz,
                    "watts": one.watts,
                }
                for name, one in instruments.time_steady(subjects).items()
            }
    return found
