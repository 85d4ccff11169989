"""Attention of one token of each sequence, split by keys, as the work of one
program."""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1e30)
"""Below every score."""


@triton.jit
def fetch(first, count):
    """Start loading `count` elements, a multiple of 16 bytes, from an address
    into the L2 cache. One thread of a program asks."""
    item_bytes: tl.constexpr = first.dtype.element_ty.primitive_bitwidth // 8
    tl.inline_asm_elementwise(
        """{
        .reg .pred asks;
        .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.eq.u32 asks, thread, 0;
        setp.gt.and.s32 asks, $2, 0, asks;
        @asks cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [first, count * item_bytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def ask_block(
    tile, keys, values, length,
    HEAD_DIM: tl.constexpr, BLOCK_KEYS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Ask for the first block of keys and values of a split, without waiting
    for it. A kernel before may still write the newest ones: the cache sees
    these writes."""
    of, first = tile // SPLITS, tile % SPLITS * BLOCK_KEYS
    count = tl.minimum(length - first, BLOCK_KEYS) * HEAD_DIM
    block = (tl.cast(of, tl.int64) * length + first) * HEAD_DIM
    fetch(keys + block, count)
    fetch(values + block, count)


@triton.jit
def attend_tile(
    tile, q, keys, values, position, sums, tops, arrived, out, heads, kv_heads,
    length, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr,
    mask=None, mask_stride=0,
):  # fmt: skip
    """One split of the keys of one head of keys and values, for the group of
    query heads that share it. The last split to arrive combines all splits.

    Of SPLITS blocks of keys that follow each other, a split has one. It loads
    its first block before it knows the position, and each further block as
    soon as it has multiplied by the block before. What lies behind the
    position may be anything, and changes nothing.

    sums (M, heads, SPLITS, HEAD_DIM) and tops (M, heads, SPLITS, 2) are in
    float32: the sums of values, the largest score, and the sum of weights.
    Without a `position`, all `length` keys are known. A mask (M, length), with
    `mask_stride` from sequence to sequence, says which of them to look at.
    """
    of, split = tile // SPLITS, tile % SPLITS
    sequence, kv_head = of // kv_heads, of % kv_heads
    group = heads // kv_heads
    d = tl.arange(0, HEAD_DIM)
    first = split * BLOCK_KEYS
    place = first + tl.arange(0, BLOCK_KEYS)
    start = tl.cast(of, tl.int64) * length * HEAD_DIM
    block = start + place[:, None] * HEAD_DIM + d[None, :]
    stored = (place < length)[:, None]
    k = tl.load(keys + block, stored, 0.0, cache_modifier=".cg")
    v = tl.load(values + block, stored, 0.0, cache_modifier=".cg")
    ROWS: tl.constexpr = GROUP if GROUP > 16 else 16  # of tensor cores
    member = tl.arange(0, ROWS)
    asked = member < group
    head = sequence * heads + kv_head * group + member
    at = head[:, None] * HEAD_DIM + d[None, :]
    query = tl.load(q + at, asked[:, None], 0.0, cache_modifier=".cg")
    known = length
    if position is not None:
        known = tl.minimum(tl.load(position) + 1, length).to(tl.int32)
    used = tl.minimum(tl.cdiv(known, BLOCK_KEYS), SPLITS)
    if split < used:
        if INTERPRETED:
            query = query.to(tl.float32)
        acc = tl.zeros((ROWS, HEAD_DIM), tl.float32)
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        weights = tl.zeros((ROWS,), tl.float32)
        STRIDE: tl.constexpr = SPLITS * BLOCK_KEYS
        for key in tl.range(first, known, STRIDE, num_stages=1):
            place = key + tl.arange(0, BLOCK_KEYS)
            there = place < known
            if mask is not None:
                seen = tl.load(mask + sequence * mask_stride + place, there, 0)
                there = there & (seen != 0)
            block += STRIDE * HEAD_DIM
            more = (place + STRIDE < known)[:, None]
            v = tl.where(there[:, None], v, 0.0)  # 0 times NaN is NaN
            if INTERPRETED:
                k, v = k.to(tl.float32), v.to(tl.float32)
            score = tl.dot(query, tl.trans(k)) * scale
            k = tl.load(keys + block, more, 0.0, cache_modifier=".cg")
            score = tl.where(there[None, :], score, float("-inf"))
            above = tl.maximum(top, tl.max(score, 1))
            if mask is not None:  # no infinity minus infinity
                above = tl.maximum(above, LOWEST)
            shrink = tl.exp(top - above)
            p = tl.exp(score - above[:, None])
            weights = weights * shrink + tl.sum(p, 1)
            acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
            v = tl.load(values + block, more, 0.0, cache_modifier=".cg")
            top = above
        one = head * SPLITS + split
        to_sums = sums + one[:, None] * HEAD_DIM + d[None, :]
        tl.store(to_sums, acc, asked[:, None])
        tl.store(tops + one * 2, top, asked)
        tl.store(tops + one * 2 + 1, weights, asked)
        tl.debug_barrier()  # all threads have stored before one says so
        if tl.atomic_add(arrived + of, 1) == used - 1:
            its = tl.arange(0, GROUP)
            its_head = sequence * heads + kv_head * group + its
            mean = combined(
                sums, tops, its_head, its < group, used, HEAD_DIM, GROUP, SPLITS
            )
            to = out + its_head[:, None] * HEAD_DIM + d[None, :]
            tl.store(to, mean.to(out.dtype.element_ty), (its < group)[:, None])
            tl.store(arrived + of, 0)  # for the next layer


@triton.jit
def combined(
    sums, tops, head, asked, used,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The mean values (GROUP, HEAD_DIM) of these heads (GROUP,) over the
    first `used` splits.

    Many splits at a time, mostly all: each further time would wait for its own
    loads.
    """
    FIT: tl.constexpr = 8192 // (GROUP * HEAD_DIM)  # more would fill registers
    CHUNK: tl.constexpr = 1 if FIT < 1 else 16 if FIT > 16 else FIT
    d = tl.arange(0, HEAD_DIM)
    acc = tl.zeros((GROUP, HEAD_DIM), tl.float32)
    top = tl.full((GROUP,), float("-inf"), tl.float32)
    weights = tl.zeros((GROUP,), tl.float32)
    for start in range(0, used, CHUNK):
        part = start + tl.arange(0, CHUNK)[None, :]
        there = asked[:, None] & (part < used)
        one = head[:, None] * SPLITS + part  # (GROUP, CHUNK)
        its_top = tl.load(
            tops + one * 2, there, float("-inf"), cache_modifier=".cg"
        )
        its_weights = tl.load(
            tops + one * 2 + 1, there, 0.0, cache_modifier=".cg"
        )
        its_sums = tl.load(
            sums + one[:, :, None] * HEAD_DIM + d[None, None, :],
            there[:, :, None], 0.0, cache_modifier=".cg",
        )  # fmt: skip
        above = tl.maximum(top, tl.max(its_top, 1))
        above = tl.where(asked, above, 0.0)
        shrink, grow = tl.exp(top - above), tl.exp(its_top - above[:, None])
        acc = acc * shrink[:, None] + tl.sum(its_sums * grow[:, :, None], 1)
        weights = weights * shrink + tl.sum(its_weights * grow, 1)
        top = above
    # no head, or a mask that hides all keys
    weights = tl.where(weights > 0, weights, 1.0)
    return acc / weights[:, None]
