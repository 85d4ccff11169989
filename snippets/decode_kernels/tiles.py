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

from .products import grouped, hold, multiply, once_each, units


@triton.jit
def pair_row(pair, HEAD_DIM: tl.constexpr):
    """The first row of a pair; the second is half a head further down."""
    return pair // (HEAD_DIM // 2) * HEAD_DIM + pair % (HEAD_DIM // 2)


@triton.jit
def turn_of(
    pair, rotary, position, turned_heads, table_length, HEAD_DIM: tl.constexpr
):  # fmt: skip
    """The position, and the cosine and sine of pairs at this position, (pairs,)
    each; of a head behind the first `turned_heads` heads 1 and 0."""
    half: tl.constexpr = HEAD_DIM // 2
    now = tl.load(position)
    turned = (pair // half < turned_heads) & (now < table_length)
    angle = rotary + now * HEAD_DIM + pair % half
    cos = tl.load(angle, turned, 1.0).to(tl.float32)
    sin = tl.load(angle + table_length * HEAD_DIM, turned, 0.0)
    return now, cos, sin.to(tl.float32)


@triton.jit
def qkv_tile(
    first, now, cos, sin, x, gain, weight, scale, held, held_below, q, keys,
    values, M, heads, kv_heads, length, eps,
    K: tl.constexpr, HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, SLICES: tl.constexpr, STEPS: tl.constexpr,
    PARTS: tl.constexpr, CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Norm, product with the joined weight of queries, keys and values,
    rotation, and the write into the cache at position `now`, of pairs of rows.

    A pair is what a rotation turns: an element of the first half of a head and
    the same element of the second half.
    """
    half: tl.constexpr = HEAD_DIM // 2
    pairs = (heads + 2 * kv_heads) * half
    low, high = multiply(
        x, gain, weight, scale,
        pair_row(grouped(first, pairs, ROWS, SLICES, PARTS), HEAD_DIM),
        pair_row(once_each(first, pairs, ROWS), HEAD_DIM), half, held,
        held_below, M, eps, K, TOKENS, SLICES, STEPS, PARTS, True, True, CACHE,
        INTERPRETED,
    )  # fmt: skip
    cos, sin = cos[None, :], sin[None, :]
    below, above = low * cos - high * sin, high * cos + low * sin
    token = tl.arange(0, TOKENS)[:, None]
    pair = units(first, ROWS)[None, :]
    head, element = pair // half, pair % half
    kept = token < M
    is_q = kept & (head < heads)
    to = q + (token * heads + head) * HEAD_DIM + element
    tl.store(to, below.to(q.dtype.element_ty), is_q)
    tl.store(to + half, above.to(q.dtype.element_ty), is_q)
    of = head - heads  # among the heads of keys, then of values
    kept = kept & (now < length)
    is_k = kept & (of >= 0) & (of < kv_heads)
    place = (token * kv_heads + of).to(tl.int64) * length + now
    to = keys + place * HEAD_DIM + element
    tl.store(to, below.to(keys.dtype.element_ty), is_k)
    tl.store(to + half, above.to(keys.dtype.element_ty), is_k)
    of -= kv_heads
    is_v = kept & (of >= 0) & (of < kv_heads)
    place = (token * kv_heads + of).to(tl.int64) * length + now
    to = values + place * HEAD_DIM + element
    tl.store(to, below.to(values.dtype.element_ty), is_v)
    tl.store(to + half, above.to(values.dtype.element_ty), is_v)


# --8<-- [start:residual]
@triton.jit
def residual_tile(
    first, y, weight, scale, held, x, M, N,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    CACHE: tl.constexpr, INTERPRETED: tl.constexpr, out=None,
):  # fmt: skip
    """x (M, N) += y (M, K) @ weight.T, of the columns of x from `first` on; the
    sum goes to `out` (M, N) if there is one."""
    token, row = tl.arange(0, TOKENS)[:, None], units(first, ROWS)[None, :]
    there = (row < N) & (token < M)
    at = token * N + row
    before = tl.load(x + at, there, 0.0, cache_modifier=".cg")
    acc, _ = multiply(
        y, y, weight, scale, grouped(first, N, ROWS, SLICES, PARTS),
        once_each(first, N, ROWS), 0, held, held, M, 0.0, K, TOKENS, SLICES,
        STEPS, PARTS, False, False, CACHE, INTERPRETED,
    )  # fmt: skip
    acc += before.to(tl.float32)
    to = x if out is None else out
    tl.store(to + at, acc.to(x.dtype.element_ty), there)


# --8<-- [end:residual]
@triton.jit
def gate_up_tile(
    first, x, gain, weight, scale, held, held_below, out, M, N, eps,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    CACHE: tl.constexpr, INTERPRETED: tl.constexpr, up_weight=None,
):  # fmt: skip
    """out (M, N) = silu(norm(x) @ gate.T) * (norm(x) @ up.T), where weight
    (2 N, K) holds the rows of gate, then the rows of up, or is the weight of
    gate (N, K), and `up_weight` (N, K) the other."""
    gate, up = multiply(
        x, gain, weight, scale, grouped(first, N, ROWS, SLICES, PARTS),
        once_each(first, N, ROWS), N if up_weight is None else 0, held,
        held_below, M, eps, K, TOKENS, SLICES, STEPS, PARTS, True, True, CACHE,
        INTERPRETED, up_weight,
    )  # fmt: skip
    value = gate * tl.sigmoid(gate) * up
    token, row = tl.arange(0, TOKENS)[:, None], units(first, ROWS)[None, :]
    there = (row < N) & (token < M)
    tl.store(out + token * N + row, value.to(out.dtype.element_ty), there)


@triton.jit
def head_part(
    x, gain, weight, scale, held, best, best_row, arrived, M, N, eps, token_out,
    logit_out, position, embedding,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """The last norm, and the largest logit. A program computes every so many
    tiles of ROWS words, holds the weights of its first tile already, and starts
    loading the next ones before it multiplies. The last program to arrive
    takes the largest logit of all, of equal ones the first word, and prepares
    the next step: x becomes the embedding of the chosen token.

    best and best_row: (programs, TOKENS).
    """
    me, programs = tl.program_id(0), tl.num_programs(0)
    token = tl.arange(0, TOKENS)
    largest = tl.full((TOKENS,), float("-inf"), tl.float32)
    word = tl.full((TOKENS,), 0, tl.int32) + N
    # one stage: otherwise copies of later tokens would fill shared memory
    for tile in tl.range(me, tl.cdiv(N, ROWS), programs, num_stages=1):
        row = tile * ROWS + tl.arange(0, ROWS)[None, :]
        following, _ = hold(
            weight, grouped((tile + programs) * ROWS, N, ROWS, SLICES, PARTS),
            None, K, SLICES, STEPS, PARTS, HELD,
        )  # fmt: skip
        # 0 in each round, which the compiler does not know: otherwise it would
        # keep all of x in registers meanwhile
        zero = tl.where(tile == N, 16, 0)
        logit, _ = multiply(
            x + zero, gain + zero, weight, scale,
            grouped(tile * ROWS, N, ROWS, SLICES, PARTS),
            once_each(tile * ROWS, N, ROWS), 0, held, held, M, eps, K, TOKENS,
            SLICES, STEPS, PARTS, True, False, CACHE, INTERPRETED,
        )  # fmt: skip
        # compared as a model compares: rounded
        logit = logit.to(x.dtype.element_ty).to(tl.float32)
        logit = tl.where(row < N, logit, float("-inf"))
        top = tl.max(logit, 1)
        first = tl.min(tl.where(logit == top[:, None], row, N), 1)
        word = tl.where(top > largest, first, word)
        largest = tl.maximum(largest, top)
        held = following
    tl.store(best + me * TOKENS + token, largest)
    tl.store(best_row + me * TOKENS + token, word)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1) == programs - 1:
        largest = tl.full((TOKENS,), float("-inf"), tl.float32)
        word = tl.full((TOKENS,), 0, tl.int32) + N
        MANY: tl.constexpr = 2048 // TOKENS  # few waits for loads
        each = tl.arange(0, MANY)
        for start in range(0, programs, MANY):
            at = (start + each)[:, None] * TOKENS + token[None, :]
            there = (start + each < programs)[:, None]
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
