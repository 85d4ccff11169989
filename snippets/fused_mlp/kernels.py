"""Kernels of a gated MLP that every GPU of NVIDIA runs, in plain Triton, and
what they share with those for Hopper."""

from __future__ import annotations

import triton
import triton.language as tl

NONE, GELU_TANH, GELU, SILU = (tl.constexpr(code) for code in range(4))
ACTIVATIONS = {"none": NONE, "gelu_tanh": GELU_TANH, "gelu": GELU, "silu": SILU}


# --8<-- [start:activation]
@triton.jit
def tanh(z, INTERPRETED: tl.constexpr):
    # one instruction, wrong by 2^-11 at most: less than bf16 rounds away
    if not INTERPRETED:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;",
            "=f,f",
            [z],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return 2 * tl.sigmoid(2 * z) - 1


@triton.jit
def activated(
    z,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """The activation of a float32 block."""
    if ACTIVATION == GELU_TANH:
        half = 0.5 * z
        return half + half * tanh(
            z * (0.7978845608028654 + 0.03567740813636141 * z * z), INTERPRETED
        )
    if ACTIVATION == GELU:
        return 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))
    if ACTIVATION == SILU:
        half = 0.5 * z
        return half + half * tanh(half, INTERPRETED)
    return z


# --8<-- [end:activation]


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
    """out = activation(gate) * up, each of `count` elements: two reads and one
    write, nothing kept."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    g = tl.load(gate + at, there).to(tl.float32)
    u = tl.load(up + at, there).to(tl.float32)
    tl.store(
        out + at,
        (activated(g, ACTIVATION, INTERPRETED) * u).to(out.dtype.element_ty),
        there,
    )


# --8<-- [end:pointwise]


# --8<-- [start:pointwise_backward]
@triton.jit
def gated_activation_backward_kernel(
    d_out,
    gate,
    up,
    d_gate,
    d_up,
    count,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Gradients of `activation(gate) * up` for both: three reads, two
    writes."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    d = tl.load(d_out + at, there).to(tl.float32)
    g = tl.load(gate + at, there).to(tl.float32)
    u = tl.load(up + at, there).to(tl.float32)
    if ACTIVATION == GELU_TANH:
        t = tanh(
            g * (0.7978845608028654 + 0.03567740813636141 * g * g), INTERPRETED
        )
        slope = 0.5 * (1 + t) + 0.5 * g * (1 - t * t) * (
            0.7978845608028654 + 0.10703222440890849 * g * g
        )
    elif ACTIVATION == GELU:
        slope = 0.5 * (
            1 + tl.erf(g * 0.7071067811865476)
        ) + g * 0.3989422804014327 * tl.exp(-0.5 * g * g)
    elif ACTIVATION == SILU:
        s = 0.5 + 0.5 * tanh(0.5 * g, INTERPRETED)
        slope = s * (1 + g * (1 - s))
    else:
        slope = tl.full((BLOCK,), 1.0, tl.float32)
    tl.store(d_gate + at, (d * u * slope).to(d_gate.dtype.element_ty), there)
    tl.store(
        d_up + at,
        (d * activated(g, ACTIVATION, INTERPRETED)).to(d_up.dtype.element_ty),
        there,
    )


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
