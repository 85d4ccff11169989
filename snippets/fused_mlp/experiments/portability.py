"""Experiments on the kernels for absent GPUs: machine code for every
architecture, and code for one architecture run on another. Also 1 to 64
tokens."""

from __future__ import annotations

from typing import Any

from snippets.fused_mlp.experiments.forwards import forward_step
from snippets.fused_mlp.experiments.subjects import (
    interleaved,
    need_kernels,
    random_tensor,
    steadily,
    three_weights,
)
from snippets.lab.experiment import Instruments, NeedsGpu

FEW_TOKENS = (1, 4, 16, 64)
STEADY_TOKENS = (1, 16)
WIDE = (4096, 14336)
"""dim and hidden: weights of 352 MB, which no cache holds."""


def few_tokens(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The forward of few tokens, where reading the weights takes most of the
    time.

    Returns {"interleaved": {tokens: {variant: samples in microseconds}}, sample
    i of any two a pair; "steady": {tokens: {variant: {"samples_us",
    "clock_mhz", "watts"}}}}. Ignores the sizes given.
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
        found["interleaved"][str(tokens)] = interleaved(
            instruments, variants, tokens, dim
        )
        if tokens in STEADY_TOKENS:
            found["steady"][str(tokens)] = steadily(
                instruments, variants, tokens, dim
            )
    return found


def architectures(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """Every candidate of the portable kernels, compiled for every architecture.

    Returns {"columns": [...], "rows": [[...], ...], "limits": {compute
    capability: bytes of shared memory that a program may take}}. Runs nothing
    on a GPU and ignores the sizes given.
    """
    from snippets.fused_mlp.experiments.absent_gpus import (
        SHARED_LIMITS,
        Built,
        matrix,
    )
    from snippets.fused_mlp.experiments.compiling import missing_tools

    if missing := missing_tools():
        raise NeedsGpu(missing)
    return {
        "columns": list(Built._fields),
        "rows": [list(built) for built in matrix()],
        "limits": {str(one): limit for one, limit in SHARED_LIMITS.items()},
    }


OLD = 80
ODD = ((100, 776, 3080), (1, 768, 3072), (129, 72, 136))
"""Tokens, dim, hidden: in each, at least one size is not a multiple of any
tile."""


def ampere_code(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The portable kernel of gate and up compiled to PTX for an A100, run on
    this GPU: compared with float64, and with the same tiles compiled for this
    GPU.

    Returns {"tiles": name, "errors": {"TOKENSxDIMxHIDDEN": {"error",
    "eager_error"}}, relative, "interleaved": {"code for 8.0": samples in
    microseconds, "own code": samples}}, sample i of both a pair.
    """
    from snippets.fused_mlp.experiments.absent_gpus import gate_up_for
    from snippets.fused_mlp.geglu.portable import portable_gate_up
    from snippets.fused_mlp.geglu.portable_tiles import PORTABLE_GATED
    from snippets.fused_mlp.geglu.support import gated_reference, plain_gate_up

    need_kernels(device)
    tiles = next(tiles for tiles in PORTABLE_GATED if tiles.block_m == 128)
    found: dict[str, Any] = {"tiles": tiles.name, "errors": {}}
    for tokens_now, dim_now, hidden_now in (*ODD, (tokens, dim, hidden)):
        x = random_tensor(tokens_now, dim_now)
        gate, up, _ = three_weights(dim_now, hidden_now)
        exact = gated_reference(x, gate, up)
        run = gate_up_for(OLD, tiles, x.dtype, dim_now, hidden_now)
        results = {
            "error": run(x, gate, up),
            "eager_error": plain_gate_up(x, gate, up, "gelu_tanh"),
        }
        found["errors"][f"{tokens_now}x{dim_now}x{hidden_now}"] = {
            name: ((result.double() - exact).norm() / exact.norm()).item()
            for name, result in results.items()
        }
    run = gate_up_for(OLD, tiles, x.dtype, dim, hidden)
    found["interleaved"] = interleaved(
        instruments,
        {
            "code for 8.0": lambda x: run(x, gate, up),
            "own code": lambda x: portable_gate_up(
                x, gate, up, "gelu_tanh", tiles
            ),
        },
        tokens,
        dim,
    )
    return found


FORMS = (
    "gelu_tanh",
    "rough_gelu_tanh",
    "silu",
    "rough_silu",
    "gelu",
)


def activation_errors(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The errors of each form of an activation over all bfloat16 values, before
    its result is rounded.

    Returns {"forms": {form: [[least z, largest z, largest error], ...]}}: an
    entry for each interval between two powers of two, z negative and positive,
    the error in units of the exact result's last place in bfloat16. Ignores the
    sizes given.
    """
    import torch

    from snippets.fused_mlp.experiments.activations import swept

    need_kernels(device)
    found: dict[str, list[list[float]]] = {}
    for form in FORMS:
        z, units = swept(form, torch.bfloat16)
        binades = z.abs().log2().floor().clamp(-8, 8) * z.sign()
        binades = torch.where(z == 0, 0, binades + 16 * z.sign())
        found[form] = [
            [
                z[binades == binade].min().item(),
                z[binades == binade].max().item(),
                units[binades == binade].max().item(),
            ]
            for binade in binades.unique().tolist()
        ]
    return {"forms": found}
