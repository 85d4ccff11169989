"""An optional peer: QuACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snippets.fused_mlp.experiments.halves import gate_up_step
from snippets.fused_mlp.experiments.subjects import (
    SHAPES,
    interleaved,
    need_hopper,
    random_tensor,
    steadily,
    three_weights,
)
from snippets.lab.experiment import Instruments


def quack(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The forward and its first half against QuACK's gemm_gated (CuTe DSL),
    interleaved and steady, if that package is installed.

    "quack" has QuACK's default tiles, "quack tuned" the tiles that its own
    tuning chooses. Returns {"version", "gate_up": {variant: samples in
    microseconds}, "forward": {...}}, sample i of any two a pair, and "steady":
    {variant of the forward: {"samples_us", "clock_mhz", "watts"}}; or
    {"missing": why}. "tiles" has the same for forwards with pinned tiles and
    clusters: "128x192, shared" has QuACK's defaults, where two multiprocessors
    share loads.
    """
    from torch.nn import functional as F

    need_hopper(device)
    try:
        version, gemm_gated = quack_kernel()
    except ImportError as missing:
        return {"missing": str(missing)}
    gate, up, down = three_weights(dim, hidden)
    halves = quack_halves(gemm_gated, gate, up)
    forwards = three_forwards(halves, gate, up, down)
    halves |= {name: gate_up_step(name, gate, up) for name in ("fused", "bare")}
    first_of_eager = gate_up_step("eager", gate, up)
    forwards["eager"] = lambda x: F.linear(first_of_eager(x), down)

    found: dict[str, Any] = {"version": version}
    for part, steps in {"gate_up": halves, "forward": forwards}.items():
        last = down if part == "forward" else None
        errors = checked_errors(steps, tokens, gate, up, last)
        for name, relative in errors.items():
            found[f"{part}_{name}_error"] = relative
        found[part] = interleaved(instruments, steps, tokens, dim)
    found["steady"] = steadily(instruments, forwards, tokens, dim)
    pinned = three_forwards(pinned_halves(gemm_gated, gate, up), gate, up, down)
    checked_errors(pinned, tokens, gate, up, down)
    found["tiles"] = {
        "forward": interleaved(instruments, pinned, tokens, dim),
        "steady": steadily(instruments, pinned, tokens, dim),
    }
    return found


def quack_shapes(instruments: Instruments, device: str) -> dict[str, Any]:
    """The forward against QuACK's at every shape of the table.

    Returns {"version", "8192x768x3072": {"forward": {variant: samples in
    microseconds}, "steady": {variant: {"samples_us", "clock_mhz", "watts"}}},
    ...}, with {"failed": why} for a shape that QuACK rejects; or {"missing":
    why}.
    """
    need_hopper(device)
    try:
        version, gemm_gated = quack_kernel()
    except ImportError as missing:
        return {"missing": str(missing)}
    found: dict[str, Any] = {"version": version}
    for tokens, dim, hidden in SHAPES:
        gate, up, down = three_weights(dim, hidden)
        steps = three_forwards(
            quack_halves(gemm_gated, gate, up), gate, up, down
        )
        found[f"{tokens}x{dim}x{hidden}"] = timed_unless_rejected(
            instruments, steps, tokens, gate, up, down
        )
    return found


def timed_unless_rejected(
    instruments: Instruments,
    steps: dict[str, Callable[..., Any]],
    tokens: int,
    gate: Any,
    up: Any,
    down: Any,
) -> dict[str, Any]:
    """Both kinds of times, or {"failed": why} if QuACK's own call raises."""
    dim = gate.shape[1]
    x = random_tensor(tokens, dim)
    try:
        for name in ("quack", "quack tuned"):
            steps[name](x)
    except Exception as rejected:
        return {"failed": f"{type(rejected).__name__}: {rejected}"[:300]}
    checked_errors(steps, tokens, gate, up, down)
    return {
        "forward": interleaved(instruments, steps, tokens, dim),
        "steady": steadily(instruments, steps, tokens, dim),
    }


def quack_kernel() -> tuple[str, Callable[..., Any]]:
    """QuACK's version, and its gemm_gated. Raises ImportError."""
    import importlib.metadata

    from quack.gemm_interface import gemm_gated  # type: ignore[import-not-found]

    return importlib.metadata.version("quack-kernels"), gemm_gated


def quack_halves(
    gemm_gated: Callable[..., Any], gate: Any, up: Any
) -> dict[str, Callable[..., Any]]:
    """gelu(x @ gate.T) * (x @ up.T) of x, by QuACK with its default tiles and
    with its tuned tiles."""
    return {
        "quack": quack_half(gemm_gated, gate, up, tuned=False),
        "quack tuned": quack_half(gemm_gated, gate, up, tuned=True),
    }


def pinned_halves(
    gemm_gated: Callable[..., Any], gate: Any, up: Any
) -> dict[str, Callable[..., Any]]:
    """The same with tiles of 128 rows and a pinned number of columns, by
    clusters of two multiprocessors that share loads, and by single
    multiprocessors."""
    from quack.gemm_config import GemmConfig  # type: ignore[import-not-found]

    return {
        f"128x{columns}{', shared' * (cluster > 1)}": quack_half(
            gemm_gated,
            gate,
            up,
            tuned=False,
            config=GemmConfig(
                tile_m=128,
                tile_n=columns,
                pingpong=True,
                cluster_m=cluster,
                cluster_n=1,
                is_dynamic_persistent=False,
            ),
        )
        for columns in (192, 128)
        for cluster in (2, 1)
    }


def quack_half(
    gemm_gated: Callable[..., Any], gate: Any, up: Any, **how: Any
) -> Callable[..., Any]:
    import torch

    both = torch.cat([gate, up])

    def first_half(x: torch.Tensor) -> torch.Tensor:
        _, result = gemm_gated(
            x,
            both.t(),
            activation="geglu",
            store_preact=False,
            concat_layout=("B",),
            **how,
        )
        hidden_tensor: torch.Tensor = result
        return hidden_tensor

    return first_half


def three_forwards(
    halves: dict[str, Callable[..., Any]], gate: Any, up: Any, down: Any
) -> dict[str, Callable[..., Any]]:
    """QuACK's halves, each followed by cuBLAS, and the package's forward."""
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu import model

    def followed(half: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: F.linear(half(x), down)

    return {
        **{name: followed(half) for name, half in halves.items()},
        "fused": lambda x: model.gated_mlp(x, gate, up, down),
    }


def checked_errors(
    steps: dict[str, Callable[..., Any]],
    tokens: int,
    gate: Any,
    up: Any,
    down: Any | None,
) -> dict[str, float]:
    """The relative error of the fused first half of each step against float64.
    Raises ArithmeticError at 1 % or more."""
    import torch

    from snippets.fused_mlp.geglu import support

    x = random_tensor(tokens, gate.shape[1])
    exact = support.gated_reference(x, gate, up)
    exact = exact if down is None else exact @ down.double().t()
    errors = {}
    for name in (each for each in steps if each not in ("bare", "eager")):
        with torch.no_grad():
            off = steps[name](x).double() - exact
        errors[name] = (off.norm() / exact.norm()).item()
        if not errors[name] < 1e-2:
            raise ArithmeticError(f"{name}: relative error {errors[name]:.1e}")
    return errors
