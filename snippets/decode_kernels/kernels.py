"""A decode step of five kernels a layer and one for the head.

Where the GPU can (Hopper and later), a kernel starts before the kernel before
it has ended: it asks for its first weights at once, and waits only then.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .ahead import fetch_ahead
from .attending import attend_tile
from .tiles import (
    gate_up_tile,
    head_tile,
    pair_row,
    qkv_tile,
    residual_tile,
)


@triton.jit
def begin(
    weight, row, rows, K,
    AHEAD: tl.constexpr, THREADS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Let the next kernel start, ask for the first weights, and wait for the
    kernel before."""
    if DEPENDENT:
        gdc_launch_dependents()
        if AHEAD:
            fetch_ahead(weight, row, 0, K, K, rows, AHEAD, THREADS)
        gdc_wait()


@triton.jit
def qkv_kernel(
    x, gain, weight, rotary, position, q, keys, values, M, K, heads, kv_heads,
    length, table_length, eps,
    HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr,
    THREADS: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = pair_row(tile * BLOCK_N + tl.arange(0, BLOCK_N), HEAD_DIM)
    rows = (heads + 2 * kv_heads) * HEAD_DIM
    begin(weight, row, rows, K, AHEAD, THREADS, DEPENDENT)
    qkv_tile(
        tile, x, gain, weight, rotary, position, q, keys, values, M, K, heads,
        kv_heads, length, table_length, eps, HEAD_DIM, TOKENS, BLOCK_N,
        BLOCK_K, STAGES, INTERPRETED,
    )  # fmt: skip


@triton.jit
def attend_kernel(
    q, keys, values, position, sums, tops, arrived, out, heads, kv_heads,
    length, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    attend_tile(
        tl.program_id(0), q, keys, values, position, sums, tops, arrived, out,
        heads, kv_heads, length, scale, HEAD_DIM, GROUP, BLOCK_KEYS, SPLITS,
        INTERPRETED,
    )  # fmt: skip


@triton.jit
def residual_kernel(
    y, weight, x, M, N, K,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, AHEAD: tl.constexpr, THREADS: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    begin(weight, row, N, K, AHEAD, THREADS, DEPENDENT)
    residual_tile(
        tile, y, weight, x, M, N, K, TOKENS, BLOCK_N, BLOCK_K, STAGES,
        INTERPRETED,
    )  # fmt: skip


@triton.jit
def gate_up_kernel(
    x, gain, weight, out, M, N, K, eps,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, AHEAD: tl.constexpr, THREADS: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    begin(weight, row, N, K, AHEAD, THREADS, DEPENDENT)
    gate_up_tile(
        tile, x, gain, weight, out, M, N, K, eps, TOKENS, BLOCK_N, BLOCK_K,
        STAGES, INTERPRETED,
    )  # fmt: skip


@triton.jit
def head_kernel(
    x, gain, weight, best, best_row, arrived, M, N, K, eps, token, logit,
    position, embedding,
    TOKENS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, AHEAD: tl.constexpr, THREADS: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    begin(weight, row, N, K, AHEAD, THREADS, DEPENDENT)
    head_tile(
        tile, tl.num_programs(0), x, gain, weight, best, best_row, arrived, M,
        N, K, eps, token, logit, position, embedding, TOKENS, BLOCK_N, BLOCK_K,
        STAGES, INTERPRETED,
    )  # fmt: skip
