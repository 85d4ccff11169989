"""Attention in all its forms against float64 and against its formula, at odd sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets.attention import model
from snippets.attention.experiments.steps import attention

ON_CPU = ("naive", "in_place", "math", "flash", "auto")
COMPILED = ("compiled", "flex")
ON_GPU = ("naive", "in_place", "math", "efficient", "flash", "cudnn", "auto", "compiled", "flex")
BF16 = 7e-3
"""Largest relative error of a forward in bf16: the written-out form rounds the scores twice, and the weights."""


def drawn(tokens: int, head_dim: int, count: int = 3, device: str = "cpu") -> tuple[Tensor, ...]:
    shape = (2, 3, tokens, head_dim)
    return tuple(torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(count))


def error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def gradients(step: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
    *operands, d_out = tensors
    operands = [operand.detach().requires_grad_() for operand in operands]
    return torch.autograd.grad(step(*operands), operands, d_out)


def check_gradients(step: Callable[..., Tensor], tokens: int, head_dim: int, device: str) -> None:
    """Of q, k and v; a token that sees only itself has no gradient in q and k: its softmax is 1 whatever the score."""
    tensors = drawn(tokens, head_dim, 4, device)
    hidden = model.future(tokens, device)
    exact = gradients(lambda q, k, v: model.reference(q, k, v, hidden), *(one.double() for one in tensors))
    found = gradients(step, *tensors)
    assert [one.dtype for one in found] == [torch.bfloat16] * 3
    for one, expected in zip(found, exact, strict=True):
        assert one.shape == expected.shape
        if expected.count_nonzero() == 0:
            assert one.abs().max() < 2**-6
        else:
            assert error(one, expected) < 1e-2


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_sums_that_are_scaled_give_the_same_attention(block: int) -> None:
    """Blocks of one key, of an odd number, and one that holds all; scores that grow from block to block, too."""
    q, k, v = (tensor.double() for tensor in drawn(65, 16))
    k = k * torch.arange(65, dtype=torch.float64)[:, None]
    assert error(model.online(q, k, v, block), model.reference(q, k, v)) < 1e-12


def test_the_reference_is_the_formula() -> None:
    """Written once more with Python's numbers."""
    q, k, v = (torch.randn(2, 3, tokens, 4) for tokens in (5, 7, 7))
    hidden = torch.rand(5, 7) < 0.4
    hidden[:, 2] = False
    found = model.reference(q, k, v, hidden)
    assert (found.shape, found.dtype) == (q.shape, torch.float64)
    for batch, head, query in ((0, 0, 0), (1, 2, 4), (0, 1, 3)):
        seen = [key for key in range(7) if not hidden[query, key]]
        scores = [
            sum(q[batch, head, query, i].item() * k[batch, head, key, i].item() for i in range(4)) for key in seen
        ]
        weights = [math.exp(score / 2) for score in scores]
        for place in range(4):
            expected = sum(w * v[batch, head, key, place].item() for w, key in zip(weights, seen, strict=True))
            assert found[batch, head, query, place].item() == pytest.approx(expected / sum(weights), rel=1e-12)


def test_the_reference_needs_the_scores_of_one_head_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    naive = model.naive

    def noting(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        shapes.append((*q.shape, q.dtype))
        return naive(q, k, v, hidden)

    monkeypatch.setattr(model, "naive", noting)
    model.reference(*drawn(7, 8), model.future(7, "cpu"))
    assert shapes == [(7, 8, torch.float64)] * 6


def test_what_is_hidden() -> None:
    assert model.future(3, "cpu").tolist() == [[False, True, True], [False, False, True], [False, False, False]]


@pytest.mark.parametrize("tokens", [1, 7, 65, 300])
def test_the_blocks_hide_the_same(tokens: int) -> None:
    places = torch.arange(tokens)
    nothing = torch.tensor(0)
    seen = model.is_past(nothing, nothing, places[:, None], places[None, :])
    assert torch.equal(seen, ~model.future(tokens, "cpu"))
    blocks = math.ceil(tokens / 128)
    expected = torch.ones(blocks, blocks, dtype=torch.int32).tril()
    assert torch.equal(model.causal_blocks(tokens, "cpu").to_dense()[0, 0], expected)


def test_masking_in_place_leaves_the_inputs_alone() -> None:
    tensors = drawn(7, 8)
    before = [one.clone() for one in tensors]
    found = model.in_place(*tensors, model.future(7, "cpu"))
    assert torch.equal(found, model.naive(*tensors, model.future(7, "cpu")))
    assert all(map(torch.equal, tensors, before))


def test_a_row_that_is_hidden_wholly() -> None:
    plain, safe = model.nothing_to_see(3)
    assert plain.isnan().tolist() == [True] * 3
    assert safe.tolist() == [0.0] * 3


def test_in_attention_a_row_that_is_hidden_wholly() -> None:
    """The written-out form gives NaN in that row alone, PyTorch's gives zeros."""
    q, k, v = drawn(3, 8)
    hidden = model.future(3, "cpu")
    hidden[1] = True
    found = model.naive(q, k, v, hidden)
    assert bool(found[:, :, 1].isnan().all())
    assert not bool(found[:, :, ::2].isnan().any())
    with torch.nn.attention.sdpa_kernel(model.BACKENDS["math"]):
        safe = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)
    assert safe[:, :, 1].count_nonzero() == 0
    assert not bool(safe.isnan().any())


def test_causal_is_aligned_top_left() -> None:
    """Exact for a single query, which sees the first key only; aligned to the lower right it sees all of them."""
    k, v = drawn(7, 8, 2)
    (q,) = drawn(1, 8, 1)
    exact = model.reference(q, k, v)
    assert torch.equal(model.aligned_top_left(q, k, v), v[:, :, :1])
    assert error(model.aligned_top_left(q, k, v), exact) > 0.5
    assert error(model.aligned_lower_right(q, k, v), exact) < BF16


def test_aligned_to_the_lower_right_each_query_sees_one_key_more() -> None:
    k, v = drawn(7, 8, 2)
    (q,) = drawn(2, 8, 1)
    hidden = torch.tensor([[False] * 6 + [True], [False] * 7])
    assert error(model.aligned_lower_right(q, k, v), model.reference(q, k, v, hidden)) < BF16


@pytest.mark.parametrize("variant", ON_CPU)
@pytest.mark.parametrize("head_dim", [8, 64])
@pytest.mark.parametrize("tokens", [1, 7, 65])
@pytest.mark.parametrize("causal", [True, False])
def test_forward(variant: str, tokens: int, head_dim: int, causal: bool) -> None:
    tensors = drawn(tokens, head_dim)
    found = attention(variant, "cpu", tokens, causal)(*tensors)
    exact = model.reference(*tensors, model.future(tokens, "cpu") if causal else None)
    assert (found.shape, found.dtype) == (exact.shape, torch.bfloat16)
    assert error(found, exact) < BF16


@pytest.mark.parametrize("variant", ON_CPU)
@pytest.mark.parametrize("tokens", [1, 65])
def test_backward(variant: str, tokens: int) -> None:
    check_gradients(attention(variant, "cpu", tokens), tokens, 64, "cpu")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("variant", ON_CPU)
def test_a_result_has_the_type_of_its_inputs(variant: str, dtype: torch.dtype) -> None:
    tensors = [one.to(dtype) for one in drawn(7, 8)]
    found = attention(variant, "cpu", 7)(*tensors)
    assert found.dtype == dtype
    allowed = {torch.float16: 2e-3, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    assert error(found, model.reference(*tensors, model.future(7, "cpu"))) < allowed


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # those of the compiler's own libraries are not ours to fail on
@pytest.mark.parametrize("variant", ON_GPU)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("tokens", [1, 129])
def test_on_the_gpu(variant: str, tokens: int, head_dim: int) -> None:
    """Forward, then forward and backward."""
    torch._dynamo.reset()
    tensors = drawn(tokens, head_dim, device="cuda")
    step = attention(variant, "cuda", tokens)
    if variant == "cudnn" and tokens == 1:
        with pytest.raises(RuntimeError, match="No available kernel"):
            step(*tensors)
        return
    with torch.no_grad():
        found = step(*tensors)
    assert found.dtype == torch.bfloat16
    assert error(found, model.reference(*tensors, model.future(tokens, "cuda"))) < BF16
    check_gradients(step, tokens, head_dim, "cuda")


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # those of the compiler's own libraries are not ours to fail on
@pytest.mark.parametrize("variant", [name for name in ON_GPU if name != "in_place"])
@pytest.mark.parametrize("keys", [129, 8192])
def test_a_decode_step_on_the_gpu(variant: str, keys: int) -> None:
    torch._dynamo.reset()
    k, v = drawn(keys, 64, 2, "cuda")
    (q,) = drawn(1, 64, 1, "cuda")
    with torch.no_grad():
        found = attention(variant, "cuda", keys, causal=False)(q, k, v)
    assert error(found, model.reference(q, k, v)) < 1e-2
