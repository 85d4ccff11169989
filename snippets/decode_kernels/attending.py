"""Attention of one token of each sequence, split by keys, as the work of one
program."""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1e30)
"""Below every score."""


@triton.jit
def attend_tile(
    tile, q, keys, values, position, sums, tops, arrived, out, heads, kv_heads,
    length, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr, mask=None, mask_stride=0,
):  # fmt: skip
    """One split of the keys of one head of keys and values, for the group of
    query heads that share it. The last split to arrive combines all splits.
    Splits without keys, as of a short text, arrive at once.

    sums (M, heads, SPLITS, HEAD_DIM) and tops (M, heads, SPLITS, 2) are in
    float32: the sums of values, the largest score, and the sum of weights.
    Without a `position`, all `length` keys are known. A mask (M, length), with
    `mask_stride` from sequence to sequence, says which of them to look at.
    """
    of, split = tile // SPLITS, tile % SPLITS
    sequence, kv_head = of // kv_heads, of % kv_heads
    group = heads // kv_heads
    member = tl.arange(0, GROUP)
    head = kv_head * group + member
    d = tl.arange(0, HEAD_DIM)
    asked = (member < group)[:, None]
    at = (sequence * heads + head)[:, None] * HEAD_DIM + d[None, :]
    query = tl.load(q + at, asked, 0.0, cache_modifier=".cg")
    if INTERPRETED:
        query = query.to(tl.float32)
    # what lies behind the position is never read
    known = length
    if position is not None:
        known = tl.minimum(tl.load(position) + 1, length)
    share = tl.cdiv(tl.cdiv(known, BLOCK_KEYS), SPLITS) * BLOCK_KEYS
    first = split * share
    end = tl.minimum(first + share, known)
    acc = tl.zeros((GROUP, HEAD_DIM), tl.float32)
    top = tl.full((GROUP,), float("-inf"), tl.float32)
    weights = tl.zeros((GROUP,), tl.float32)
    start = tl.cast(of, tl.int64) * length * HEAD_DIM
    for key in range(first, end, BLOCK_KEYS):
        place = key + tl.arange(0, BLOCK_KEYS)
        there = place < end
        if mask is not None:
            seen = tl.load(mask + sequence * mask_stride + place, there, 0)
            there = there & (seen != 0)
        block = start + place[:, None] * HEAD_DIM + d[None, :]
        k = tl.load(keys + block, there[:, None], 0.0, cache_modifier=".cg")
        v = tl.load(values + block, there[:, None], 0.0, cache_modifier=".cg")
        if INTERPRETED:
            k, v = k.to(tl.float32), v.to(tl.float32)
        score = tl.dot(query, tl.trans(k)) * scale
        score = tl.where(there[None, :], score, float("-inf"))
        above = tl.maximum(top, tl.max(score, 1))
        if mask is not None:  # no infinity minus infinity
            above = tl.maximum(above, LOWEST)
        shrink = tl.exp(top - above)
        p = tl.exp(score - above[:, None])
        weights = weights * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = above
    one = (sequence * heads + head) * SPLITS + split
    tl.store(sums + one[:, None] * HEAD_DIM + d[None, :], acc, asked)
    tl.store(tops + one * 2, top, member < group)
    tl.store(tops + one * 2 + 1, weights, member < group)
    tl.debug_barrier()  # all threads have stored before one says so
    if tl.atomic_add(arrived + of, 1) == SPLITS - 1:
        mean = combined(
            sums, tops, sequence * heads + head, member < group,
            tl.cdiv(known, share), HEAD_DIM, GROUP, SPLITS,
        )  # fmt: skip
        tl.store(out + at, mean.to(out.dtype.element_ty), asked)
        tl.atomic_xchg(arrived + of, 0)  # for the next layer


@triton.jit
def combined(
    sums, tops, head, asked, used,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The mean values (GROUP, HEAD_DIM) of these heads (GROUP,) over the
    first `used` splits, which have keys.

    Several splits at a time: with one at a time, each would wait for its own
    loads.
    """
    CHUNK: tl.constexpr = 256 // HEAD_DIM  # more would fill registers
    d = tl.arange(0, HEAD_DIM)
    acc = tl.zeros((GROUP, HEAD_DIM), tl.float32)
    top = tl.full((GROUP,), float("-inf"), tl.float32)
    weights = tl.zeros((GROUP,), tl.float32)
    for start in range(0, used, CHUNK):
        part = start + tl.arange(0, CHUNK)[:, None]
        there = (part < used) & asked[None, :]
        one = head[None, :] * SPLITS + part  # (CHUNK, GROUP)
        its_sums = tl.load(
            sums + one[:, :, None] * HEAD_DIM + d[None, None, :],
            there[:, :, None], 0.0, cache_modifier=".cg",
        )  # fmt: skip
        its_top = tl.load(
            tops + one * 2, there, float("-inf"), cache_modifier=".cg"
        )
        its_weights = tl.load(
            tops + one * 2 + 1, there, 0.0, cache_modifier=".cg"
        )
        above = tl.maximum(top, tl.max(its_top, 0))
        above = tl.where(asked, above, 0.0)
        shrink, grow = tl.exp(top - above), tl.exp(its_top - above[None, :])
        acc = acc * shrink[:, None] + tl.sum(its_sums * grow[:, :, None], 0)
        weights = weights * shrink + tl.sum(its_weights * grow, 0)
        top = above
    # no head, or a mask that hides all keys
    weights = tl.where(weights > 0, weights, 1.0)
    return acc / weights[:, None]
