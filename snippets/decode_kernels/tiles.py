"""The parts of a decode step, each as the work of one program: kernels of
single parts and the kernel of a whole step call the same functions.

Every part multiplies rows of a weight by at most 16 tokens, or attends. What
one part writes for the next part is small and is read from the L2 cache, past
the L1 cache, which would not see other programs' writes (`.cg`).

M is the number of tokens, one of each sequence. Sums are in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .products import multiply


@triton.jit
def pair_row(pair, HEAD_DIM: tl.constexpr):
    """The first row of a pair; the second is half a head further down."""
    return pair // (HEAD_DIM // 2) * HEAD_DIM + pair % (HEAD_DIM // 2)


@triton.jit
def qkv_tile(
    tile, x, gain, weight, scale, rotary, position, q, keys, values, M, K,
    heads, kv_heads, length, table_length, eps,
    HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Norm, product with the joined weight of queries, keys and values,
    rotation, and the write into the cache, of BLOCK_N pairs of rows.

    A pair is what a rotation turns: an element of the first half of a head and
    the same element of the second half.
    """
    half: tl.constexpr = HEAD_DIM // 2
    pair = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    head, element = pair // half, pair % half
    all_heads = heads + 2 * kv_heads
    row = pair_row(pair, HEAD_DIM)
    # asked for before the products, which hide the wait
    now = tl.load(position)
    turned = (head < heads + kv_heads) & (now < table_length)
    angle = rotary + now * HEAD_DIM + element
    cos = tl.load(angle, turned, 1.0).to(tl.float32)[:, None]
    sin = tl.load(angle + table_length * HEAD_DIM, turned, 0.0)
    sin = sin.to(tl.float32)[:, None]
    low, high = multiply(
        x, gain, weight, scale, row, all_heads * HEAD_DIM, half, M, K, eps,
        TOKENS, BLOCK_K, STAGES, PARTS, True, True, INTERPRETED,
    )  # fmt: skip
    first, last = low * cos - high * sin, high * cos + low * sin
    token = tl.arange(0, TOKENS)[None, :]
    head, element = head[:, None], element[:, None]
    kept = token < M
    is_q = kept & (head < heads)
    to = q + (token * heads + head) * HEAD_DIM + element
    tl.store(to, first.to(q.dtype.element_ty), is_q)
    tl.store(to + half, last.to(q.dtype.element_ty), is_q)
    of = head - heads  # among the heads of keys, then of values
    kept = kept & (now < length)
    is_k = kept & (of >= 0) & (of < kv_heads)
    place = (token * kv_heads + of).to(tl.int64) * length + now
    to = keys + place * HEAD_DIM + element
    tl.store(to, first.to(keys.dtype.element_ty), is_k)
    tl.store(to + half, last.to(keys.dtype.element_ty), is_k)
    of -= kv_heads
    is_v = kept & (of >= 0) & (of < kv_heads)
    place = (token * kv_heads + of).to(tl.int64) * length + now
    to = values + place * HEAD_DIM + element
    tl.store(to, first.to(values.dtype.element_ty), is_v)
    tl.store(to + half, last.to(values.dtype.element_ty), is_v)


# --8<-- [start:residual]
@triton.jit
def residual_tile(
    tile, y, weight, scale, x, M, N, K,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, INTERPRETED: tl.constexpr,
    out=None,
):  # fmt: skip
    """x (M, N) += y (M, K) @ weight.T, of BLOCK_N columns of x; the sum goes to
    `out` (M, N) if there is one."""
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    token = tl.arange(0, TOKENS)[None, :]
    there = (row < N)[:, None] & (token < M)
    at = token * N + row[:, None]
    # before the wait
    before = tl.load(x + at, there, 0.0, cache_modifier=".cg")
    acc, _ = multiply(
        y, y, weight, scale, row, N, 0, M, K, 0.0, TOKENS, BLOCK_K, STAGES,
        PARTS, False, False, INTERPRETED,
    )  # fmt: skip
    acc += before.to(tl.float32)
    to = x if out is None else out
    tl.store(to + at, acc.to(x.dtype.element_ty), there)


# --8<-- [end:residual]
@triton.jit
def gate_up_tile(
    tile, x, gain, weight, scale, out, M, N, K, eps,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, INTERPRETED: tl.constexpr,
    up_weight=None,
):  # fmt: skip
    """out (M, N) = silu(norm(x) @ gate.T) * (norm(x) @ up.T), where weight
    (2 N, K) holds the rows of gate, then the rows of up, or is the weight of
    gate (N, K), and `up_weight` (N, K) the other."""
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    gate, up = multiply(
        x, gain, weight, scale, row, N, N if up_weight is None else 0, M, K,
        eps, TOKENS, BLOCK_K, STAGES, PARTS, True, True, INTERPRETED, up_weight,
    )  # fmt: skip
    value = gate * tl.sigmoid(gate) * up
    token = tl.arange(0, TOKENS)[None, :]
    row = row[:, None]
    there = (row < N) & (token < M)
    tl.store(out + token * N + row, value.to(out.dtype.element_ty), there)


@triton.jit
def head_tile(
    tile, tiles, x, gain, weight, scale, best, best_row, arrived, M, N, K, eps,
    token_out, logit_out, position, embedding,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """The last norm, logits of BLOCK_N words, and the largest of them. The
    last tile to arrive takes the largest of all, of equal logits the first
    word, and prepares the next step: x becomes the embedding of the token that
    was chosen.

    best and best_row: (tiles or more, TOKENS).
    """
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    logit, _ = multiply(
        x, gain, weight, scale, row, N, 0, M, K, eps, TOKENS, BLOCK_K, STAGES,
        PARTS, True, False, INTERPRETED,
    )  # fmt: skip
    # compared as a model compares: rounded
    logit = logit.to(x.dtype.element_ty).to(tl.float32)
    logit = tl.where((row < N)[:, None], logit, float("-inf"))
    largest = tl.max(logit, 0)
    word = tl.min(tl.where(logit == largest[None, :], row[:, None], N), 0)
    token = tl.arange(0, TOKENS)
    tl.store(best + tile * TOKENS + token, largest)
    tl.store(best_row + tile * TOKENS + token, word)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1) == tiles - 1:
        largest = tl.full((TOKENS,), float("-inf"), tl.float32)
        word = tl.full((TOKENS,), 0, tl.int32) + N
        MANY: tl.constexpr = 2048 // TOKENS  # few waits for loads
        each = tl.arange(0, MANY)
        for start in range(0, tiles, MANY):
            at = (start + each)[:, None] * TOKENS + token[None, :]
            there = (start + each < tiles)[:, None]
            value = tl.load(
                best + at, there, float("-inf"), cache_modifier=".cg"
            )
            its_word = tl.load(best_row + at, there, N, cache_modifier=".cg")
            top = tl.max(value, 0)
            first = tl.min(tl.where(value == top[None, :], its_word, N), 0)
            word = tl.where(top > largest, first, word)
            largest = tl.maximum(largest, top)
        word = tl.minimum(word, N - 1)  # NaN equals nothing
        tl.store(token_out + token, word.to(tl.int64), token < M)
        tl.store(logit_out + token, largest.to(x.dtype.element_ty), token < M)
        K = K // 8 * 8  # true of K, but unknown to the compiler
        WIDE: tl.constexpr = 2048 // TOKENS
        for k in range(0, K, WIDE):
            col = k + tl.arange(0, WIDE)
            there = (token < M)[:, None] & (col < K)[None, :]
            found = tl.load(
                embedding + word[:, None].to(tl.int64) * K + col[None, :], there
            )
            tl.store(x + token[:, None] * K + col[None, :], found, there)
        tl.store(position, tl.load(position) + 1)
        tl.store(arrived, 0)
