"""Kernels of a gated MLP that every GPU of NVIDIA runs, in plain Triton, and
what they share with those for Hopper."""

from __future__ import annotations

import triton
import triton.language as tl

NONE, GELU_TANH, GELU, SILU, RELU, ROUGH_GELU_TANH, ROUGH_SILU = (
    tl.constexpr(code) for code in range(7)
)
ACTIVATIONS = {
    "none": NONE,
    "gelu_tanh": GELU_TANH,
    "gelu": GELU,
    "silu": SILU,
    "relu": RELU,
    # half the special instructions, and few right digits for z below -1
    "rough_gelu_tanh": ROUGH_GELU_TANH,
    "rough_silu": ROUGH_SILU,
}


# --8<-- [start:activation]
@triton.jit
def sigmoid(z, INTERPRETED: tl.constexpr):
    # two instructions of the special function unit, 2 ** and 1 /, each right to
    # 2^-22 of its result, however small that is
    if INTERPRETED:
        return 1 / (1 + tl.exp2(-1.4426950408889634 * z))
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1; add.ftz.f32 $0, $0, 1.0; "
        "rcp.approx.ftz.f32 $0, $0;",
        "=f,f",
        [-1.4426950408889634 * z],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def activated(
    z,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """The activation of a float32 block."""
    # 0.5 z (1 + tanh(y)) is z sigmoid(2 y), where nothing cancels
    if ACTIVATION == GELU_TANH:
        return z * sigmoid(
            z * (1.5957691216057308 + 0.07135481627260025 * z * z), INTERPRETED
        )
    if ACTIVATION == SILU:
        return z * sigmoid(z, INTERPRETED)
    if ACTIVATION == GELU:
        return 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))
    if ACTIVATION == RELU:
        return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if ACTIVATION == ROUGH_GELU_TANH:
        half = 0.5 * z
        return half + half * rough_tanh(
            z * (0.7978845608028654 + 0.03567740813630012 * z * z), INTERPRETED
        )
    if ACTIVATION == ROUGH_SILU:
        half = 0.5 * z
        return half + half * rough_tanh(half, INTERPRETED)
    return z


# --8<-- [end:activation]


@triton.jit
def rough_tanh(z, INTERPRETED: tl.constexpr):
    """One instruction, wrong by 2^-11 of its result at most: of one that is
    nearly -1, the sum with 1 is wrong by far more."""
    if INTERPRETED:
        return 2 / (1 + tl.exp2(-2.8853900817779268 * z)) - 1
    return tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;",
        "=f,f",
        [z],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


# --8<-- [start:pointwise]
@triton.jit
def gated_activation_kernel(
    gate,
    up,
    out,
    count,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """out = activation(gate) * up, in rows of `count` elements: two reads and
    one write, nothing kept.

    With several rows, gate and up are halves of one matrix (rows, 2 * count).
    """
    blocks = tl.cdiv(count, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64) * count
    at = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    at += row
    g = tl.load(gate + row + at, there).to(tl.float32)
    u = tl.load(up + row + at, there).to(tl.float32)
    tl.store(
        out + at,
        (activated(g, ACTIVATION, INTERPRETED) * u).to(out.dtype.element_ty),
        there,
    )


# --8<-- [end:pointwise]


# --8<-- [start:pointwise_backward]
@triton.jit
def with_slope(
    z,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """The activation of a float32 block, and its derivative."""
    if ACTIVATION == GELU_TANH or ACTIVATION == ROUGH_GELU_TANH:
        s = sigmoid(
            z * (1.5957691216057308 + 0.07135481627260025 * z * z), INTERPRETED
        )
        return z * s, s + z * s * (1 - s) * (
            1.5957691216057308 + 0.21406444881780076 * z * z
        )
    if ACTIVATION == SILU or ACTIVATION == ROUGH_SILU:
        s = sigmoid(z, INTERPRETED)
        return z * s, s + z * s * (1 - s)
    if ACTIVATION == GELU:
        half = 0.5 * (1 + tl.erf(z * 0.7071067811865476))
        return z * half, half + z * 0.3989422804014327 * tl.exp(-0.5 * z * z)
    if ACTIVATION == RELU:
        return activated(z, RELU, INTERPRETED), tl.where(z > 0, 1.0, 0.0)
    # of z's layout, which tl.full does not know in Gluon
    return z, tl.where(z > 0, 1.0, 1.0)


@triton.jit
def gated_activation_backward_kernel(
    d_out,
    gate,
    up,
    d_gate,
    d_up,
    hidden,
    count,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Gradients of `activation(gate) * up` for both, in the layout of gate and
    up, where they may lie: three reads, two writes.

    `hidden`, where it is not None, gets the product itself; d_out may lie
    there.
    """
    blocks = tl.cdiv(count, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64) * count
    at = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    at += row
    d = tl.load(d_out + at, there).to(tl.float32)
    g = tl.load(gate + row + at, there).to(tl.float32)
    u = tl.load(up + row + at, there).to(tl.float32)
    value, slope = with_slope(g, ACTIVATION, INTERPRETED)
    d_g, d_u = (d * u * slope).to(d_gate.dtype.element_ty), d * value
    tl.store(d_gate + row + at, d_g, there)
    tl.store(d_up + row + at, d_u.to(d_up.dtype.element_ty), there)
    if hidden is not None:
        tl.store(hidden + at, (value * u).to(hidden.dtype.element_ty), there)


# --8<-- [end:pointwise_backward]


# --8<-- [start:order]
@triton.jit
def tile_at(tile, rows, cols, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP tiles down a column, then the next
    column, so that neighbors share operands."""
    first = tile // (GROUP * cols) * GROUP
    height = tl.minimum(rows - first, GROUP)
    inside = tile % (GROUP * cols)
    return first + inside % height, inside // height


# --8<-- [end:order]


# --8<-- [start:portable]
@triton.jit
def product(
    x, x_at, weight, w_at, acc, K,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """acc + x @ weight.T. `x_at` and `w_at` are where the first BLOCK_K columns
    lie; the loads of later ones overtake the products."""
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
        # of float32, too, all bits: "tf32" would keep eleven
        acc = tl.dot(a, b.T, acc, input_precision="ieee")
        x_at += BLOCK_K
        w_at += BLOCK_K
    return acc


@triton.jit
def store_tile(out, row, col, tile, M, N):
    """A tile whose first element is out[row, col], without what lies beyond
    out's (M, N)."""
    rows, cols = tl.arange(0, tile.shape[0]), tl.arange(0, tile.shape[1])
    out += row.to(tl.int64) * N + col
    tl.store(
        out + rows[:, None] * N + cols[None, :],
        tile.to(out.dtype.element_ty),
        (rows < M - row)[:, None] & (cols < N - col)[None, :],
    )


@triton.jit(do_not_specialize=["M"])
def portable_gate_up_kernel(
    x, gate, up, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ALIGNED: tl.constexpr, EVEN_K: tl.constexpr,
    ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ gate.T) * (x @ up.T), one tile of (BLOCK_M, BLOCK_N)
    per program. x is (M, K), gate and up are (N, K)."""
    # a number of elements that divides both is loaded at once
    N, K = N // ALIGNED * ALIGNED, K // ALIGNED * ALIGNED
    row, col = tile_at(
        tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP
    )
    row, col = row * BLOCK_M, col * BLOCK_N
    ks = tl.arange(0, BLOCK_K)
    # beyond the last row the last one again: loads without a mask
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
    # within each thread's registers
    g, u = tl.split(acc.reshape(BLOCK_M, 2, BLOCK_N).permute(0, 2, 1))
    store_tile(out, row, col, activated(g, ACTIVATION, INTERPRETED) * u, M, N)


# --8<-- [end:portable]


@triton.jit(do_not_specialize=["M"])
def portable_linear_kernel(
    x, weight, bias, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, ALIGNED: tl.constexpr, EVEN_K: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ weight.T + bias), as above."""
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
