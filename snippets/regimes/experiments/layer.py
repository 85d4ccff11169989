"""A Linear and its GELU in one kernel or in two, as a subject of
experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from snippets.lab.experiment import Subject, Work

Steps = Mapping[str, Callable[[Any], Any]]
"""Name -> a step of x."""


def layer_work(tokens: int, dim: int, hidden: int) -> Work:
    """x, the weight, the bias and the result once each, in bf16; the product's
    own result need not be stored."""
    numbers = tokens * dim + dim * hidden + hidden + tokens * hidden
    return Work(bytes=2 * numbers, matmuls=((tokens, dim, hidden),))


# --8<-- [start:layer]
def layer_steps(weight: Any, bias: Any) -> Steps:
    """A Linear alone, and three ways to apply GELU to its result."""
    import torch
    from torch.nn import functional as F

    def fused(x: torch.Tensor) -> torch.Tensor:
        from snippets.regimes.kernels import linear_gelu

        return linear_gelu(x, weight, bias)

    return {
        "linear": lambda x: F.linear(x, weight, bias),
        "eager": lambda x: F.gelu(
            F.linear(x, weight, bias), approximate="tanh"
        ),
        "epilogue": lambda x: torch._addmm_activation(
            bias, x, weight.t(), use_gelu=True
        ),
        "fused": fused,
    }


# --8<-- [end:layer]


def layer_subjects(
    device: str,
    tokens: int,
    dim: int,
    hidden: int,
    more: Callable[[Any, Any], Steps] = lambda weight, bias: {},
) -> dict[str, Subject]:
    """The four steps, and `more` steps made from a weight and a bias, on random
    tokens."""
    import torch
    from torch.nn import functional as F

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=device).to(torch.bfloat16)

    weight, bias = draw(hidden, dim) * dim**-0.5, draw(hidden)

    def product(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.double(), weight.double(), bias.double())

    def with_gelu(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(product(x), approximate="tanh")

    steps = {**layer_steps(weight, bias), **more(weight, bias)}
    return {
        name: Subject(
            step=step,
            inputs=lambda: (draw(tokens, dim),),
            reference=product if name == "linear" else with_gelu,
        )
        for name, step in steps.items()
    }
