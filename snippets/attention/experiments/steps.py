"""Nine ways to compute attention: forward, trained and decoding."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from snippets.lab.experiment import NeedsGpu, Subject, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    Step = Callable[..., Tensor]


SHAPE = {"batch": 8, "heads": 16, "tokens": 1024, "head_dim": 64}
"""The series' shape."""
DECODE = {"batch": 8, "heads": 16, "keys": 8192, "head_dim": 64}


# The least work of each step


def _product(rows: int, keys: int, head_dim: int) -> int:
    """FLOP of the scores, or of their product with the values; `rows` are the
    queries of all heads.

    Each head has factors of its own, so no bare matmul does the same work and
    none is measured as a ceiling.
    """
    return 2 * rows * head_dim * keys


def forward_work(batch: int, heads: int, tokens: int, head_dim: int) -> Work:
    """q, k, v and the result once each in bf16, and two products, causal: a
    query has half the keys on average.

    Attention's rates are usually quoted with this half. A kernel that computes
    all scores and then hides half does twice as many FLOP.
    """
    rows = batch * heads * tokens
    return Work(
        bytes=2 * 4 * rows * head_dim,
        other_flops=2 * _product(rows, -(-tokens // 2), head_dim),
    )


def training_work(batch: int, heads: int, tokens: int, head_dim: int) -> Work:
    """q, k, v, the result's gradient and three gradients once each; two causal
    products forward, four backward.

    A fused backward recomputes the scores instead of reading them. This seventh
    product is not counted.
    """
    rows = batch * heads * tokens
    return Work(
        bytes=2 * 7 * rows * head_dim,
        other_flops=6 * _product(rows, -(-tokens // 2), head_dim),
    )


def decode_work(batch: int, heads: int, keys: int, head_dim: int) -> Work:
    """All keys and values, one query and one result for each head; no two
    queries share a key."""
    rows = batch * heads
    return Work(
        bytes=2 * 2 * rows * (keys + 1) * head_dim,
        other_flops=2 * _product(rows, keys, head_dim),
    )


def _random(
    shape: Sequence[int], device: str, count: int
) -> tuple[Tensor, ...]:
    import torch

    return tuple(
        torch.randn(*shape, dtype=torch.bfloat16, device=device)
        for _ in range(count)
    )


def _without_gradients(step: Step) -> Step:
    import torch

    def run(*inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return step(*inputs)

    return run


# Nine ways


def attention(
    variant: str, device: str, tokens: int, causal: bool = True
) -> Step:
    """One variant of attention of q, k and v. Its mask is built here, once;
    without `causal` it has no mask."""
    import torch

    from snippets.attention import model

    if variant == "flex":
        blocks = model.causal_blocks(tokens, device) if causal else None
        flex = torch.compile(model.flex, dynamic=False)
        return lambda q, k, v: flex(q, k, v, blocks)
    if variant in ("naive", "in_place", "compiled"):
        hidden = model.future(tokens, device) if causal else None
        function = model.in_place if variant == "in_place" else model.naive
        written_out = (
            torch.compile(function, dynamic=False)
            if variant == "compiled"
            else function
        )
        return lambda q, k, v: written_out(q, k, v, hidden)
    if variant in ("efficient", "cudnn") and device != "cuda":
        raise NeedsGpu(
            f"the backend {variant!r} has no kernel for a CPU: attention/math "
            "and attention/flash run here"
        )
    return lambda q, k, v: model.sdpa(q, k, v, variant, causal)


def picked(tensors: Sequence[Tensor]) -> str:
    """The backend that PyTorch picks by itself for causal attention of this q,
    k and v."""
    import torch

    from snippets.attention.model import BACKENDS

    q, k, v = tensors
    chosen = torch._fused_sdp_choice(q, k, v, None, 0.0, True)
    return next(
        name for name, backend in BACKENDS.items() if backend.value == chosen
    )


def _exact(device: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in float64."""
    from snippets.attention import model

    return model.reference(q, k, v, model.future(q.shape[-2], device))


def forward(
    device: str,
    variant: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> Subject:
    """Causal attention of one variant, checked against float64."""
    inputs = functools.partial(
        _random, (batch, heads, tokens, head_dim), device, 3
    )
    return Subject(
        step=_without_gradients(attention(variant, device, tokens)),
        inputs=inputs,
        reference=functools.partial(_exact, device),
        notes={"picked": picked(inputs())} if variant == "auto" else {},
    )


def training(
    device: str,
    variant: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> Subject:
    """Forward and backward, causal: the gradients of q, k and v for a random
    gradient of the result.

    The step returns the gradient of q, and capture checks it. This function
    checks the gradients of k and v at the same tolerance.
    """
    import torch

    if variant == "flex" and device != "cuda":
        raise NeedsGpu(
            "FlexAttention has no backward on a CPU: attention/flex and "
            "attention/training_flash run here"
        )
    step = attention(variant, device, tokens)
    inputs = functools.partial(
        _random, (batch, heads, tokens, head_dim), device, 4
    )

    def gradients(step: Step, *tensors: Tensor) -> tuple[Tensor, ...]:
        *operands, d_out = tensors
        with torch.enable_grad():
            operands = [
                operand.detach().requires_grad_() for operand in operands
            ]
            return torch.autograd.grad(step(*operands), operands, d_out)

    def exact(*tensors: Tensor) -> tuple[Tensor, ...]:
        return gradients(
            functools.partial(_exact, device),
            *(tensor.double() for tensor in tensors),
        )

    tensors = inputs()
    for name, found, expected in zip(
        "qkv", gradients(step, *tensors), exact(*tensors), strict=True
    ):
        error = ((found.double() - expected).norm() / expected.norm()).item()
        if not error <= Subject.tolerance:
            raise ArithmeticError(
                f"wrong answer: relative error {error:.2e} in the gradient of "
                f"{name}"
            )
    return Subject(
        step=lambda *tensors: gradients(step, *tensors)[0],
        inputs=inputs,
        reference=lambda *tensors: exact(*tensors)[0],
    )


def decode(
    device: str, variant: str, batch: int, heads: int, keys: int, head_dim: int
) -> Subject:
    """One query for each sequence, as when a model writes its next token: it
    sees every key, so there is no mask."""
    from snippets.attention import model

    def inputs() -> tuple[Tensor, ...]:
        cached = _random((batch, heads, keys, head_dim), device, 2)
        return (*_random((batch, heads, 1, head_dim), device, 1), *cached)

    return Subject(
        step=_without_gradients(attention(variant, device, keys, causal=False)),
        inputs=inputs,
        reference=model.reference,
    )
