"""Steps of the chapter regimes: the stack by variant, a GeGLU block, GELU on
its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import NeedsGpu, Subject, Work

if TYPE_CHECKING:
    from torch import Tensor

Step = Callable[["Tensor"], "Tensor"]
GRAPHED = ("graphed", "fused_graphed", "reduce_overhead")
CALLS_TO_RECORD = 3
"""The first call of a shape warms up, the second records, the third replays."""
GELU_FLOPS = 10
"""The tanh form, an element: eight products and sums, a tanh, a half."""


def stack_work(tokens: int, dim: int, hidden: int, blocks: int = 1) -> Work:
    """x, the result, and each block's weights and biases once, in bf16; the
    tensors between need not be stored."""
    weights = blocks * (2 * dim * hidden + dim + hidden)
    products = ((tokens, dim, hidden), (tokens, hidden, dim))
    return Work(
        bytes=2 * (2 * tokens * dim + weights),
        matmuls=products * blocks,
        other_flops=GELU_FLOPS * blocks * tokens * hidden,
    )


def geglu_work(tokens: int, dim: int, hidden: int) -> Work:
    """x, the result and three weights once, in bf16."""
    up, down = (tokens, dim, hidden), (tokens, hidden, dim)
    return Work(
        bytes=2 * (2 * tokens * dim + 3 * dim * hidden),
        matmuls=(up, up, down),
        other_flops=(GELU_FLOPS + 1) * tokens * hidden,
    )


def gelu_work(tokens: int, hidden: int) -> Work:
    """One tensor read, one written, in bf16."""
    elements = tokens * hidden
    return Work(bytes=2 * 2 * elements, other_flops=GELU_FLOPS * elements)


def stack(
    device: str,
    variant: str,
    tokens: int,
    dim: int,
    hidden: int,
    blocks: int = 1,
) -> Subject:
    """The stack, by a variant of `stack_step`."""
    import torch

    from snippets.regimes.model import Stack, stack_reference

    with torch.device(device):
        module = Stack(dim, hidden, blocks).to(torch.bfloat16).eval()
    parameters = [tensor.detach() for tensor in module.parameters()]
    x = _random(device, tokens, dim)
    return Subject(
        step=_without_gradients(stack_step(variant, module, x)),
        inputs=lambda: (_random(device, tokens, dim),),
        reference=lambda x: stack_reference(x, parameters),
        # each block rounds once more
        tolerance=1e-2 if blocks == 1 else 3e-2,
        # the others are CUDA graphs already
        in_graph=variant not in GRAPHED,
    )


def stack_step(variant: str, module: Any, example: Tensor) -> Step:
    """One forward of a stack by variant, for inputs of the example's shape.

    Raises `NeedsGpu`.
    """
    import torch

    from snippets.regimes.model import graphed

    if variant == "eager":
        return _step(module)
    if variant == "compiled":
        return _step(torch.compile(module))
    if example.device.type != "cuda":
        raise NeedsGpu(f"{variant} needs a GPU: eager and compiled run here")
    if variant == "fused":
        return fused(module)
    if variant == "reduce_overhead":
        step = _step(torch.compile(module, mode="reduce-overhead"))
        with torch.no_grad():
            for _ in range(CALLS_TO_RECORD):
                step(example)
        return step
    if variant in ("graphed", "fused_graphed"):
        captured = fused(module) if variant == "fused_graphed" else module
        with torch.no_grad():
            return graphed(captured, example)
    raise ValueError(f"no variant {variant!r} of a stack")


# --8<-- [start:fused]
def fused(module: Any) -> Step:
    """Each block as two kernels: the first Linear with its GELU, the second
    Linear."""
    from snippets.regimes.kernels import linear_gelu

    def step(x: Tensor) -> Tensor:
        for up, _, down in module.blocks:
            x = down(linear_gelu(x, up.weight, up.bias))
        return x

    return step


# --8<-- [end:fused]


def geglu(device: str, tokens: int, dim: int, hidden: int) -> Subject:
    """The block of the chapter mlp, eager."""
    import torch

    from snippets.mlp.model import GeGLU, geglu_reference

    with torch.device(device):
        module = GeGLU(dim, hidden).to(torch.bfloat16).eval()
    layers = (module.gate_proj, module.up_proj, module.down_proj)
    weights = [layer.weight.detach() for layer in layers]
    return Subject(
        step=_without_gradients(_step(module)),
        inputs=lambda: (_random(device, tokens, dim),),
        reference=lambda x: geglu_reference(x, *weights),
    )


def gelu(device: str, tokens: int, hidden: int) -> Subject:
    """The stack's GELU on its own."""
    from torch.nn import functional as F

    return Subject(
        step=lambda x: F.gelu(x, approximate="tanh"),
        inputs=lambda: (_random(device, tokens, hidden),),
        reference=lambda x: F.gelu(x.double(), approximate="tanh"),
    )


def _step(module: Any) -> Step:
    """A module, compiled or not, as a function whose type is known."""

    def step(x: Tensor) -> Tensor:
        result: Tensor = module(x)
        return result

    return step


def _without_gradients(step: Step) -> Step:
    import torch

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return step(x)

    return run


def _random(device: str, *shape: int) -> Tensor:
    import torch

    return torch.randn(*shape, dtype=torch.bfloat16, device=device)
