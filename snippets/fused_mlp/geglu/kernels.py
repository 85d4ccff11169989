"""Kernels of a gated MLP for every NVIDIA GPU, in plain Triton, and parts that
they share with the kernels for Hopper."""

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
    # 2^-22 of its result; one below 2^-126 is flushed to zero
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
    """One instruction, with an error of at most 2^-11 of its result. Near -1,
    the sum of its result and 1 has a much larger relative error."""
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
    up, whose memory they may share: three reads, two writes.

    `hidden`, if not None, gets the product itself; it may share the memory of
    d_out.
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
