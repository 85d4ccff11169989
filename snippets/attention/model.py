"""Attention: written out, through PyTorch's fused kernels, and with
FlexAttention.

q is (batch, heads, queries, head_dim), k and v are (batch, heads, keys,
head_dim), as everywhere in PyTorch; so is the result, in q's shape and dtype.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import (
    BlockMask,
    create_block_mask,
    flex_attention,
)


# --8<-- [start:mask]
def future(tokens: int, device: str) -> Tensor:
    """(tokens, tokens) bool, True where a key comes after its query. Build it
    once, not in every step."""
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu(
        diagonal=1
    )


# --8<-- [end:mask]


# --8<-- [start:naive]
def naive(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None = None
) -> Tensor:
    """Attention by its formula; `hidden` is (queries, keys) bool, True where a
    query must not see the key."""
    scores = q @ k.transpose(-2, -1)
    scores = scores * q.shape[-1] ** -0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(dim=-1) @ v


# --8<-- [end:naive]


# --8<-- [start:in_place]
def in_place(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None = None
) -> Tensor:
    """The same, with the scores masked in place."""
    scores = q @ k.transpose(-2, -1)
    scores = scores * q.shape[-1] ** -0.5
    if hidden is not None:
        scores.masked_fill_(hidden, float("-inf"))
    return scores.softmax(dim=-1) @ v


# --8<-- [end:in_place]


# --8<-- [start:sdpa]
BACKENDS = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, backend: str = "auto", causal: bool = True
) -> Tensor:
    """PyTorch's own attention, by one of `BACKENDS` or by the backend that
    PyTorch picks.

    Raises `RuntimeError` if the backend does not support these tensors.
    """
    if backend == "auto":
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    with sdpa_kernel(BACKENDS[backend]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


# --8<-- [end:sdpa]


# --8<-- [start:flex]
def is_past(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Whether the query at index `query` may see the key at index `key`."""
    return query >= key


def causal_blocks(tokens: int, device: str) -> BlockMask:
    """Which blocks of scores are needed fully, partly or not at all. Build it
    once, not in every step."""
    return create_block_mask(is_past, None, None, tokens, tokens, device=device)


def flex(
    q: Tensor, k: Tensor, v: Tensor, blocks: BlockMask | None = None
) -> Tensor:
    """FlexAttention of the needed blocks, or of all. Compile it: eager, it
    writes all scores to memory."""
    return flex_attention(q, k, v, block_mask=blocks)


# --8<-- [end:flex]


# --8<-- [start:online]
def online(q: Tensor, k: Tensor, v: Tensor, block: int = 128) -> Tensor:
    """Attention that holds one block of scores at a time, without a mask; a
    larger score rescales the sums."""
    largest = torch.full_like(q[..., :1], float("-inf"))
    divisor, result = torch.zeros_like(largest), torch.zeros_like(q)
    for keys, values in zip(
        k.split(block, dim=-2), v.split(block, dim=-2), strict=True
    ):
        scores = q @ keys.transpose(-2, -1) * q.shape[-1] ** -0.5
        larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        weights, shrink = (scores - larger).exp(), (largest - larger).exp()
        divisor = divisor * shrink + weights.sum(dim=-1, keepdim=True)
        result = result * shrink + weights @ values
        largest = larger
    return result / divisor


# --8<-- [end:online]


# --8<-- [start:all_masked]
def nothing_to_see(keys: int) -> tuple[Tensor, Tensor]:
    """The softmax of a fully hidden row of scores: the plain softmax, and that
    of SDPA's math backend."""
    scores = torch.full((keys,), float("-inf"))
    return scores.softmax(dim=-1), torch._safe_softmax(scores, dim=-1)


# --8<-- [end:all_masked]


# --8<-- [start:top_left]
def aligned_top_left(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The trap: with fewer queries than keys, query i sees keys 0 to i. A
    single query sees only the first key."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def aligned_lower_right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What a decode step needs: the last query sees every key. A single query
    needs no mask."""
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=causal_lower_right(q.shape[-2], k.shape[-2])
    )


# --8<-- [end:top_left]


# --8<-- [start:reference]
def reference(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None = None
) -> Tensor:
    """Attention in float64, head by head, because the scores of all heads
    together may not fit into memory."""
    heads = zip(*(tensor.flatten(0, 1) for tensor in (q, k, v)), strict=True)
    results = [
        naive(q_one.double(), k_one.double(), v_one.double(), hidden)
        for q_one, k_one, v_one in heads
    ]
    return torch.stack(results).unflatten(0, q.shape[:2])


# --8<-- [end:reference]
