"""The ping-pong kernel, in Triton's explicit dialect, Gluon: one warp loads
blocks, and two groups of warps take turns to multiply and to finish.

M is the number of tokens, K the size of the input, N the size of the output.
Products are accumulated in float32.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .kernels import activated, tile_at

# The copy engine's two calls, renamed after Triton 3.6.
async_load = (
    tma.async_load
    if hasattr(tma, "async_load")
    else tma.async_copy_global_to_shared
)
async_store = (
    tma.async_store
    if hasattr(tma, "async_store")
    else tma.async_copy_shared_to_global
)


# --8<-- [start:producer]
@gluon.jit
def load_tiles(
    x_desc, gate_desc, up_desc, x_slots, w_slots, full, empty, rows, cols, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    SLOTS: gl.constexpr, GROUP: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """The producer, one warp: keeps a ring of slots filled with blocks of x and
    of the weights, in tile order."""
    slot_bytes: gl.constexpr = (
        x_desc.block_type.nbytes
        + (2 if GATED else 1) * gate_desc.block_type.nbytes
    )
    slot = 0
    phase = 1
    gdc_wait()  # the kernel before this one may still be writing x
    for tile in range(gl.program_id(0), rows * cols, gl.num_programs(0)):
        row, col = tile_at(tile, rows, cols, GROUP)
        for k in range(0, K, BLOCK_K):
            mbarrier.wait(empty.index(slot), phase)
            arrived = full.index(slot)
            w = w_slots.index(slot)
            mbarrier.expect(arrived, slot_bytes)
            async_load(x_desc, [row * BLOCK_M, k], arrived, x_slots.index(slot))
            if GATED:  # gate's rows above up's, so that one product takes both
                async_load(
                    gate_desc, [col * BLOCK_N, k], arrived, w.slice(0, BLOCK_N)
                )
                async_load(
                    up_desc,
                    [col * BLOCK_N, k],
                    arrived,
                    w.slice(BLOCK_N, BLOCK_N),
                )
            else:
                async_load(gate_desc, [col * BLOCK_N, k], arrived, w)
            slot += 1
            if slot == SLOTS:
                slot = 0
                phase ^= 1


# --8<-- [end:producer]


# --8<-- [start:consumer]
@gluon.jit
def multiply_tiles(
    bias, out_desc, saved_gate_desc, saved_up_desc, x_slots, w_slots, out_slots,
    full, empty, turn, rows, cols, N, K, ME: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    SLOTS: gl.constexpr, GROUP: gl.constexpr, LEAD: gl.constexpr,
    GATED: gl.constexpr, HAS_BIAS: gl.constexpr, SAVE: gl.constexpr,
    ACTIVATION: gl.constexpr,
):  # fmt: skip
    """One of two consumers, four warps each. They take turns: while one
    multiplies, the other finishes its tile."""
    wide: gl.constexpr = BLOCK_N * (2 if GATED else 1)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, wide, 16]
    )
    blocks = gl.cdiv(K, BLOCK_K)
    before = ME * blocks  # loads that come before this tile's first
    my_turn = 1 - ME  # consumer 0 need not wait for its first turn
    staged = out_slots.index(ME)
    for tile in range(
        gl.program_id(0) + ME * gl.num_programs(0),
        rows * cols,
        2 * gl.num_programs(0),
    ):
        row, col = tile_at(tile, rows, cols, GROUP)
        acc = warpgroup_mma_init(gl.zeros((BLOCK_M, wide), gl.float32, layout))
        slot = before % SLOTS
        phase = before // SLOTS & 1
        # not `slot`: Triton 3.6 carries two names of one value through a loop
        # as one
        last = 0
        mbarrier.wait(turn.index(ME), my_turn)
        my_turn ^= 1
        # --8<-- [end:consumer]
        # --8<-- [start:products]
        for block in range(blocks):
            mbarrier.wait(full.index(slot), phase)
            x = x_slots.index(slot)
            w = w_slots.index(slot)
            acc = warpgroup_mma(x, w.permute((1, 0)), acc, is_async=True)
            # LEAD blocks before the end the other may begin: its first products
            # follow ours without a gap.
            mbarrier.arrive(
                turn.index(1 - ME), pred=block == gl.maximum(blocks - LEAD, 0)
            )
            acc = warpgroup_mma_init(
                warpgroup_mma_wait(num_outstanding=1, deps=(acc, x, w))[0]
            )
            # the block before this one has been multiplied
            mbarrier.arrive(empty.index(last), pred=block > 0)
            last = slot
            slot += 1
            if slot == SLOTS:
                slot = 0
                phase ^= 1
        # --8<-- [end:products]
        # --8<-- [start:finish]
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(last))
        before += 2 * blocks
        if HAS_BIAS:
            at = col * BLOCK_N + gl.arange(
                0, BLOCK_N, gl.SliceLayout(0, layout)
            )
            acc += gl.load(bias + at, at < N, 0).to(gl.float32).expand_dims(0)
        if GATED:
            gate, up = gl.split(
                acc.reshape((BLOCK_M, 2, BLOCK_N)).permute((0, 2, 1))
            )
            if SAVE:  # for the backward pass
                store_tile(
                    saved_gate_desc, staged, row * BLOCK_M, col * BLOCK_N, gate
                )
                store_tile(
                    saved_up_desc, staged, row * BLOCK_M, col * BLOCK_N, up
                )
            out = activated(gate, ACTIVATION, False) * up
        else:
            out = activated(acc, ACTIVATION, False)
        store_tile(out_desc, staged, row * BLOCK_M, col * BLOCK_N, out)
        # --8<-- [end:finish]
    tma.store_wait(0)


@gluon.jit
def store_tile(desc, staged, row, col, values):
    """Store a tile from registers through shared memory, asynchronously. Waits
    for the preceding store, which used the same memory."""
    tma.store_wait(0)
    staged.store(values.to(desc.dtype))
    fence_async_shared()
    async_store(desc, [row, col], staged)


# --8<-- [start:pingpong]
@gluon.jit(do_not_specialize=["M"])
def pingpong_kernel(
    x_desc, gate_desc, up_desc, bias, out_desc, saved_gate_desc, saved_up_desc,
    M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, SLOTS: gl.constexpr, GROUP: gl.constexpr,
    LEAD: gl.constexpr, GATED: gl.constexpr, HAS_BIAS: gl.constexpr,
    SAVE: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """activation(x @ gate.T) * (x @ up.T), or activation(x @ gate.T + bias) if
    not GATED. Persistent, for Hopper."""
    wide: gl.constexpr = BLOCK_N * (2 if GATED else 1)
    rows, cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    x_slots = gl.allocate_shared_memory(
        x_desc.dtype, [SLOTS, BLOCK_M, BLOCK_K], x_desc.layout
    )
    w_slots = gl.allocate_shared_memory(
        x_desc.dtype, [SLOTS, wide, BLOCK_K], gate_desc.layout
    )
    out_slots = gl.allocate_shared_memory(
        out_desc.dtype, [2, BLOCK_M, BLOCK_N], out_desc.layout
    )
    full = gl.allocate_shared_memory(
        gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout()
    )
    empty = gl.allocate_shared_memory(
        gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout()
    )
    turn = gl.allocate_shared_memory(
        gl.int64, [2, 1], mbarrier.MBarrierLayout()
    )
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    for consumer in gl.static_range(2):
        mbarrier.init(turn.index(consumer), count=1)
    fence_async_shared()
    # the next kernel may set itself up while this one works
    gdc_launch_dependents()
    gl.warp_specialize(
        [
            (multiply_tiles, (
                bias, out_desc, saved_gate_desc, saved_up_desc, x_slots,
                w_slots, out_slots, full, empty, turn, rows, cols, N, K, 0,
                BLOCK_M, BLOCK_N, BLOCK_K, SLOTS, GROUP, LEAD, GATED, HAS_BIAS,
                SAVE, ACTIVATION,
            )),
            (multiply_tiles, (
                bias, out_desc, saved_gate_desc, saved_up_desc, x_slots,
                w_slots, out_slots, full, empty, turn, rows, cols, N, K, 1,
                BLOCK_M, BLOCK_N, BLOCK_K, SLOTS, GROUP, LEAD, GATED, HAS_BIAS,
                SAVE, ACTIVATION,
            )),
            (load_tiles, (
                x_desc, gate_desc, up_desc, x_slots, w_slots, full, empty, rows,
                cols, K, BLOCK_M, BLOCK_N, BLOCK_K, SLOTS, GROUP, GATED,
            )),
        ],
        worker_num_warps=[4, 1],
        worker_num_regs=[240, 24],
    )  # fmt: skip


# --8<-- [end:pingpong]
