"""Rows of a weight times at most 16 tokens, as the work of one program.

A weight is read once and never again, so no cache should keep it. Weights may
be in int8, with a scale for each row. Sums are in float32.

Tensor cores multiply 16 tokens by 8 rows. A product adds up columns in any
order, if weights and tokens have the same order. So we number the columns in
the order in which a thread loads them, 16 bytes at a time, and no weight passes
through shared memory.

Four threads have the columns of one of the 8 rows, so a warp would read 64
bytes of each row at a time. Memory is faster if it reads more of a row. So we
cut each row and each token into SLICES, and let slices take the place of rows
and tokens. Tensor cores multiply each slice of a token by each slice of a row.
Of these products we add up those of equal slices. With one token, a warp reads
512 bytes of a row at a time: 8 slices.
"""

from __future__ import annotations

import triton
import triton.language as tl

TOKEN_BLOCKS = tl.constexpr(2)
"""So many blocks of the tokens are on their way, from the cache."""
ZERO = tl.constexpr(128)
"""The byte of a weight of 0 in int8."""
RAISED = tl.constexpr(1152)
"""Tensor cores multiply weights of one byte as so much more."""
SMALLER = tl.constexpr(1 / 256)
"""In int8, tokens are multiplied as numbers of 16 bits with 5 bits of exponent.
So much smaller, even tokens of 10 million are far from infinity."""


@triton.jit
def units(first, ROWS: tl.constexpr):
    """The rows (ROWS,) of a program, or its pairs of rows."""
    return first + tl.arange(0, ROWS)


@triton.jit
def once_each(first, count, ROWS: tl.constexpr):
    """The same; behind the last of `count` rows, this row again."""
    return tl.minimum(units(first, ROWS), count - 1)


@triton.jit
def grouped(
    first, count,
    ROWS: tl.constexpr, SLICES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The same rows, SLICES times each, of each thread: (32 * PARTS, groups).
    Behind the last of `count` rows, this row again: its weights may be loaded,
    and its results are not stored twice."""
    group = tl.arange(0, ROWS * SLICES // 8)[None, :]
    of_thread = tl.arange(0, 32 * PARTS)[:, None] // 4 % 8
    row = (of_thread + group * 8) // SLICES
    return tl.minimum(first + row, count - 1)


# --8<-- [start:hold]
@triton.jit
def hold(
    weight, row, second,
    K: tl.constexpr, SLICES: tl.constexpr, STEPS: tl.constexpr,
    PARTS: tl.constexpr, HELD: tl.constexpr, other_weight=None,
):  # fmt: skip
    """Start loading the first HELD blocks of `row` (threads, groups) of a
    weight (rows, K) into registers. Nothing waits for the loads until the
    weights are used.

    Unless `second` is None, also of the rows so far down, in `other_weight` if
    there is one. Returns two tuples of blocks, the second one empty without
    other rows.
    """
    each: tl.constexpr = 16 if weight.dtype.element_ty == tl.uint8 else 8
    width: tl.constexpr = STEPS * PARTS * SLICES * 4 * each
    held, held_below = (), ()
    for k in tl.static_range(0, K, width):
        if k < HELD * width:
            block = block_of(weight, row, k, K, SLICES, STEPS, PARTS)
            held += (block,)  # type: ignore[assignment]
            if second is not None:
                below = weight if other_weight is None else other_weight
                block = block_of(
                    below, row + second, k, K, SLICES, STEPS, PARTS
                )
                held_below += (block,)  # type: ignore[assignment]
    return held, held_below


@triton.jit
def block_of(
    weight, row, k,
    K: tl.constexpr, SLICES: tl.constexpr, STEPS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """The block of these rows that begins at column k: (threads, STEPS, groups
    of slices, weights in 16 bytes). Weights in int8 come as words of four: a
    loop that keeps bytes needs a register for each."""
    in_word: tl.constexpr = 4 if weight.dtype.element_ty == tl.uint8 else 1
    each: tl.constexpr = 8 if in_word == 1 else 4
    if in_word == 4:
        weight = weight.to(tl.pointer_type(tl.int32))
    words: tl.constexpr = K // in_word
    col = columns_of(SLICES, STEPS, PARTS, each) + k // in_word
    col += tl.arange(0, each)[None, None, None, :]
    at = weight + row[:, None, :, None].to(tl.int64) * words + col
    # a hint: neighbors of the first axis are for neighboring threads
    at = tl.max_contiguous(at, (2, 1, 1, each))
    if words % (STEPS * PARTS * SLICES * 4 * each) == 0:
        return tl.load(at, eviction_policy="evict_first")
    else:
        return tl.load(at, col < words, 0, eviction_policy="evict_first")


@triton.jit
def columns_of(
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    EACH: tl.constexpr,
):  # fmt: skip
    """The first of EACH columns in 16 bytes of each thread, slice, part and
    step of a block: (threads, STEPS, 1, 1)."""
    of_all = tl.arange(0, 32 * PARTS)[:, None, None, None]
    step = tl.arange(0, STEPS)[None, :, None, None]
    part, thread, of_slice = of_all // 32, of_all % 4, of_all // 4 % SLICES
    return (((step * PARTS + part) * SLICES + of_slice) * 4 + thread) * EACH


# --8<-- [end:hold]
# --8<-- [start:multiply]
@triton.jit
def multiply(
    x, gain, weight, scale, row, once, second, held, held_below, M, eps,
    K: tl.constexpr, TOKENS: tl.constexpr, SLICES: tl.constexpr,
    STEPS: tl.constexpr, PARTS: tl.constexpr, NORM: tl.constexpr,
    PAIRED: tl.constexpr, CACHE: tl.constexpr, INTERPRETED: tl.constexpr,
    other_weight=None,
):  # fmt: skip
    """Products of tokens x (M, K) with `row` (threads, groups) of a weight
    (rows, K), `once` (rows,) if it has a scale, and if PAIRED with the rows
    `second` further down, of `other_weight` if there is one: two tensors
    (TOKENS, rows), or the same one twice. The first blocks of these rows are
    those of `hold`; each later block is loaded as many blocks before its use.

    With NORM, of x behind an RMS norm with `gain` (K,). The norm's factor is
    the same for all products of a token, so it may come last: the sum of
    squares is ready when the products are. So may the scale (rows,) in float32
    of a weight in int8; it is None for other weights.

    CACHE is ".ca" for x that no program of this kernel writes. Otherwise it is
    ".cg": past the L1 cache, which does not see other programs' writes.
    """
    groups: tl.constexpr = row.shape[1]
    each: tl.constexpr = 8 if scale is None else 16  # weights in 16 bytes
    width: tl.constexpr = STEPS * PARTS * SLICES * 4 * each
    ahead: tl.constexpr = len(held)
    below = weight if other_weight is None else other_weight
    sliced: tl.constexpr = TOKENS * SLICES
    int8: tl.constexpr = scale is not None
    raised: tl.constexpr = int8 and not INTERPRETED
    if int8:
        acc = tl.zeros((PARTS, 8 * groups, sliced), tl.float32)
    else:
        acc = tl.zeros((PARTS, sliced, 8 * groups), tl.float32)
    other = acc
    squares = tl.zeros((PARTS, sliced, sliced), tl.float32)
    totals = tl.zeros((PARTS, 16, sliced), tl.float32)
    loaded, gains = (), ()
    for k in tl.static_range(0, min(K, TOKEN_BLOCKS * width), width):
        y, g = tokens_at(
            x, gain, M, k, K, TOKENS, SLICES, STEPS, PARTS, each, NORM, CACHE
        )
        loaded += (y,)  # type: ignore[assignment]
        gains += (g,)  # type: ignore[assignment]
    if int8:
        larger: tl.constexpr = 1.0 if INTERPRETED else 1 / SMALLER
        scales = tl.load(scale + once)[None, :] * larger
        other_scales = scales
        if PAIRED:
            other_scales = tl.load(scale + once + second)[None, :] * larger
    for k in tl.static_range(0, K, width):
        if k + ahead * width < K:
            later = k + ahead * width
            held += (block_of(weight, row, later, K, SLICES, STEPS, PARTS),)
            if PAIRED:
                next_below = block_of(
                    below, row + second, later, K, SLICES, STEPS, PARTS
                )
                held_below += (next_below,)
        if k + TOKEN_BLOCKS * width < K:
            y, g = tokens_at(
                x, gain, M, k + TOKEN_BLOCKS * width, K, TOKENS, SLICES, STEPS,
                PARTS, each, NORM, CACHE,
            )  # fmt: skip
            loaded += (y,)  # type: ignore[assignment]
            gains += (g,)  # type: ignore[assignment]
        y, same, raw = operands_of(
            loaded[k // width], gains[k // width], sliced, each, NORM,
            INTERPRETED,
        )  # fmt: skip
        w = operand(held[k // width], INTERPRETED)
        acc = with_product(acc, y, w, int8)
        if PAIRED:
            w = operand(held_below[k // width], INTERPRETED)
            other = with_product(other, y, w, int8)
        if NORM:
            squares = tl.dot(raw, tl.trans(raw, 0, 2, 1), squares)
        if raised:
            ones = tl.full((PARTS, 16, y.shape[2]), 1.0, y.dtype)
            totals = tl.dot(ones, tl.trans(same, 0, 2, 1), totals)
    if raised:
        acc = lowered(acc, totals)
        other = lowered(other, totals) if PAIRED else acc
    if int8:
        acc, other = tl.trans(acc, 0, 2, 1), tl.trans(other, 0, 2, 1)
    acc = of_equal_slices(acc, SLICES)
    other = of_equal_slices(other, SLICES) if PAIRED else acc
    if NORM:
        token = tl.arange(0, TOKENS)
        own = token[:, None] == token[None, :]
        square = of_equal_slices(squares, SLICES)
        square = tl.sum(tl.where(own[None], square, 0.0), 2)
        # all sums of the warps at once: each exchange takes its time
        square = tl.broadcast_to(square[:, :, None], acc.shape)
        both = tl.join(tl.join(acc, other), tl.join(square, square))
        both, square = tl.split(tl.sum(both, 0))
        acc, other = tl.split(both)
        square, _ = tl.split(square)
        factor = tl.rsqrt(square / K + eps)
    else:
        acc = tl.sum(acc, 0)
        other = acc
    if int8:
        acc *= scales
        if PAIRED:
            other *= other_scales
    if NORM:
        acc *= factor
        other *= factor
    return acc, other


@triton.jit
def with_product(acc, y, w, INT8: tl.constexpr):
    """acc + y @ w of tokens y (PARTS, slices, columns) and weights w (PARTS,
    columns, slices of rows); of weights in int8 its transpose.

    The first operand of tensor cores has 16 rows, the second 8 columns. So
    weights as the first need half as many products. In bf16 they would also
    need copies: a thread's 16 bytes of one row are a second operand as they
    are loaded.
    """
    if INT8:
        w, y = tl.trans(w.to(y.dtype), 0, 2, 1), tl.trans(y, 0, 2, 1)
        return tl.dot(w, y, acc)
    else:
        return tl.dot(y, w.to(y.dtype), acc)


@triton.jit
def lowered(acc, totals):
    """The products (PARTS, slices of rows, slices of tokens) of weights that
    are RAISED, less what this adds: so many times the sum of each slice of a
    token, which each of the 16 rows of `totals` (PARTS, 16, slices) is."""
    parts: tl.constexpr = acc.shape[0]
    rows: tl.constexpr = min(16, acc.shape[1])
    if rows < 16:
        totals = tl.reshape(totals, (parts, 16 // rows, rows, acc.shape[2]))
        totals = tl.max(totals, 1)
    each = tl.reshape(acc, (parts, acc.shape[1] // rows, rows, acc.shape[2]))
    return tl.reshape(each - RAISED * totals[:, None], acc.shape)


@triton.jit
def of_equal_slices(products, SLICES: tl.constexpr):
    """(PARTS, slices of tokens, slices of rows) -> (PARTS, tokens, rows): the
    sum of the products of equal slices."""
    parts: tl.constexpr = products.shape[0]
    tokens: tl.constexpr = products.shape[1] // SLICES
    rows: tl.constexpr = products.shape[2] // SLICES
    if SLICES == 1:
        return products
    else:
        products = tl.reshape(products, (parts, tokens, SLICES, rows, SLICES))
        of_slice = tl.arange(0, SLICES)
        equal = of_slice[:, None, None] == of_slice[None, None, :]
        products = tl.where(equal[None, None], products, 0.0)
        products = tl.permute(products, 0, 1, 3, 2, 4)
        products = tl.reshape(products, (parts, tokens, rows, SLICES * SLICES))
        return tl.sum(products, 3)


# --8<-- [end:multiply]
# --8<-- [start:operands]
@triton.jit
def operand(w, INTERPRETED: tl.constexpr):
    """A block of weights as tensor cores take it: (PARTS, columns, slices of
    rows)."""
    together: tl.constexpr = 4 if w.dtype == tl.int32 else 2
    if w.dtype == tl.int32:
        w = unpacked(w, INTERPRETED)
    parts: tl.constexpr = w.shape[0] // 32
    columns: tl.constexpr = w.shape[1] * 4 * w.shape[3]
    rows: tl.constexpr = 8 * w.shape[2]
    w = tl.reshape(
        w,
        (parts, 8, 4, w.shape[1], w.shape[2], w.shape[3] // together, together),
    )
    return tl.reshape(
        tl.permute(w, 0, 3, 5, 2, 6, 4, 1), (parts, columns, rows)
    )


@triton.jit
def unpacked(w, INTERPRETED: tl.constexpr):
    """Words of four bytes -> weights in float16, as RAISED more. A GPU converts
    few integers a cycle. So put each byte into the number 1024, where it counts
    from 1."""
    if INTERPRETED:
        first = (w & 255).to(tl.float32) - ZERO
        second = (w >> 8 & 255).to(tl.float32) - ZERO
        third = (w >> 16 & 255).to(tl.float32) - ZERO
        fourth = (w >> 24 & 255).to(tl.float32) - ZERO
    else:
        first, second, third, fourth = tl.inline_asm_elementwise(
            """{
            .reg .b32 low, high;
            prmt.b32 low, $4, 0x64646464, 0x4140;
            prmt.b32 high, $4, 0x64646464, 0x4342;
            mov.b32 {$0, $1}, low;
            mov.b32 {$2, $3}, high;
            }""",
            "=h,=h,=h,=h,r", [w], dtype=(tl.float16,) * 4, is_pure=True, pack=1,
        )  # fmt: skip
    four = tl.join(tl.join(first, third), tl.join(second, fourth))
    each: tl.constexpr = 4 * w.shape[3]
    return tl.reshape(four, (w.shape[0], w.shape[1], w.shape[2], each))


@triton.jit
def tokens_at(
    x, gain, M, k,
    K: tl.constexpr, TOKENS: tl.constexpr, SLICES: tl.constexpr,
    STEPS: tl.constexpr, PARTS: tl.constexpr, EACH: tl.constexpr,
    NORM: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """The columns of all tokens that a block of weights with EACH weights in 16
    bytes multiplies, and the gain of a norm at these columns."""
    loads: tl.constexpr = EACH // 8
    load = tl.arange(0, TOKENS * SLICES // 8 * loads)
    load = load[None, None, :, None]
    col = columns_of(SLICES, STEPS, PARTS, EACH) + load % loads * 8 + k
    col += tl.arange(0, 8)[None, None, None, :]
    token = tl.arange(0, 32 * PARTS)[:, None, None, None] // 4 % 8
    token = (token + load // loads * 8) // SLICES
    # behind the last token this token again, since a row of results is its own
    token = tl.minimum(token, M - 1)
    at, its_gain = x + token * K + col, gain + col + token * 0
    at = tl.max_contiguous(at, (2, 1, 1, 8))
    its_gain = tl.max_contiguous(its_gain, (2, 1, 1, 8))
    g = 0.0
    if K % (STEPS * PARTS * SLICES * 4 * EACH) == 0:
        y = tl.load(at, cache_modifier=CACHE)
        if NORM:
            g = tl.load(its_gain)
    else:
        y = tl.load(at, col < K, 0.0, cache_modifier=CACHE)
        if NORM:
            g = tl.load(its_gain, (col < K) & (token >= 0), 0.0)
    return y, g


@triton.jit
def operands_of(
    y, gain, SLICED: tl.constexpr, EACH: tl.constexpr, NORM: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """What multiplies a block of weights, in the order of the weights' columns,
    the same in the order of 2 columns at a time, and the tokens themselves in
    that order, (PARTS, slices of tokens, columns) each. Of bytes, the compiler
    takes 4 columns at a time: another order would move them between threads."""
    raw = ordered(y, SLICED, 2)
    if NORM:
        y = product(y, gain, INTERPRETED)
    if INTERPRETED:  # there bf16 products are wrong
        y, raw = y.to(tl.float32), raw.to(tl.float32)
    elif EACH == 16:
        y = smaller(y)
    return ordered(y, SLICED, EACH // 4), ordered(y, SLICED, 2), raw


@triton.jit
def smaller(y):
    """y * SMALLER in float16; of bf16 two at a time (0x3b80 is SMALLER)."""
    if y.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 factor, zero, first, second, both;
            mov.b32 factor, 0x3b803b80;
            mov.b32 zero, 0x80008000;
            fma.rn.bf16x2 both, $1, factor, zero;
            shl.b32 first, both, 16;
            and.b32 second, both, 0xffff0000;
            cvt.rn.f16x2.f32 $0, second, first;
            }""",
            "=r,r", [y], dtype=tl.float16, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        return (y.to(tl.float32) * SMALLER).to(tl.float16)


@triton.jit
def ordered(y, SLICED: tl.constexpr, TOGETHER: tl.constexpr):
    """(threads, STEPS, loads, 8) -> (PARTS, slices of tokens, columns)."""
    parts: tl.constexpr = y.shape[0] // 32
    many: tl.constexpr = SLICED // 8
    loads: tl.constexpr = y.shape[2] // many
    columns: tl.constexpr = y.shape[1] * loads * 32
    y = tl.reshape(
        y, (parts, 8, 4, y.shape[1], many, loads, 8 // TOGETHER, TOGETHER)
    )
    return tl.reshape(
        tl.permute(y, 0, 4, 1, 3, 5, 6, 2, 7), (parts, SLICED, columns)
    )


@triton.jit
def product(x, y, INTERPRETED: tl.constexpr):
    """x * y, rounded as a model rounds; of bf16 two at a time."""
    if x.dtype == tl.bfloat16 and y.dtype == tl.bfloat16 and not INTERPRETED:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 zero;
            mov.b32 zero, 0x80008000;
            fma.rn.bf16x2 $0, $1, $2, zero;
            }""",
            "=r,r,r", [x, y], dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        return (x.to(tl.float32) * y.to(tl.float32)).to(x.dtype)


# --8<-- [end:operands]
