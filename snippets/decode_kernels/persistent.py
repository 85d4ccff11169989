"""A whole decode step as one kernel: as many programs as the GPU runs at once,
and a barrier of all programs where a kernel would end.

A program starts loading the weights of its next tile before it computes a tile,
and before it waits at a barrier. So the memory has work while programs compute,
and while the last programs arrive.
"""

from __future__ import annotations

import triton
import triton.language as tl

from snippets.decode_kernels.attending import attend_tile
from snippets.decode_kernels.products import grouped, hold, units
from snippets.decode_kernels.tiles import (
    gate_up_tile,
    head_part,
    pair_row,
    qkv_tile,
    residual_tile,
    turn_of,
)


# --8<-- [start:barrier]
@triton.jit
def arrive_and_wait(arrived, target, INTERPRETED: tl.constexpr):
    """Return when `target` arrivals have been counted: all programs have
    written what the next part reads.

    One thread of each program asks whether the last program has arrived. It
    asks by loads: atomic additions of 0, or loads of all threads, would queue
    with the arrivals for which they wait.
    """
    tl.debug_barrier()  # of this program's threads
    tl.atomic_add(arrived, 1)
    if not INTERPRETED:  # where one program runs alone
        tl.inline_asm_elementwise(
            """{
            .reg .pred p;
            .reg .s32 seen;
            mov.u32 seen, %tid.x;
            setp.ne.s32 p, seen, 0;
            @p bra done;
            again:
            ld.acquire.gpu.global.s32 seen, [$1];
            setp.lt.s32 p, seen, $2;
            @p bra again;
            done:
            mov.b32 $0, 0;
            }""",
            "=r,l,r",
            [arrived, target],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    tl.debug_barrier()


# --8<-- [end:barrier]
@triton.jit
def address(table, index, like):
    """The tensor at a place of the table of addresses; its type is that of
    `like`."""
    where = tl.load(table + index).to(like.dtype)
    return tl.multiple_of(where, 16)


# --8<-- [start:part]
@triton.jit
def residual_part(
    y, weight, scale, held, x, M, N,
    K: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr,
    SLICES: tl.constexpr, STEPS: tl.constexpr, PARTS: tl.constexpr,
    HELD: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """x (M, N) += y (M, K) @ weight.T: a program computes every so many tiles
    of ROWS columns, and holds the weights of its first tile already."""
    programs = tl.num_programs(0)
    me, tiles = tl.program_id(0), tl.cdiv(N, ROWS)
    for tile in tl.range(me, tiles, programs, num_stages=1):
        next_row = grouped((tile + programs) * ROWS, N, ROWS, SLICES, PARTS)
        following, _ = hold(
            weight, next_row, None, K, SLICES, STEPS, PARTS, HELD
        )
        residual_tile(
            tile * ROWS, y, weight, scale, held, x, M, N, K, TOKENS, ROWS,
            SLICES, STEPS, PARTS, ".cg", INTERPRETED,
        )  # fmt: skip
        held = following


# --8<-- [end:part]
@triton.jit(
    do_not_specialize=[
        "M", "layers", "heads", "kv_heads", "length", "table_length"
    ]
)  # fmt: skip
def decode_step_kernel(
    table, x, q, attended, hidden, rotary, position, sums, tops, arrived, norm,
    head, head_scale, embedding, best, best_row, token, logit, M, N, layers,
    heads, kv_heads, length, table_length, eps, scale,
    K: tl.constexpr, H: tl.constexpr, HEAD_DIM: tl.constexpr,
    GROUP: tl.constexpr, TOKENS: tl.constexpr, QKV: tl.constexpr,
    OUT: tl.constexpr, UP: tl.constexpr, DOWN: tl.constexpr,
    HEAD: tl.constexpr, SLICES: tl.constexpr, STEPS: tl.constexpr,
    PARTS: tl.constexpr, HELD: tl.constexpr, HELD_DOWN: tl.constexpr,
    BLOCK_KEYS: tl.constexpr, SPLITS: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """`table` (layers, 12) holds the addresses of a layer's tensors: norm, qkv,
    out, norm, gate and up, down, keys, values, and the scales of the four
    weights. arrived: (2 + M * kv_heads,), of barriers, of the head's tiles, and
    of attention's splits; all zero before and after."""
    me, programs = tl.program_id(0), tl.num_programs(0)
    half: tl.constexpr = HEAD_DIM // 2
    pairs = (heads + 2 * kv_heads) * half
    # the rows of the first tile of each part
    my_row = pair_row(grouped(me * QKV, pairs, QKV, SLICES, PARTS), HEAD_DIM)
    my_out = grouped(me * OUT, K, OUT, SLICES, PARTS)
    my_down = grouped(me * DOWN, K, DOWN, SLICES, PARTS)
    my_up = grouped(me * UP, H, UP, SLICES, PARTS)
    my_word = grouped(me * HEAD, N, HEAD, SLICES, PARTS)
    passed = 0
    held, below = hold(
        address(table, 1, head), my_row, half, K, SLICES, STEPS, PARTS, HELD
    )
    for layer in range(layers):
        entry = table + layer * 12
        gain, qkv = address(entry, 0, x), address(entry, 1, head)
        out, gain_2 = address(entry, 2, head), address(entry, 3, x)
        gate_up, down = address(entry, 4, head), address(entry, 5, head)
        keys, values = address(entry, 6, x), address(entry, 7, x)
        qkv_scale, out_scale = head_scale, head_scale
        gate_up_scale, down_scale = head_scale, head_scale
        if head_scale is not None:
            qkv_scale = address(entry, 8, head_scale)
            out_scale = address(entry, 9, head_scale)
            gate_up_scale = address(entry, 10, head_scale)
            down_scale = address(entry, 11, head_scale)
        tiles = tl.cdiv(pairs, QKV)
        for tile in tl.range(me, tiles, programs, num_stages=1):
            first = tile * QKV
            next_pair = grouped(
                first + programs * QKV, pairs, QKV, SLICES, PARTS
            )
            following, following_below = hold(
                qkv, pair_row(next_pair, HEAD_DIM), half, K, SLICES, STEPS,
                PARTS, HELD,
            )  # fmt: skip
            now, cos, sin = turn_of(
                units(first, QKV), rotary, position, heads + kv_heads,
                table_length, HEAD_DIM,
            )  # fmt: skip
            qkv_tile(
                first, now, cos, sin, x, gain, qkv, qkv_scale, held, below, q,
                keys, values, M, heads, kv_heads, length, eps, K, HEAD_DIM,
                TOKENS, QKV, SLICES, STEPS, PARTS, ".cg", INTERPRETED,
            )  # fmt: skip
            held, below = following, following_below
        held_out, _ = hold(out, my_out, None, K, SLICES, STEPS, PARTS, HELD)
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        for tile in range(me, M * kv_heads * SPLITS, programs):
            attend_tile(
                tile, q, keys, values, position, sums, tops, arrived + 2,
                attended, heads, kv_heads, length, scale, HEAD_DIM, GROUP,
                BLOCK_KEYS, SPLITS, INTERPRETED,
            )  # fmt: skip
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        residual_part(
            attended, out, out_scale, held_out, x, M, K, K, TOKENS, OUT,
            SLICES, STEPS, PARTS, HELD, INTERPRETED,
        )  # fmt: skip
        held_up, below_up = hold(
            gate_up, my_up, H, K, SLICES, STEPS, PARTS, HELD
        )
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        tiles = tl.cdiv(H, UP)
        for tile in tl.range(me, tiles, programs, num_stages=1):
            next_row = grouped((tile + programs) * UP, H, UP, SLICES, PARTS)
            following, following_below = hold(
                gate_up, next_row, H, K, SLICES, STEPS, PARTS, HELD
            )
            gate_up_tile(
                tile * UP, x, gain_2, gate_up, gate_up_scale, held_up,
                below_up, hidden, M, H, eps, K, TOKENS, UP, SLICES, STEPS,
                PARTS, ".cg", INTERPRETED,
            )  # fmt: skip
            held_up, below_up = following, following_below
        held_down, _ = hold(
            down, my_down, None, H, SLICES, STEPS, PARTS, HELD_DOWN
        )
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        residual_part(
            hidden, down, down_scale, held_down, x, M, K, H, TOKENS, DOWN,
            SLICES, STEPS, PARTS, HELD_DOWN, INTERPRETED,
        )  # fmt: skip
        # of the next layer; behind the last one the first layer's, unused
        held, below = hold(
            address(entry, tl.where(layer + 1 < layers, 13, 1), head), my_row,
            half, K, SLICES, STEPS, PARTS, HELD,
        )  # fmt: skip
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
    held_words, _ = hold(head, my_word, None, K, SLICES, STEPS, PARTS, HELD)
    head_part(
        x, norm, head, head_scale, held_words, best, best_row, arrived + 1, M,
        N, eps, token, logit, position, embedding, K, TOKENS, HEAD, SLICES,
        STEPS, PARTS, HELD, ".cg", INTERPRETED,
    )  # fmt: skip
    # the last program to end counts from zero again, for the next step
    if tl.atomic_add(arrived, 1) == passed + programs - 1:
        tl.atomic_xchg(arrived, 0)
