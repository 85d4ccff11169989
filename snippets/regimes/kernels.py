"""A Linear layer and its GELU as one Triton kernel, with tiles of any size.

M is the number of tokens, K the size of the input, N that of the output.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


# --8<-- [start:linear_gelu]
@triton.jit(do_not_specialize=["M"])
def linear_gelu_kernel(
    x, weight, bias, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """One (BLOCK_M, BLOCK_N) tile of gelu(x @ weight.T + bias)."""
    row, col = tile_at(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = (row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (col * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = k + ks[None, :]
        top = k + ks[:, None]
        a = tl.load(x + rows * K + left, (rows < M) & (left < K), 0.0)
        b = tl.load(weight + cols * K + top, (cols < N) & (top < K), 0.0)
        acc = tl.dot(a, b, acc)
    acc += tl.load(bias + cols, cols < N, 0.0).to(tl.float32)
    # still in registers: the product makes no trip to memory
    result = gelu(acc).to(out.dtype.element_ty)
    tl.store(out + rows * N + cols, result, (rows < M) & (cols < N))


@triton.jit
def gelu(z):
    """The tanh form: 0.5 z (1 + tanh(u)) is z times the sigmoid of 2 u."""
    return z * tl.sigmoid(1.5957691216057308 * z * (1 + 0.044715 * z * z))


# --8<-- [end:linear_gelu]


@triton.jit
def tile_at(
    program, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Row and column of a program's tile: GROUP tiles down, then the next
    column, so that programs which run together share operands in L2."""
    tiles_down, tiles_across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = program // (GROUP * tiles_across) * GROUP
    height = tl.minimum(tiles_down - first, GROUP)
    inside = program % (GROUP * tiles_across)
    return first + inside % height, inside // height


@dataclass(frozen=True)
class Tiles:
    """How the work is cut: a program's tile, warps and pipeline stages."""

    block_m: int
    block_n: int
    block_k: int = 64
    warps: int = 4
    stages: int = 3


def tiles_for(tokens: int) -> Tiles:
    """Tiles that keep a GPU with about 130 multiprocessors busy at a width of
    4096: narrow for few tokens, which makes enough tiles."""
    if tokens <= 64:
        rows = max(16, triton.next_power_of_2(tokens))
        return Tiles(rows, 32, block_k=128, stages=4)
    if tokens <= 512:
        return Tiles(64, 64, stages=4)
    if tokens <= 2048:
        return Tiles(128, 128, warps=8, stages=4)
    return Tiles(128, 256, warps=8)


def linear_gelu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    tiles: Tiles | None = None,
) -> torch.Tensor:
    """gelu(x @ weight.t() + bias) in the tanh form, as one kernel.

    x is (M, K), weight (N, K), bias (N,), all contiguous and of one dtype, as
    is the result (M, N). Sums are float32. Raises `ValueError` for other
    shapes.
    """
    (m, k), (n, _) = x.shape, weight.shape
    if weight.shape != (n, k) or bias.shape != (n,):
        raise ValueError(
            f"x {tuple(x.shape)}, weight {tuple(weight.shape)} and bias "
            f"{tuple(bias.shape)} do not fit"
        )
    if not (x.is_contiguous() and weight.is_contiguous()):
        raise ValueError("x and weight must be contiguous")
    tiles = tiles or tiles_for(m)
    out = x.new_empty(m, n)
    programs = triton.cdiv(m, tiles.block_m) * triton.cdiv(n, tiles.block_n)
    linear_gelu_kernel[(programs,)](
        x, weight, bias, out, m, n, k,
        tiles.block_m, tiles.block_n, tiles.block_k, GROUP=8,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out
