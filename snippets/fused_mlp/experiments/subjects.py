"""Common parts of fused_mlp's experiments: the least work, random tensors, steps to time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Instruments, NeedsGpu, Subject, Work

if TYPE_CHECKING:
    import torch

SHAPES = (
    (8192, 768, 3072),
    (4096, 2048, 8192),
    (1024, 4096, 14336),
    (65536, 256, 1024),
    (128, 4096, 14336),
    (16, 4096, 14336),
    (1, 4096, 14336),
    (8192, 768, 3080),
)
"""(tokens, dim, hidden): the series', two wide, one tall and thin, two of few
tokens, a width that no tile divides."""

# The least work of each step


def pointwise_work(tokens: int, hidden: int) -> Work:
    """Two tensors read, one written, two bytes an element."""
    return Work(bytes=2 * 3 * tokens * hidden)


def linear_work(tokens: int, dim: int, outputs: int) -> Work:
    """x, weight, bias and the result once each."""
    return Work(
        bytes=2 * (tokens * dim + dim * outputs + outputs + tokens * outputs),
        matmuls=((tokens, dim, outputs),),
    )


def gate_up_work(tokens: int, dim: int, hidden: int) -> Work:
    """x, two weights and the hidden tensor once each; counted as one
    product."""
    return Work(
        bytes=2 * (tokens * dim + 2 * dim * hidden + tokens * hidden),
        matmuls=((tokens, dim, 2 * hidden),),
    )


def forward_work(
    tokens: int, dim: int, hidden: int, dtype: str = "bfloat16"
) -> Work:
    """x, three weights and the result once each: the hidden tensor need not be
    stored."""
    products = ((tokens, dim, 2 * hidden), (tokens, hidden, dim))
    return Work(
        bytes=2 * (2 * tokens * dim + 3 * dim * hidden),
        matmuls=products,
        dtype=dtype,
    )


def training_work(tokens: int, dim: int, hidden: int) -> Work:
    """Forward, and twice as much backward: each product has a gradient for
    either operand.

    No bare matmul is timed for it: its products differ in layout.
    """
    forward = forward_work(tokens, dim, hidden)
    return Work(bytes=2 * forward.bytes, other_flops=3 * forward.flops)


def random_tensor(
    *shape: int,
    scale: float = 1.0,
    device: str = "cuda",
    dtype: str = "bfloat16",
) -> Any:
    import torch

    return (
        torch.randn(*shape, device=device, dtype=getattr(torch, dtype)) * scale
    )


def need_gpu(device: str) -> None:
    if device != "cuda":
        raise NeedsGpu(
            "these kernels are Triton's and Gluon's, which have no CPU "
            "backend: fused_mlp/eager runs here"
        )


def need_kernels(device: str) -> None:
    """Raise if the kernels cannot run: the module's fallback to plain PyTorch
    must not be recorded as the package's time."""
    import torch

    from snippets.fused_mlp.geglu.support import unsupported_device

    need_gpu(device)
    if reason := unsupported_device(torch.device("cuda", 0)):
        raise NeedsGpu(f"the kernels do not run here: {reason}")


def need_hopper(device: str) -> None:
    """Raise unless the GPU runs the kernels for Hopper."""
    import torch

    need_gpu(device)
    if torch.cuda.get_device_capability() != (9, 0):
        name = torch.cuda.get_device_name()
        raise NeedsGpu(
            "these kernels are written for Hopper (compute capability 9.0), "
            f"and this is {name}"
        )


def without_gradients(step: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(*inputs)
            return result

    return run


def interleaved(
    instruments: Instruments,
    steps: dict[str, Callable[..., Any]],
    tokens: int,
    dim: int,
) -> dict[str, list[float]]:
    """Interleaved samples of steps that take x of (tokens, dim); sample i of
    two steps is a pair."""
    times = instruments.time_interleaved(steps_alone(steps, tokens, dim))
    return {name: list(one.samples_us) for name, one in times.items()}


def steadily(
    instruments: Instruments,
    steps: dict[str, Callable[..., Any]],
    tokens: int,
    dim: int,
) -> dict[str, Any]:
    """Steady samples of steps that take x of (tokens, dim), with clock and
    power."""
    return {
        name: {
            "samples_us": list(one.samples_us),
            "clock_mhz": one.clock_mhz,
            "watts": one.watts,
        }
        for name, one in instruments.time_steady(
            steps_alone(steps, tokens, dim)
        ).items()
    }


def steps_alone(
    steps: dict[str, Callable[..., Any]], tokens: int, dim: int
) -> dict[str, Subject]:
    return {
        name: Subject(
            step=without_gradients(step),
            inputs=lambda: (random_tensor(tokens, dim),),
            reference=lambda x: x,
        )
        for name, step in steps.items()
    }


def three_weights(dim: int, hidden: int) -> tuple[Any, Any, Any]:
    """The weights of gate, up and down, at the scale of a trained layer."""
    gate, up = (random_tensor(hidden, dim, scale=dim**-0.5) for _ in range(2))
    return gate, up, random_tensor(dim, hidden, scale=hidden**-0.5)
