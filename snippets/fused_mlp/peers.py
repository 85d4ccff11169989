"""A peer that is not always there: QuACK."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from snippets.fused_mlp.halves import gate_up_step
from snippets.fused_mlp.subjects import (
    interleaved,
    need_hopper,
    random_tensor,
    steps_alone,
)
from snippets.lab.experiment import Instruments


def quack(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The forward and its first half beside QuACK's gemm_gated (CuTe DSL), in
    turns and steady, where that package is there.

    "quack" has its default tiles, "quack tuned" those that its own tuning
    chooses. Returns {"version", "gate_up": {variant: samples in microseconds},
    "forward": {...}}, sample i of any two a pair, and "steady": {variant of the
    forward: {"samples_us", "clock_mhz", "watts"}}; or {"missing": why}.
    """
    import importlib.metadata

    import torch
    from torch.nn import functional as F

    need_hopper(device)
    try:
        from quack.gemm_interface import gemm_gated  # type: ignore[import-not-found]
    except ImportError as missing:
        return {"missing": str(missing)}
    from snippets.fused_mlp.geglu import model, support

    gate, up = (
        random_tensor(hidden, dim, scale=dim**-0.5, device=device)
        for _ in range(2)
    )
    down = random_tensor(dim, hidden, scale=hidden**-0.5, device=device)
    both = torch.cat([gate, up])

    def first_half(x: torch.Tensor, tuned: bool = False) -> torch.Tensor:
        _, hidden_tensor = gemm_gated(
            x,
            both.t(),
            activation="geglu",
            store_preact=False,
            tuned=tuned,
            concat_layout=("B",),
        )
        result: torch.Tensor = hidden_tensor
        return result

    tuned_half = functools.partial(first_half, tuned=True)

    parts: dict[str, dict[str, Callable[..., Any]]] = {
        "gate_up": {
            "quack": first_half,
            "quack tuned": tuned_half,
            "fused": gate_up_step("fused", gate, up),
            "bare": gate_up_step("bare", gate, up),
        },
        "forward": {
            "quack": lambda x: F.linear(first_half(x), down),
            "quack tuned": lambda x: F.linear(tuned_half(x), down),
            "fused": lambda x: model.gated_mlp(x, gate, up, down),
            "eager": lambda x: F.linear(
                gate_up_step("eager", gate, up)(x), down
            ),
        },
    }
    found: dict[str, Any] = {
        "version": importlib.metadata.version("quack-kernels")
    }
    for part, steps in parts.items():
        x = random_tensor(tokens, dim, device=device)
        exact = support.gated_reference(x, gate, up)
        exact = exact @ down.double().t() if part == "forward" else exact
        for name in ("quack", "quack tuned", "fused"):
            with torch.no_grad():
                relative = (
                    (steps[name](x).double() - exact).norm() / exact.norm()
                ).item()
            if not relative < 1e-2:
                raise ArithmeticError(
                    f"{part}/{name}: relative error {relative:.1e}"
                )
            found[f"{part}_{name}_error"] = relative
        found[part] = interleaved(instruments, steps, tokens, dim)
    found["steady"] = {
        name: {
            "samples_us": list(one.samples_us),
            "clock_mhz": one.clock_mhz,
            "watts": one.watts,
        }
        for name, one in instruments.time_steady(
            steps_alone(parts["forward"], tokens, dim)
        ).items()
    }
    return found
