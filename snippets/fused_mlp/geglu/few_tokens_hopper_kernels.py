"""The kernel for 1 to 64 tokens on Hopper, in Gluon: the copy engine loads the
weights, and a program keeps loads in flight for all its shared memory.

`few_tokens_kernels` has the equivalents for every GPU.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .kernels import activated
from .pingpong_kernels import async_load

# Renamed after Triton 3.6.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.jit
def load_weights(
    weight_desc, up_desc, arrived, slot, row, k, there,
    BLOCK_N: gl.constexpr, GATED: gl.constexpr, SLOT_BYTES: gl.constexpr,
):  # fmt: skip
    """Announce all bytes of a slot, and start loading its weights: up's rows
    below gate's, so that one product takes both."""
    mbarrier.expect(arrived, SLOT_BYTES, pred=there)
    if GATED:
        async_load(
            weight_desc, [row, k], arrived, slot.slice(0, BLOCK_N), pred=there
        )
        async_load(
            up_desc,
            [row, k],
            arrived,
            slot.slice(BLOCK_N, BLOCK_N),
            pred=there,
        )
    else:
        async_load(weight_desc, [row, k], arrived, slot, pred=there)


@gluon.jit
def fetch_ahead(
    weight, up, tile, first, K, N,
    BLOCK_N: gl.constexpr, AHEAD: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """Load `AHEAD` elements of each row, from `first` on, into the L2 cache,
    with one thread or two for each row."""
    high: gl.constexpr = BLOCK_N * (2 if GATED else 1)
    item_bytes: gl.constexpr = weight.dtype.element_ty.primitive_bitwidth // 8
    at = gl.arange(0, high, gl.BlockedLayout([1], [32], [4], [0]))
    row = tile * BLOCK_N + at % BLOCK_N
    address = weight + (row.to(gl.int64) * K + first)
    if GATED:
        address = gl.where(
            at < BLOCK_N, address, up + (row.to(gl.int64) * K + first)
        )
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.gt.s32 p, $2, 0;
        @p cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [
            address,
            gl.where(row < N, gl.minimum(K - first, AHEAD), 0) * item_bytes,
        ],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


# --8<-- [start:few_tokens]
@gluon.jit(do_not_specialize=["M"])
def few_tokens_hopper_kernel(
    x_desc, weight_desc, up_desc, weight, up, bias, out, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    PARTS: gl.constexpr, SLOTS: gl.constexpr, SLICES: gl.constexpr,
    AHEAD: gl.constexpr, LEAD: gl.constexpr, GATED: gl.constexpr,
    HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr,
    WEIGHTS_FIRST: gl.constexpr,
):  # fmt: skip
    """out = activation(x @ weight.T) * (x @ up.T) if GATED, otherwise
    activation(x @ weight.T + bias), for at most BLOCK_M tokens.

    Programs and out are as in `few_tokens_kernel`. The descriptors show each
    row as PARTS rows, of K elements: products have at least 64 rows, and with 4
    parts 16 rows of a weight keep a program busy. WEIGHTS_FIRST fills the slots
    while the preceding kernel still runs. That kernel must not write the
    weights, and must have waited for its own predecessor before it launched
    this kernel.
    """
    rows: gl.constexpr = BLOCK_N * PARTS
    high: gl.constexpr = rows * (2 if GATED else 1)
    wide: gl.constexpr = BLOCK_M * PARTS
    slot_bytes: gl.constexpr = (
        (high + wide) * BLOCK_K * x_desc.dtype.primitive_bitwidth // 8
    )
    x_slots = gl.allocate_shared_memory(
        x_desc.dtype, [SLOTS, wide, BLOCK_K], x_desc.layout
    )
    w_slots = gl.allocate_shared_memory(
        x_desc.dtype, [SLOTS, high, BLOCK_K], weight_desc.layout
    )
    full = gl.allocate_shared_memory(
        gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout()
    )
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
    fence_async_shared()
    barrier()
    tiles = gl.cdiv(N, BLOCK_N)
    tile, which = gl.program_id(0) % tiles, gl.program_id(0) // tiles
    all_blocks = gl.cdiv(K, BLOCK_K)
    blocks = gl.cdiv(all_blocks, SLICES)
    start = which * blocks
    blocks = gl.minimum(blocks, all_blocks - start)  # none, for a last slice
    if not WEIGHTS_FIRST:
        if AHEAD:
            fetch_ahead(
                weight,
                up,
                tile,
                start * BLOCK_K,
                K,
                N * PARTS,
                rows,
                AHEAD,
                GATED,
            )
        gdc_wait()
    for slot in gl.static_range(SLOTS):
        load_weights(
            weight_desc, up_desc, full.index(slot), w_slots.index(slot),
            tile * rows, (start + slot) * BLOCK_K, slot < blocks, rows, GATED,
            slot_bytes,
        )  # fmt: skip
    if WEIGHTS_FIRST:
        gdc_wait()  # the kernel before may still be writing x
    for slot in gl.static_range(SLOTS):
        async_load(
            x_desc, [0, (start + slot) * BLOCK_K], full.index(slot),
            x_slots.index(slot), pred=slot < blocks,
        )  # fmt: skip
    # --8<-- [end:few_tokens]
    # --8<-- [start:stream]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, wide, 16]
    )
    acc = gl.zeros((high, wide), gl.float32, layout)
    slot = 0
    phase = 0
    for block in range(blocks):
        if block == gl.maximum(blocks - LEAD, 0):
            gdc_launch_dependents()
        arrived = full.index(slot)
        x = x_slots.index(slot)
        w = w_slots.index(slot)
        mbarrier.wait(arrived, phase)
        acc = warpgroup_mma(w, x.permute((1, 0)), acc)
        barrier()  # all four warps have read their rows of the slot
        k = (start + block + SLOTS) * BLOCK_K
        there = block + SLOTS < blocks
        load_weights(
            weight_desc, up_desc, arrived, w, tile * rows, k, there, rows,
            GATED, slot_bytes,
        )  # fmt: skip
        async_load(x_desc, [0, k], arrived, x, pred=there)
        slot += 1
        if slot == SLOTS:
            slot = 0
            phase ^= 1
    # --8<-- [end:stream]
    if PARTS > 1:
        acc = of_equal_parts(acc, BLOCK_M, BLOCK_N, PARTS)
    if SLICES > 1:
        store_sums(acc, out, tile, which, M, N, BLOCK_M, BLOCK_N, GATED)
    else:
        store_out(
            acc, bias, out, tile, M, N, BLOCK_M, BLOCK_N, GATED, HAS_BIAS,
            ACTIVATION,
        )  # fmt: skip


@gluon.jit
def of_equal_parts(
    acc, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, PARTS: gl.constexpr
):
    """Sum the products of equal parts of a row and a token. The block also has
    the products of unequal parts, which don't count."""
    layout: gl.constexpr = acc.type.layout
    row = gl.arange(0, BLOCK_N * PARTS, gl.SliceLayout(1, layout))
    col = gl.arange(0, BLOCK_M * PARTS, gl.SliceLayout(0, layout))
    equal = row.expand_dims(1) % PARTS == col.expand_dims(0) % PARTS
    acc = gl.where(equal, acc, 0.0)
    acc = gl.sum(acc.reshape((BLOCK_N * PARTS, BLOCK_M, PARTS)), 2)
    return gl.sum(acc.reshape((BLOCK_N, PARTS, BLOCK_M)), 1)


@gluon.jit
def store_sums(
    acc, out, tile, which, M, N,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """Store a slice's float32 sums into (SLICES, 2 if GATED else 1, M, N)."""
    layout: gl.constexpr = acc.type.layout
    sums: gl.constexpr = 2 if GATED else 1
    at = gl.arange(0, sums * BLOCK_N, gl.SliceLayout(1, layout)).expand_dims(1)
    m = gl.arange(0, BLOCK_M, gl.SliceLayout(0, layout)).expand_dims(0)
    n = tile * BLOCK_N + at % BLOCK_N
    out += (which * sums + at // BLOCK_N) * M * N + m * N + n
    gl.store(out, acc, (n < N) & (m < M))


@gluon.jit
def store_out(
    acc, bias, out, tile, M, N,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GATED: gl.constexpr,
    HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Finish and store a tile, whose rows are columns of out (M, N)."""
    up = acc
    if GATED:
        if BLOCK_N < 64:  # a warp has 16 of 64 rows: gate's or up's
            acc = gl.convert_layout(
                acc, gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
            )
        acc, up = gl.split(
            acc.reshape((2, BLOCK_N, BLOCK_M)).permute((1, 2, 0))
        )
    layout: gl.constexpr = acc.type.layout
    m = gl.arange(0, BLOCK_M, gl.SliceLayout(0, layout)).expand_dims(0)
    n = gl.arange(0, BLOCK_N, gl.SliceLayout(1, layout)).expand_dims(1)
    n += tile * BLOCK_N
    if HAS_BIAS:
        acc += gl.load(bias + n, n < N, 0.0).to(gl.float32)
    value = activated(acc, ACTIVATION, False)
    if GATED:
        value *= up
    gl.store(
        out + (m * N + n), value.to(out.dtype.element_ty), (n < N) & (m < M)
    )
