"""The backward pass of a gated MLP on Hopper: the gradient of the hidden tensor
never reaches device memory.

M is the number of tokens, K the size of the result, N that of the hidden
tensor. Products are accumulated in float32.
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

from .kernels import tile_at, with_slope
from .pingpong_kernels import async_load, async_store


@gluon.jit
def load_blocks(
    d_out_desc, down_desc, d_out_slots, down_slots, full, empty, rows, cols, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    SLOTS: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """The producer of the product, one warp: keeps a ring of slots filled with
    blocks of both operands."""
    slot_bytes: gl.constexpr = (
        d_out_desc.block_type.nbytes + down_desc.block_type.nbytes
    )
    slot = 0
    phase = 1
    gdc_wait()  # the kernel before this one may still be writing d_out
    for tile in range(gl.program_id(0), rows * cols, gl.num_programs(0)):
        row, col = tile_at(tile, rows, cols, GROUP)
        for k in range(0, K, BLOCK_K):
            mbarrier.wait(empty.index(slot), phase)
            arrived = full.index(slot)
            mbarrier.expect(arrived, slot_bytes)
            async_load(
                d_out_desc, [row * BLOCK_M, k], arrived, d_out_slots.index(slot)
            )
            async_load(
                down_desc, [k, col * BLOCK_N], arrived, down_slots.index(slot)
            )
            slot += 1
            if slot == SLOTS:
                slot = 0
                phase ^= 1


# --8<-- [start:factors]
@gluon.jit
def load_factors(
    gate_desc, up_desc, gate_stages, up_stages, arrived, free, rows, cols,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HEIGHT: gl.constexpr,
    WIDTH: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """The producer of the epilogue, one warp: brings the pre-activations of
    each tile, piece by piece, while its product is computed."""
    stage_bytes: gl.constexpr = (
        gate_desc.block_type.nbytes + up_desc.block_type.nbytes
    )
    stage = 0
    phase = 1
    gdc_wait()
    for tile in range(gl.program_id(0), rows * cols, gl.num_programs(0)):
        row, col = tile_at(tile, rows, cols, GROUP)
        for piece in range(BLOCK_M * BLOCK_N // (HEIGHT * WIDTH)):
            mbarrier.wait(free.index(stage), phase)
            here = arrived.index(stage)
            at = [
                row * BLOCK_M + piece // (BLOCK_N // WIDTH) * HEIGHT,
                col * BLOCK_N + piece % (BLOCK_N // WIDTH) * WIDTH,
            ]
            mbarrier.expect(here, stage_bytes)
            async_load(gate_desc, at, here, gate_stages.index(stage))
            async_load(up_desc, at, here, up_stages.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


# --8<-- [end:factors]


@gluon.jit
def piece_of(
    tile, PIECE: gl.constexpr, HEIGHT: gl.constexpr, WIDTH: gl.constexpr
):
    """Piece number PIECE, (HEIGHT, WIDTH), of a tile in registers, without
    moving it: split in halves, quarters and so on, first the rows, then the
    columns."""
    rows: gl.constexpr = tile.shape[0]
    cols: gl.constexpr = tile.shape[1]
    if rows > HEIGHT:
        first, second = gl.split(
            tile.reshape((2, rows // 2, cols)).permute((1, 2, 0))
        )
    elif cols > WIDTH:
        first, second = gl.split(
            tile.reshape((rows, 2, cols // 2)).permute((0, 2, 1))
        )
    half: gl.constexpr = rows * cols // (HEIGHT * WIDTH) // 2
    if half == 0:
        found = tile
    elif half > PIECE:
        found = piece_of(first, PIECE, HEIGHT, WIDTH)
    else:
        found = piece_of(second, PIECE - half, HEIGHT, WIDTH)
    return found


# --8<-- [start:gradients]
@gluon.jit
def finish_tiles(
    d_gate_desc, d_up_desc, hidden_desc, d_out_slots, down_slots, gate_stages,
    up_stages, full, empty, arrived, free, turn, finish, rows, cols, K,
    ME: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, SLOTS: gl.constexpr, HEIGHT: gl.constexpr,
    WIDTH: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    LEAD: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """One of two consumers, four warps each. They take turns: while one
    multiplies, the other turns its product into gradients."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    pieces: gl.constexpr = BLOCK_M * BLOCK_N // (HEIGHT * WIDTH)
    blocks = gl.cdiv(K, BLOCK_K)
    before = ME * blocks  # loads that come before this tile's first
    pieces_before = ME * pieces
    # consumer 0 need not wait for its first turns
    my_turn = 1 - ME
    my_finish = 1 - ME
    for tile in range(
        gl.program_id(0) + ME * gl.num_programs(0),
        rows * cols,
        2 * gl.num_programs(0),
    ):
        row, col = tile_at(tile, rows, cols, GROUP)
        acc = warpgroup_mma_init(
            gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
        )
        slot = before % SLOTS
        phase = before // SLOTS & 1
        # not `slot`: Triton 3.6 carries two names of one value through a loop
        # as one
        last = 0
        mbarrier.wait(turn.index(ME), my_turn)
        my_turn ^= 1
        for block in range(blocks):
            mbarrier.wait(full.index(slot), phase)
            d_out = d_out_slots.index(slot)
            down = down_slots.index(slot)
            acc = warpgroup_mma(d_out, down, acc, is_async=True)
            mbarrier.arrive(
                turn.index(1 - ME), pred=block == gl.maximum(blocks - LEAD, 0)
            )
            acc = warpgroup_mma_init(
                warpgroup_mma_wait(num_outstanding=1, deps=(acc, d_out, down))[
                    0
                ]
            )
            mbarrier.arrive(empty.index(last), pred=block > 0)
            last = slot
            slot += 1
            if slot == SLOTS:
                slot = 0
                phase ^= 1
        d_hidden = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(last))
        before += 2 * blocks
        # the other has seen all its pieces: of two waits for one stage, one
        # full turn apart, the later could take the earlier's pieces for its own
        mbarrier.wait(finish.index(ME), my_finish)
        my_finish ^= 1
        for piece in gl.static_range(pieces):
            number = pieces_before + piece
            stage = number % STAGES
            gate_stage = gate_stages.index(stage)
            up_stage = up_stages.index(stage)
            d = piece_of(d_hidden, piece, HEIGHT, WIDTH)
            mbarrier.wait(arrived.index(stage), number // STAGES & 1)
            if piece == pieces - 1:
                mbarrier.arrive(finish.index(1 - ME))
            g = gate_stage.load(d.type.layout).to(gl.float32)
            u = up_stage.load(d.type.layout).to(gl.float32)
            value, slope = with_slope(g, ACTIVATION, False)
            # now, or Triton keeps it in twice the registers
            hidden = (value * u).to(gate_stages.dtype)
            at = [
                row * BLOCK_M + piece // (BLOCK_N // WIDTH) * HEIGHT,
                col * BLOCK_N + piece % (BLOCK_N // WIDTH) * WIDTH,
            ]
            gate_stage.store((d * u * slope).to(gate_stages.dtype))
            up_stage.store((d * value).to(gate_stages.dtype))
            fence_async_shared()
            async_store(d_gate_desc, at, gate_stage)
            async_store(d_up_desc, at, up_stage)
            # all stores but the last one or two have left shared memory
            tma.store_wait(2 if hidden_desc is None else 1)
            if piece > 0:
                mbarrier.arrive(free.index((number - 1) % STAGES))
            if hidden_desc is not None:
                gate_stage.store(hidden)
                fence_async_shared()
                async_store(hidden_desc, at, gate_stage)
        tma.store_wait(0)
        mbarrier.arrive(free.index((pieces_before + pieces - 1) % STAGES))
        pieces_before += 2 * pieces


# --8<-- [end:gradients]


@gluon.jit
def barriers(COUNT: gl.constexpr):
    """Allocate barriers in shared memory; each of them waits for one
    arrival."""
    found = gl.allocate_shared_memory(
        gl.int64, [COUNT, 1], mbarrier.MBarrierLayout()
    )
    for number in gl.static_range(COUNT):
        mbarrier.init(found.index(number), count=1)
    return found


@gluon.jit(do_not_specialize=["M"])
def pingpong_backward_kernel(
    d_out_desc, down_desc, gate_desc, up_desc, d_gate_desc, d_up_desc,
    hidden_desc, M, N, K, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, SLOTS: gl.constexpr, HEIGHT: gl.constexpr,
    WIDTH: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    LEAD: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Gradients of activation(gate) * up for both, from d_out @ down, and the
    product activation(gate) * up itself. Persistent, for Hopper."""
    rows, cols = gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N)
    d_out_slots = gl.allocate_shared_memory(
        d_out_desc.dtype, [SLOTS, BLOCK_M, BLOCK_K], d_out_desc.layout
    )
    down_slots = gl.allocate_shared_memory(
        down_desc.dtype, [SLOTS, BLOCK_K, BLOCK_N], down_desc.layout
    )
    gate_stages = gl.allocate_shared_memory(
        gate_desc.dtype, [STAGES, HEIGHT, WIDTH], gate_desc.layout
    )
    up_stages = gl.allocate_shared_memory(
        up_desc.dtype, [STAGES, HEIGHT, WIDTH], up_desc.layout
    )
    full, empty = barriers(SLOTS), barriers(SLOTS)
    arrived, free = barriers(STAGES), barriers(STAGES)
    turn, finish = barriers(2), barriers(2)
    fence_async_shared()
    gdc_launch_dependents()
    gl.warp_specialize(
        [
            (finish_tiles, (
                d_gate_desc, d_up_desc, hidden_desc, d_out_slots, down_slots,
                gate_stages, up_stages, full, empty, arrived, free, turn,
                finish, rows, cols, K, 0, BLOCK_M, BLOCK_N, BLOCK_K, SLOTS,
                HEIGHT, WIDTH, STAGES, GROUP, LEAD, ACTIVATION,
            )),
            (finish_tiles, (
                d_gate_desc, d_up_desc, hidden_desc, d_out_slots, down_slots,
                gate_stages, up_stages, full, empty, arrived, free, turn,
                finish, rows, cols, K, 1, BLOCK_M, BLOCK_N, BLOCK_K, SLOTS,
                HEIGHT, WIDTH, STAGES, GROUP, LEAD, ACTIVATION,
            )),
            (load_blocks, (
                d_out_desc, down_desc, d_out_slots, down_slots, full, empty,
                rows, cols, K, BLOCK_M, BLOCK_N, BLOCK_K, SLOTS, GROUP,
            )),
            (load_factors, (
                gate_desc, up_desc, gate_stages, up_stages, arrived, free, rows,
                cols, BLOCK_M, BLOCK_N, HEIGHT, WIDTH, STAGES, GROUP,
            )),
        ],
        worker_num_warps=[4, 1, 1],
        worker_num_regs=[240, 24, 24],
    )  # fmt: skip
