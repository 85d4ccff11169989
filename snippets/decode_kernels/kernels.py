"""A decode step of five kernels a layer and one for the head.

Where the GPU can (Hopper and later), a kernel starts before the kernel before
it has ended: it asks for its first weights at once, and waits only then.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .attending import ask_block, attend_tile
from .products import ask
from .tiles import (
    gate_up_tile,
    head_tile,
    pair_row,
    qkv_tile,
    residual_tile,
)


# --8<-- [start:begin]
@triton.jit
def begin(
    weight, row, second, rows, K,
    AHEAD: tl.constexpr, DEPENDENT: tl.constexpr,
    other_weight=None,
):  # fmt: skip
    """Let the next kernel start, ask for the first weights, and wait for the
    kernel before."""
    if DEPENDENT:
        gdc_launch_dependents()
        ask(weight, row, second, rows, K, AHEAD, other_weight)
        gdc_wait()


# --8<-- [end:begin]
@triton.jit(
    do_not_specialize=["M", "heads", "kv_heads", "length", "table_length"]
)
def qkv_kernel(
    x, gain, weight, scale, rotary, position, q, keys, values, M, K, heads,
    kv_heads, length, table_length, eps,
    HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr,
    AHEAD: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = pair_row(tile * BLOCK_N + tl.arange(0, BLOCK_N), HEAD_DIM)
    rows = (heads + 2 * kv_heads) * HEAD_DIM
    half: tl.constexpr = HEAD_DIM // 2
    begin(weight, row, half, rows, K, AHEAD, DEPENDENT)
    qkv_tile(
        tile, x, gain, weight, scale, rotary, position, q, keys, values, M, K,
        heads, kv_heads, length, table_length, eps, HEAD_DIM, TOKENS, BLOCK_N,
        BLOCK_K, STAGES, PARTS, INTERPRETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["heads", "kv_heads", "length"])
def attend_kernel(
    q, keys, values, position, sums, tops, arrived, out, heads, kv_heads,
    length, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    if DEPENDENT:
        gdc_launch_dependents()
        ask_block(tile, keys, values, length, HEAD_DIM, BLOCK_KEYS, SPLITS)
        gdc_wait()
    attend_tile(
        tile, q, keys, values, position, sums, tops, arrived, out,
        heads, kv_heads, length, scale, HEAD_DIM, GROUP, BLOCK_KEYS, SPLITS,
        INTERPRETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def residual_kernel(
    y, weight, scale, x, M, N, K,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    begin(weight, row, None, N, K, AHEAD, DEPENDENT)
    residual_tile(
        tile, y, weight, scale, x, M, N, K, TOKENS, BLOCK_N, BLOCK_K, STAGES,
        PARTS, INTERPRETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def gate_up_kernel(
    x, gain, weight, scale, out, M, N, K, eps,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    begin(weight, row, N, N, K, AHEAD, DEPENDENT)
    gate_up_tile(
        tile, x, gain, weight, scale, out, M, N, K, eps, TOKENS, BLOCK_N,
        BLOCK_K, STAGES, PARTS, INTERPRETED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def head_kernel(
    x, gain, weight, scale, best, best_row, arrived, M, N, K, eps, token, logit,
    position, embedding,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, AHEAD: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    begin(weight, row, None, N, K, AHEAD, DEPENDENT)
    head_tile(
        tile, tl.num_programs(0), x, gain, weight, scale, best, best_row,
        arrived, M, N, K, eps, token, logit, position, embedding, TOKENS,
        BLOCK_N, BLOCK_K, STAGES, PARTS, INTERPRETED,
    )  # fmt: skip
