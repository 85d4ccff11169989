"""A whole decode step as one kernel: as many programs as the GPU runs at once,
and a barrier of all programs where a kernel would end.

At a barrier a program asks for its first weights of the next part before it
waits, so the memory has work while the last programs arrive.
"""

from __future__ import annotations

import triton
import triton.language as tl

from snippets.decode_kernels.attending import attend_tile
from snippets.decode_kernels.products import ask
from snippets.decode_kernels.tiles import (
    gate_up_tile,
    head_tile,
    pair_row,
    qkv_tile,
    residual_tile,
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


@triton.jit(
    do_not_specialize=[
        "M", "layers", "heads", "kv_heads", "length", "table_length"
    ]
)  # fmt: skip
def step_kernel(
    table, x, q, attended, hidden, rotary, position, sums, tops, arrived, norm,
    head, head_scale, embedding, best, best_row, token, logit, M, K, H, N,
    layers, heads, kv_heads, length, table_length, eps, scale,
    HEAD_DIM: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr,
    QKV_N: tl.constexpr, OUT_N: tl.constexpr, UP_N: tl.constexpr,
    DOWN_N: tl.constexpr, HEAD_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, PARTS: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr, AHEAD: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """`table` (layers, 12) holds the addresses of a layer's tensors: norm, qkv,
    out, norm, gate and up, down, keys, values, and the scales of the four
    weights. arrived: (2 + M * kv_heads,), of barriers, of the head's tiles, and
    of attention's splits; all zero before and after."""
    me, programs = tl.program_id(0), tl.num_programs(0)
    rows = (heads + 2 * kv_heads) * HEAD_DIM
    passed = 0
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
        for tile in range(me, tl.cdiv(rows // 2, QKV_N), programs):
            qkv_tile(
                tile, x, gain, qkv, qkv_scale, rotary, position, q, keys,
                values, M, K, heads, kv_heads, length, table_length, eps,
                HEAD_DIM, TOKENS, QKV_N, BLOCK_K, STAGES, PARTS, INTERPRETED,
            )  # fmt: skip
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        for tile in range(me, M * kv_heads * SPLITS, programs):
            attend_tile(
                tile, q, keys, values, position, sums, tops, arrived + 2,
                attended, heads, kv_heads, length, scale, HEAD_DIM, GROUP,
                BLOCK_KEYS, SPLITS, INTERPRETED,
            )  # fmt: skip
        row_out = me * OUT_N + tl.arange(0, OUT_N)
        ask(out, row_out, None, K, heads * HEAD_DIM, AHEAD)
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        # --8<-- [start:part]
        for tile in range(me, tl.cdiv(K, OUT_N), programs):
            residual_tile(
                tile, attended, out, out_scale, x, M, K, heads * HEAD_DIM,
                TOKENS, OUT_N, BLOCK_K, STAGES, PARTS, INTERPRETED,
            )  # fmt: skip
        row_up = me * UP_N + tl.arange(0, UP_N)
        ask(gate_up, row_up, H, H, K, AHEAD)
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        # --8<-- [end:part]
        for tile in range(me, tl.cdiv(H, UP_N), programs):
            gate_up_tile(
                tile, x, gain_2, gate_up, gate_up_scale, hidden, M, H, K, eps,
                TOKENS, UP_N, BLOCK_K, STAGES, PARTS, INTERPRETED,
            )  # fmt: skip
        row_down = me * DOWN_N + tl.arange(0, DOWN_N)
        ask(down, row_down, None, K, H, AHEAD)
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
        for tile in range(me, tl.cdiv(K, DOWN_N), programs):
            residual_tile(
                tile, hidden, down, down_scale, x, M, K, H, TOKENS, DOWN_N,
                BLOCK_K, STAGES, PARTS, INTERPRETED,
            )  # fmt: skip
        if layer + 1 < layers:
            following = address(entry, 13, head)
            pair = pair_row(me * QKV_N + tl.arange(0, QKV_N), HEAD_DIM)
            ask(following, pair, HEAD_DIM // 2, rows, K, AHEAD)
        else:
            word = me * HEAD_N + tl.arange(0, HEAD_N)
            ask(head, word, None, N, K, AHEAD)
        passed += programs
        arrive_and_wait(arrived, passed, INTERPRETED)
    tiles = tl.cdiv(N, HEAD_N)
    for tile in range(me, tiles, programs):
        head_tile(
            tile, tiles, x, norm, head, head_scale, best, best_row, arrived + 1,
            M, N, K, eps, token, logit, position, embedding, TOKENS, HEAD_N,
            BLOCK_K, STAGES, PARTS, INTERPRETED,
        )  # fmt: skip
    # the last program to end counts from zero again, for the next step
    if tl.atomic_add(arrived, 1) == passed + programs - 1:
        tl.atomic_xchg(arrived, 0)
