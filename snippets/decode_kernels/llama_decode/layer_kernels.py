"""The five kernels of a decoder layer as Transformers keeps it: each projection
has a weight of its own, and the cosine and sine of each token, a mask and a
cache are given.

M is the number of tokens, one of each sequence.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .attending import ask_block, attend_tile
from .kernels import start_next, wait_for_previous
from .products import grouped, hold, multiply, units
from .tiles import gate_up_tile, pair_row, residual_tile


@triton.jit(
    do_not_specialize=["M", "heads", "kv_heads", "length", "angle_stride"]
)
def decode_project_kernel(
    x, gain, q_weight, k_weight, v_weight, cos, sin, position, q, keys, values,
    arrived, M, heads, kv_heads, length, angle_stride, eps,
    K: tl.constexpr, HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, SLICES: tl.constexpr, STEPS: tl.constexpr,
    PARTS: tl.constexpr, HELD: tl.constexpr, INTERPRETED: tl.constexpr,
    DEPENDENT: tl.constexpr, COUNTERS: tl.constexpr,
):  # fmt: skip
    """Norm, products, rotation, and the write into the cache, of ROWS
    pairs of rows of one of three weights. Row `position` of the cache is
    written, or row 0 if there is none.

    cos and sin: (M, HEAD_DIM), with `angle_stride` from token to token.
    """
    # What ran before may have written weights. So no kernel of the layer loads
    # weights, and no next kernel starts, before it has ended.
    wait_for_previous(DEPENDENT)
    start_next(DEPENDENT)
    half: tl.constexpr = HEAD_DIM // 2
    # each weight is cut by itself, so that no program needs rows of two
    q_tiles = tl.cdiv(heads * half, ROWS)
    kv_tiles = tl.cdiv(kv_heads * half, ROWS)
    tile = tl.program_id(0)
    is_q, is_v = tile < q_tiles, tile >= q_tiles + kv_tiles
    own_tile = tile - tl.where(is_q, 0, q_tiles) - tl.where(is_v, kv_tiles, 0)
    other = tl.where(is_v, v_weight, k_weight)
    weight = tl.where(is_q, q_weight, other)
    own_heads = tl.where(is_q, heads, kv_heads)
    row = grouped(own_tile * ROWS, own_heads * half, ROWS, SLICES, PARTS)
    row = pair_row(row, HEAD_DIM)
    held, below = hold(weight, row, half, K, SLICES, STEPS, PARTS, HELD)
    if tile == 0:  # attention counts from zero
        counter = tl.arange(0, COUNTERS)
        tl.store(arrived + counter, 0, counter < M * kv_heads)
    # asked for before the products, which hide the wait
    pair = units(own_tile * ROWS, ROWS)[None, :]
    head, element = pair // half, pair % half
    token = tl.arange(0, TOKENS)[:, None]
    turned = (token < M) & (tile < q_tiles + kv_tiles)
    angle = token * angle_stride + element
    cos_low = tl.load(cos + angle, turned, 1.0).to(tl.float32)
    sin_low = tl.load(sin + angle, turned, 0.0).to(tl.float32)
    cos_high = tl.load(cos + angle + half, turned, 1.0).to(tl.float32)
    sin_high = tl.load(sin + angle + half, turned, 0.0).to(tl.float32)
    now = 0
    if position is not None:
        now = tl.load(position)
    low, high = multiply(
        x, gain, weight, None, row, None, half, held, below, M, eps, K,
        TOKENS, SLICES, STEPS, PARTS, True, True, ".ca", INTERPRETED,
    )  # fmt: skip
    first = low * cos_low - high * sin_low
    last = high * cos_high + low * sin_high
    # q is (M, heads, HEAD_DIM), the cache (M, kv_heads, length, HEAD_DIM)
    depth = tl.where(is_q, 1, length)
    place = (token * own_heads + head).to(tl.int64) * depth
    place += tl.where(is_q, 0, now)
    out = tl.where(is_q, q, tl.where(is_v, values, keys))
    to = out + place * HEAD_DIM + element
    kept = (token < M) & (head < own_heads) & (is_q | (now < length))
    tl.store(to, first.to(q.dtype.element_ty), kept)
    tl.store(to + half, last.to(q.dtype.element_ty), kept)


@triton.jit(do_not_specialize=["heads", "kv_heads", "length", "mask_stride"])
def decode_attend_kernel(
    q, keys, values, position, mask, sums, tops, arrived, out, heads, kv_heads,
    length, mask_stride, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    start_next(DEPENDENT)
    if DEPENDENT:
        ask_block(tile, keys, values, length, HEAD_DIM, BLOCK_KEYS, SPLITS)
    wait_for_previous(DEPENDENT)
    attend_tile(
        tile, q, keys, values, position, sums, tops, arrived, out,
        heads, kv_heads, length, scale, HEAD_DIM, GROUP, BLOCK_KEYS, SPLITS,
        INTERPRETED, mask, mask_stride,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def decode_residual_kernel(
    y, weight, x, out, M, N,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out (M, N) = x (M, N) + y (M, K) @ weight.T; out may be x."""
    start_next(DEPENDENT)
    first = tl.program_id(0) * ROWS
    row = grouped(first, N, ROWS, SLICES, PARTS)
    held, _ = hold(weight, row, None, K, SLICES, STEPS, PARTS, HELD)
    wait_for_previous(DEPENDENT)
    residual_tile(
        first, y, weight, None, held, x, M, N, K, TOKENS, ROWS, SLICES, STEPS,
        PARTS, ".ca", INTERPRETED, out,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def decode_gate_up_kernel(
    x, gain, gate, up, out, M, N, eps,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out (M, N) = silu(norm(x) @ gate.T) * (norm(x) @ up.T)."""
    start_next(DEPENDENT)
    first = tl.program_id(0) * ROWS
    row = grouped(first, N, ROWS, SLICES, PARTS)
    held, below = hold(gate, row, 0, K, SLICES, STEPS, PARTS, HELD, up)
    wait_for_previous(DEPENDENT)
    gate_up_tile(
        first, x, gain, gate, None, held, below, out, M, N, eps, K, TOKENS,
        ROWS, SLICES, STEPS, PARTS, ".ca", INTERPRETED, up,
    )  # fmt: skip
