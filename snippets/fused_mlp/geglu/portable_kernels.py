"""Kernels of a gated MLP with products, for every NVIDIA GPU since Ampere:
plain Triton that loads by pointers."""

from __future__ import annotations

import triton
import triton.language as tl

from .kernels import activated, tile_at


# --8<-- [start:product]
@triton.jit
def product(
    x, x_at, weight, w_at, acc, K,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """acc + x @ weight.T. `x_at` and `w_at` are offsets of the first BLOCK_K
    columns; the loads of later ones overtake the products."""
    ks = tl.arange(0, BLOCK_K)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a, b = tl.load(x + x_at), tl.load(weight + w_at)
        else:
            there = (ks < K - k)[None, :]
            a = tl.load(x + x_at, there, 0)
            b = tl.load(weight + w_at, there, 0)
        if INTERPRETED:
            a, b = a.to(tl.float32), b.to(tl.float32)
        # all bits of float32 inputs, too: "tf32" would keep eleven
        acc = tl.dot(a, b.T, acc, input_precision="ieee")
        x_at += BLOCK_K
        w_at += BLOCK_K
    return acc


# --8<-- [end:product]


@triton.jit
def store_tile(out, row, col, tile, M, N):
    """Store a tile whose first element is out[row, col], without the part
    beyond out's (M, N)."""
    rows, cols = tl.arange(0, tile.shape[0]), tl.arange(0, tile.shape[1])
    out += row.to(tl.int64) * N + col
    tl.store(
        out + rows[:, None] * N + cols[None, :],
        tile.to(out.dtype.element_ty),
        (rows < M - row)[:, None] & (cols < N - col)[None, :],
    )


# --8<-- [start:gate_up]
@triton.jit(do_not_specialize=["M"])
def portable_gate_up_kernel(
    x, gate, up, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ALIGNED: tl.constexpr, EVEN_K: tl.constexpr,
    ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ gate.T) * (x @ up.T), one tile of (BLOCK_M, BLOCK_N)
    per program. x is (M, K), gate and up are (N, K)."""
    # so the compiler knows that ALIGNED divides both, and loads that many
    # elements by one instruction
    N, K = N // ALIGNED * ALIGNED, K // ALIGNED * ALIGNED
    row, col = tile_at(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    row, col = row * BLOCK_M, col * BLOCK_N
    ks = tl.arange(0, BLOCK_K)
    # beyond the last row the last one again, so loads need no mask
    rows = tl.minimum(tl.arange(0, BLOCK_M), M - 1 - row)
    # gate's above up's, so that one product takes both
    both = tl.arange(0, 2 * BLOCK_N)
    cols = tl.minimum(both % BLOCK_N, N - 1 - col)
    first = col.to(tl.int64) * K
    acc = product(
        x + row.to(tl.int64) * K,
        rows[:, None] * K + ks[None, :],
        tl.where((both < BLOCK_N)[:, None], gate + first, up + first),
        cols[:, None] * K + ks[None, :],
        tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32),
        K, BLOCK_K, EVEN_K, INTERPRETED,
    )  # fmt: skip
    # within a thread's registers, unless the tile is small for its warps
    g, u = tl.split(acc.reshape(BLOCK_M, 2, BLOCK_N).permute(0, 2, 1))
    store_tile(out, row, col, activated(g, ACTIVATION, INTERPRETED) * u, M, N)


# --8<-- [end:gate_up]


@triton.jit(do_not_specialize=["M"])
def portable_linear_kernel(
    x, weight, bias, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ALIGNED: tl.constexpr, EVEN_K: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ weight.T + bias), one tile of (BLOCK_M, BLOCK_N) per
    program."""
    N, K = N // ALIGNED * ALIGNED, K // ALIGNED * ALIGNED
    row, col = tile_at(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    row, col = row * BLOCK_M, col * BLOCK_N
    ks = tl.arange(0, BLOCK_K)
    rows = tl.minimum(tl.arange(0, BLOCK_M), M - 1 - row)
    cols = tl.minimum(tl.arange(0, BLOCK_N), N - 1 - col)
    acc = product(
        x + row.to(tl.int64) * K,
        rows[:, None] * K + ks[None, :],
        weight + col.to(tl.int64) * K,
        cols[:, None] * K + ks[None, :],
        tl.zeros((BLOCK_M, BLOCK_N), tl.float32),
        K, BLOCK_K, EVEN_K, INTERPRETED,
    )  # fmt: skip
    if HAS_BIAS:
        at = col + tl.arange(0, BLOCK_N)
        acc += tl.load(bias + at, at < N, 0).to(tl.float32)[None, :]
    store_tile(out, row, col, activated(acc, ACTIVATION, INTERPRETED), M, N)
