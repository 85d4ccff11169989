"""A decode step of five kernels a layer and one for the head.

Where the GPU can (Hopper and later), a kernel starts before the kernel before
it has ended: it loads its first weights at once, and waits only then.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .attending import ask_block, attend_tile
from .products import grouped, hold, units
from .tiles import (
    gate_up_tile,
    head_part,
    pair_row,
    qkv_tile,
    residual_tile,
    turn_of,
)


@triton.jit
def start_next(DEPENDENT: tl.constexpr):
    """Let the next kernel start."""
    if DEPENDENT:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(DEPENDENT: tl.constexpr):
    """Wait until the kernel before has ended, and its results can be read."""
    if DEPENDENT:
        gdc_wait()


@triton.jit(
    do_not_specialize=["M", "heads", "kv_heads", "length", "table_length"]
)
def decode_qkv_kernel(
    x, gain, weight, scale, rotary, position, q, keys, values, M, heads,
    kv_heads, length, table_length, eps,
    K: tl.constexpr, HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, SLICES: tl.constexpr, STEPS: tl.constexpr,
    PARTS: tl.constexpr, HELD: tl.constexpr, INTERPRETED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    half: tl.constexpr = HEAD_DIM // 2
    first = tl.program_id(0) * ROWS
    pair = grouped(first, (heads + 2 * kv_heads) * half, ROWS, SLICES, PARTS)
    row = pair_row(pair, HEAD_DIM)
    held, below = hold(weight, row, half, K, SLICES, STEPS, PARTS, HELD)
    now, cos, sin = turn_of(
        units(first, ROWS), rotary, position, heads + kv_heads, table_length,
        HEAD_DIM,
    )  # fmt: skip
    wait_for_previous(DEPENDENT)
    qkv_tile(
        first, now, cos, sin, x, gain, weight, scale, held, below, q, keys,
        values, M, heads, kv_heads, length, eps, K, HEAD_DIM, TOKENS, ROWS,
        SLICES, STEPS, PARTS, ".ca", INTERPRETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["heads", "kv_heads", "length"])
def decode_attend_kernel(
    q, keys, values, position, sums, tops, arrived, out, heads, kv_heads,
    length, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    start_next(DEPENDENT)
    if DEPENDENT:
        ask_block(tile, keys, values, length, HEAD_DIM, BLOCK_KEYS, SPLITS)
    wait_for_previous(DEPENDENT)
    attend_tile(
        tile, q, keys, values, position, sums, tops, arrived, out,
        heads, kv_heads, length, scale, HEAD_DIM, GROUP, BLOCK_KEYS, SPLITS,
        INTERPRETED,
    )  # fmt: skip


# --8<-- [start:early]
@triton.jit(do_not_specialize=["M"])
def decode_residual_kernel(
    y, weight, scale, x, M, N,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    first = tl.program_id(0) * ROWS
    row = grouped(first, N, ROWS, SLICES, PARTS)
    held, _ = hold(weight, row, None, K, SLICES, STEPS, PARTS, HELD)
    wait_for_previous(DEPENDENT)
    residual_tile(
        first, y, weight, scale, held, x, M, N, K, TOKENS, ROWS, SLICES, STEPS,
        PARTS, ".ca", INTERPRETED,
    )  # fmt: skip


# --8<-- [end:early]
@triton.jit(do_not_specialize=["M"])
def decode_gate_up_kernel(
    x, gain, weight, scale, out, M, N, eps,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    first = tl.program_id(0) * ROWS
    row = grouped(first, N, ROWS, SLICES, PARTS)
    held, below = hold(weight, row, N, K, SLICES, STEPS, PARTS, HELD)
    wait_for_previous(DEPENDENT)
    gate_up_tile(
        first, x, gain, weight, scale, held, below, out, M, N, eps, K, TOKENS,
        ROWS, SLICES, STEPS, PARTS, ".ca", INTERPRETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def decode_head_kernel(
    x, gain, weight, scale, best, best_row, arrived, M, N, eps, token, logit,
    position, embedding,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    row = grouped(tl.program_id(0) * ROWS, N, ROWS, SLICES, PARTS)
    held, _ = hold(weight, row, None, K, SLICES, STEPS, PARTS, HELD)
    wait_for_previous(DEPENDENT)
    head_part(
        x, gain, weight, scale, held, best, best_row, arrived, M, N, eps, token,
        logit, position, embedding, K, TOKENS, ROWS, SLICES, STEPS, PARTS, HELD,
        ".ca", INTERPRETED,
    )  # fmt: skip
