"""Rows of a weight times at most 16 tokens, as the work of one program.

A weight is read once and never again, so no cache should keep it. Weights may
be in int8, with a scale for each row. Sums are in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .ahead import fetch_rows


@triton.jit
def ask(
    weight, row, second, rows, K, AHEAD: tl.constexpr, other_weight=None
):  # fmt: skip
    """Ask for the first AHEAD elements of these rows, without waiting for
    them. Unless `second` is None, ask for half as many elements of each, and
    of the rows so far down, in `other_weight` if there is one."""
    if AHEAD:
        if second is None:
            fetch_rows(weight, row, rows, K, AHEAD)
        else:
            below = weight if other_weight is None else other_weight
            below += tl.cast(second, tl.int64) * K
            fetch_rows(weight, row, rows, K, AHEAD // 2)
            fetch_rows(below, row, rows, K, AHEAD // 2)


# --8<-- [start:multiply]
@triton.jit
def multiply(
    x, gain, weight, scale, row, rows, second, M, K, eps,
    TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    PARTS: tl.constexpr, NORM: tl.constexpr, PAIRED: tl.constexpr,
    INTERPRETED: tl.constexpr, other_weight=None,
):  # fmt: skip
    """Products of tokens x (M, K) with `row` of a weight (rows, K), and if
    PAIRED with the rows `second` further down, of `other_weight` if there is
    one: two tensors (rows of a tile, TOKENS), or the same one twice.

    With NORM, of x behind an RMS norm with `gain` (K,). The norm's factor is
    the same for all products of a token, so it may come last: the sum of
    squares is ready when the products are. So may the scale (rows,) in float32
    of a weight in int8; it is None for other weights.
    """
    each: tl.constexpr = 8 if scale is None else 16  # weights in 16 bytes
    K = K // each * each  # true of K, but unknown to the compiler
    of_row, of_other = 1.0, 1.0
    if scale is not None:
        inside = row < rows
        of_row = tl.load(scale + row, inside, 0.0)[:, None]
        of_other = of_row
        if PAIRED:
            of_other = tl.load(scale + second + row, inside, 0.0)[:, None]
    if TOKENS == 1:
        acc, other, squares = sums_of_one(
            x, gain, weight, row, rows, second, K, each, BLOCK_K, STAGES, NORM,
            PAIRED, INTERPRETED, other_weight,
        )  # fmt: skip
    else:
        acc, other, squares = sums_of_few(
            x, gain, weight, row, rows, second, M, K, TOKENS, BLOCK_K, STAGES,
            PARTS, NORM, PAIRED, INTERPRETED, other_weight,
        )  # fmt: skip
    if NORM:
        factor = tl.rsqrt(squares / K + eps)[None, :]
        acc *= factor
        other *= factor
    if scale is not None:
        acc *= of_row
        other *= of_other
    return acc, other


# --8<-- [end:multiply]
# --8<-- [start:one_token]
@triton.jit
def sums_of_one(
    x, gain, weight, row, rows, second, K,
    EACH: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    NORM: tl.constexpr, PAIRED: tl.constexpr, INTERPRETED: tl.constexpr,
    other_weight=None,
):  # fmt: skip
    """The sums of `multiply` for one token, and the sum of squares (1,).

    Without tensor cores, since each weight is needed once. A thread adds the
    EACH products of the weights that it loads together, and keeps one sum for
    them until the rows end.
    """
    col = tl.arange(0, BLOCK_K)
    acc = tl.zeros((row.shape[0], BLOCK_K // EACH), tl.float32)
    other = acc
    squares = tl.zeros((1, BLOCK_K), tl.float32)
    at = row[:, None].to(tl.int64) * K + col[None, :]
    weight_below = weight if other_weight is None else other_weight
    weight_below += tl.cast(second, tl.int64) * K
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        inside = col < K - k
        there = (row < rows)[:, None] & inside[None, :]
        w = tl.load(
            weight + (at + k), there, 0.0, eviction_policy="evict_first"
        )
        y = tl.load(x + col + k, inside, 0.0, cache_modifier=".cg")
        y = y.to(tl.float32)[None, :]
        if NORM:
            squares += y * y
            y *= tl.load(gain + col + k, inside, 0.0).to(tl.float32)[None, :]
        acc += sums_of_products(w, y, EACH, INTERPRETED)
        if PAIRED:
            w = tl.load(
                weight_below + (at + k), there, 0.0,
                eviction_policy="evict_first",
            )  # fmt: skip
            other += sums_of_products(w, y, EACH, INTERPRETED)
    acc, other = tl.sum(acc, 1)[:, None], tl.sum(other, 1)[:, None]
    return acc, other, tl.sum(squares, 1)


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
def sums_of_few(
    x, gain, weight, row, rows, second, M, K,
    TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    PARTS: tl.constexpr, NORM: tl.constexpr, PAIRED: tl.constexpr,
    INTERPRETED: tl.constexpr, other_weight=None,
):  # fmt: skip
    """The sums of `multiply` for up to TOKENS tokens, and the sums of squares
    (TOKENS,).

    Each warp multiplies one of PARTS parts of a block of K: products (PARTS,
    rows, TOKENS). If all warps shared a product of so few rows, each would read
    all weights from shared memory.
    """
    part: tl.constexpr = BLOCK_K // PARTS
    first = tl.arange(0, PARTS)[:, None, None] * part
    col = first + tl.arange(0, part)[None, None, :]
    w_row = row[None, :, None]
    token = tl.arange(0, TOKENS)[None, :, None]
    acc = tl.zeros((PARTS, row.shape[0], TOKENS), tl.float32)
    other = acc
    squares = tl.zeros((PARTS, TOKENS, part), tl.float32)
    at = w_row.to(tl.int64) * K + col
    weight_below = weight if other_weight is None else other_weight
    weight_below += tl.cast(second, tl.int64) * K
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        inside = col < K - k
        there = (w_row < rows) & inside
        w = tl.load(
            weight + (at + k), there, 0.0, eviction_policy="evict_first"
        )
        y = tl.load(
            x + token * K + (col + k), (token < M) & inside, 0.0,
            cache_modifier=".cg",
        )  # fmt: skip
        if NORM:
            y = y.to(tl.float32)
            squares += y * y
            y *= tl.load(gain + col + k, inside, 0.0).to(tl.float32)
            y = y.to(x.dtype.element_ty)
        if INTERPRETED:  # there bf16 products are wrong
            y = y.to(tl.float32)
        acc = tl.dot(w.to(y.dtype), tl.trans(y), acc)
        if PAIRED:
            w = tl.load(
                weight_below + (at + k), there, 0.0,
                eviction_policy="evict_first",
            )  # fmt: skip
            other = tl.dot(w.to(y.dtype), tl.trans(y), other)
    return tl.sum(acc, 0), tl.sum(other, 0), tl.sum(tl.sum(squares, 2), 0)


# --8<-- [end:few_tokens]
