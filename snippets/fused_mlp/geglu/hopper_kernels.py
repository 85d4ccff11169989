"""Kernels of a gated MLP that need Hopper, because its copy engine loads the
blocks. The fastest is in `pingpong_kernels`.

M is the number of tokens, K the size of the input, N the size of the output.
Products are accumulated in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .kernels import activated, tile_at


# --8<-- [start:linear]
# without do_not_specialize, a number of tokens that 16 does not divide would
# compile it again
@triton.jit(do_not_specialize=["M"])
def linear_kernel(
    x_desc, weight_desc, bias,
    out_desc, M, N, K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ weight.T + bias), one tile of (BLOCK_M, BLOCK_N) per
    program."""
    # launched early: the kernel before may still be writing x
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row, col = tile_at(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        x = x_desc.load([row * BLOCK_M, k])
        w = weight_desc.load([col * BLOCK_N, k])
        if INTERPRETED:  # there bf16 products are wrong
            x, w = x.to(tl.float32), w.to(tl.float32)
        acc = tl.dot(x, w.T, acc)
    if HAS_BIAS:
        cols = col * BLOCK_N + tl.arange(0, BLOCK_N)
        acc += tl.load(bias + cols, cols < N).to(tl.float32)[None, :]
    # still in registers: the product makes no trip to memory
    out = activated(acc, ACTIVATION, INTERPRETED)
    out_desc.store([row * BLOCK_M, col * BLOCK_N], out.to(out_desc.dtype))


# --8<-- [end:linear]


# --8<-- [start:gate_up]
@triton.jit(do_not_specialize=["M"])
def gate_up_kernel(
    x_desc, weights_desc,
    out_desc, M, N, K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ gate.T) * (x @ up.T) with both weights in one tensor
    (2, N, K); persistent programs."""
    rows, cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(
        tl.program_id(0), rows * cols, tl.num_programs(0), flatten=True
    ):
        row, col = tile_at(tile, rows, cols, GROUP)
        acc = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            x = x_desc.load([row * BLOCK_M, k * BLOCK_K])
            # gate's above up's
            w = weights_desc.load([0, col * BLOCK_N, k * BLOCK_K]).reshape(
                2 * BLOCK_N, BLOCK_K
            )
            if INTERPRETED:
                x, w = x.to(tl.float32), w.to(tl.float32)
            # one product twice as wide instead of two
            acc = tl.dot(x, w.T, acc)
        # within each thread's registers
        gate, up = tl.split(acc.reshape(BLOCK_M, 2, BLOCK_N).permute(0, 2, 1))
        out = activated(gate, ACTIVATION, INTERPRETED) * up
        out_desc.store([row * BLOCK_M, col * BLOCK_N], out.to(out_desc.dtype))


# --8<-- [end:gate_up]
