"""Rows of a weight times at most 16 tokens, as the work of one program.

A weight is read once and never again, so no cache should keep it. Weights may
be in int8, with a scale for each row. Sums are in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:hold]
@triton.jit
def hold(
    weight, row, rows, second,
    K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, HELD: tl.constexpr, other_weight=None,
):  # fmt: skip
    """Start loading the first HELD blocks of `row` of a weight (rows, K) into
    registers. Nothing waits for the loads until the weights are used.

    Unless `second` is None, also of the rows so far down, in `other_weight` if
    there is one. Returns two tuples of blocks, the second one empty without
    other rows.
    """
    held, held_below = (), ()
    for k in tl.static_range(0, K, BLOCK_K):
        if k < HELD * BLOCK_K:
            block = block_of(weight, row, rows, k, K, TOKENS, BLOCK_K, PARTS)
            held += (block,)  # type: ignore[assignment]
            if second is not None:
                below = weight if other_weight is None else other_weight
                below += tl.cast(second, tl.int64) * K
                block = block_of(below, row, rows, k, K, TOKENS, BLOCK_K, PARTS)
                held_below += (block,)  # type: ignore[assignment]
    return held, held_below


@triton.jit
def block_of(
    weight, row, rows, k,
    K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """The block of these rows that begins at element k: (rows of a tile,
    BLOCK_K); for several tokens (PARTS, rows of a tile, BLOCK_K / PARTS)."""
    if TOKENS == 1:
        row = row[:, None]
        col = k + tl.arange(0, BLOCK_K)[None, :]
    else:
        part: tl.constexpr = BLOCK_K // PARTS
        row = row[None, :, None]
        col = tl.arange(0, PARTS)[:, None, None] * part
        col += k + tl.arange(0, part)[None, None, :]
    return tl.load(
        weight + row.to(tl.int64) * K + col, (row < rows) & (col < K), 0.0,
        eviction_policy="evict_first",
    )  # fmt: skip


# --8<-- [end:hold]
# --8<-- [start:multiply]
@triton.jit
def multiply(
    x, gain, weight, scale, row, rows, second, held, held_below, M, eps,
    K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, NORM: tl.constexpr,
    PAIRED: tl.constexpr, CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
    other_weight=None,
):  # fmt: skip
    """Products of tokens x (M, K) with `row` of a weight (rows, K), and if
    PAIRED with the rows `second` further down, of `other_weight` if there is
    one: two tensors (rows of a tile, TOKENS), or the same one twice. The first
    blocks of these rows are those of `hold`.

    With NORM, of x behind an RMS norm with `gain` (K,). The norm's factor is
    the same for all products of a token, so it may come last: the sum of
    squares is ready when the products are. So may the scale (rows,) in float32
    of a weight in int8; it is None for other weights.

    CACHE is ".ca" for x that no program of this kernel writes. Otherwise it is
    ".cg": past the L1 cache, which does not see other programs' writes.
    """
    of_row, of_other = 1.0, 1.0
    if scale is not None:
        inside = row < rows
        of_row = tl.load(scale + row, inside, 0.0)[:, None]
        of_other = of_row
        if PAIRED:
            of_other = tl.load(scale + second + row, inside, 0.0)[:, None]
    below = weight if other_weight is None else other_weight
    below += tl.cast(second, tl.int64) * K
    each: tl.constexpr = 8 if scale is None else 16  # weights in 16 bytes
    one: tl.constexpr = TOKENS == 1
    few_shape: tl.constexpr = (PARTS, row.shape[0], TOKENS)
    shape: tl.constexpr = (row.shape[0], BLOCK_K // each) if one else few_shape
    few_squared: tl.constexpr = (PARTS, TOKENS, BLOCK_K // PARTS)
    squared: tl.constexpr = (BLOCK_K,) if one else few_squared
    acc = tl.zeros(shape, tl.float32)
    other = acc
    squares = tl.zeros(squared, tl.float32)
    for block in tl.static_range(len(held)):
        w = held[block]
        w_below = held_below[block] if PAIRED else w
        acc, other, squares = add_block(
            acc, other, squares, w, w_below, x, gain, block * BLOCK_K, M, K,
            TOKENS, BLOCK_K, PARTS, NORM, PAIRED, CACHE, INTERPRETED,
        )  # fmt: skip
    if len(held) * BLOCK_K < K:
        for k in tl.range(len(held) * BLOCK_K, K, BLOCK_K, num_stages=STAGES):
            w = block_of(weight, row, rows, k, K, TOKENS, BLOCK_K, PARTS)
            w_below = w
            if PAIRED:
                w_below = block_of(
                    below, row, rows, k, K, TOKENS, BLOCK_K, PARTS
                )
            acc, other, squares = add_block(
                acc, other, squares, w, w_below, x, gain, k, M, K, TOKENS,
                BLOCK_K, PARTS, NORM, PAIRED, CACHE, INTERPRETED,
            )  # fmt: skip
    if TOKENS == 1:
        acc, other = tl.sum(acc, 1)[:, None], tl.sum(other, 1)[:, None]
        squares = tl.sum(squares, 0)[None]
    else:
        acc, other = tl.sum(acc, 0), tl.sum(other, 0)
        squares = tl.sum(tl.sum(squares, 2), 0)
    if NORM:
        factor = tl.rsqrt(squares / K + eps)[None, :]
        acc *= factor
        other *= factor
    if scale is not None:
        acc *= of_row
        other *= of_other
    return acc, other


@triton.jit
def add_block(
    acc, other, squares, w, w_below, x, gain, k, M,
    K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, NORM: tl.constexpr, PAIRED: tl.constexpr,
    CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Add what a block of weights that begins at element k contributes to the
    sums of `multiply`."""
    if TOKENS == 1:
        return add_block_of_one(
            acc, other, squares, w, w_below, x, gain, k, K, BLOCK_K, NORM,
            PAIRED, CACHE, INTERPRETED,
        )  # fmt: skip
    else:
        return add_block_of_few(
            acc, other, squares, w, w_below, x, gain, k, M, K, TOKENS, BLOCK_K,
            PARTS, NORM, PAIRED, CACHE, INTERPRETED,
        )  # fmt: skip


# --8<-- [end:multiply]
# --8<-- [start:one_token]
@triton.jit
def add_block_of_one(
    acc, other, squares, w, w_below, x, gain, k,
    K: tl.constexpr, BLOCK_K: tl.constexpr, NORM: tl.constexpr,
    PAIRED: tl.constexpr, CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """For one token: acc and other (rows, BLOCK_K / 8, or 16 in int8), squares
    (BLOCK_K,).

    Without tensor cores, since each weight is needed once. A thread adds the
    products of the weights that it loads together, and keeps one sum for them
    until the rows end.
    """
    each: tl.constexpr = BLOCK_K // acc.shape[1]
    col = k + tl.arange(0, BLOCK_K)
    inside = col < K
    y = tl.load(x + col, inside, 0.0, cache_modifier=CACHE).to(tl.float32)
    if NORM:
        squares += y * y
        y *= tl.load(gain + col, inside, 0.0).to(tl.float32)
    y = y[None, :]
    acc += sums_of_products(w, y, each, INTERPRETED)
    if PAIRED:
        other += sums_of_products(w_below, y, each, INTERPRETED)
    return acc, other, squares


@triton.jit
def sum_each(products, EACH: tl.constexpr):
    """(rows, columns) -> (rows, columns / EACH): sums of neighbors."""
    count: tl.constexpr = products.shape[1] // EACH
    return tl.sum(tl.reshape(products, (products.shape[0], count, EACH)), 2)


@triton.jit
def sums_of_products(
    w, y, EACH: tl.constexpr, INTERPRETED: tl.constexpr
):  # fmt: skip
    """(rows, columns), (1, columns) -> (rows, columns / EACH): sums of EACH
    neighboring products.

    A GPU converts few integers a cycle, fewer than memory gives in int8. So
    put each byte, made unsigned by its highest bit, into the number 2^15, where
    it counts from 1. The sum of products with 2^15 + 128 + w has 2^15 + 128
    times the sum of y too much: one subtraction for EACH weights. Rounding of
    these sums stays far below that of a result in bf16.
    """
    if w.dtype == tl.int8 and not INTERPRETED:
        raised = tl.inline_asm_elementwise(
            """{
            .reg .b32 bytes;
            xor.b32 bytes, $4, 0x80808080;
            prmt.b32 $0, bytes, 0x47000000, 0x7404;
            prmt.b32 $1, bytes, 0x47000000, 0x7414;
            prmt.b32 $2, bytes, 0x47000000, 0x7424;
            prmt.b32 $3, bytes, 0x47000000, 0x7434;
            }""",
            "=f,=f,=f,=f,r",
            [w],
            dtype=tl.float32,
            is_pure=True,
            pack=4,
        )
        too_much = sum_each(tl.broadcast_to(y, w.shape), EACH) * 32896.0
        return sum_each(raised * y, EACH) - too_much
    else:
        return sum_each(w.to(tl.float32) * y, EACH)


# --8<-- [end:one_token]
# --8<-- [start:few_tokens]
@triton.jit
def add_block_of_few(
    acc, other, squares, w, w_below, x, gain, k, M,
    K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, NORM: tl.constexpr, PAIRED: tl.constexpr,
    CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """For up to TOKENS tokens: acc and other (PARTS, rows, TOKENS), squares
    (PARTS, TOKENS, BLOCK_K / PARTS).

    Each warp multiplies one of PARTS parts of a block of K. If all warps shared
    a product of so few rows, each would read all weights from shared memory.
    """
    part: tl.constexpr = BLOCK_K // PARTS
    first = tl.arange(0, PARTS)[:, None, None] * part
    col = k + first + tl.arange(0, part)[None, None, :]
    token = tl.arange(0, TOKENS)[None, :, None]
    inside = col < K
    y = tl.load(
        x + token * K + col, (token < M) & inside, 0.0, cache_modifier=CACHE
    )
    if NORM:
        y = y.to(tl.float32)
        squares += y * y
        y *= tl.load(gain + col, inside, 0.0).to(tl.float32)
        y = y.to(x.dtype.element_ty)
    if INTERPRETED:  # there bf16 products are wrong
        y = y.to(tl.float32)
    acc = tl.dot(w.to(y.dtype), tl.trans(y), acc)
    if PAIRED:
        other = tl.dot(w_below.to(y.dtype), tl.trans(y), other)
    return acc, other, squares


# --8<-- [end:few_tokens]
