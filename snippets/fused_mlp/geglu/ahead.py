"""Weights asked for before the preceding kernel has ended."""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:ahead]
@triton.jit
def fetch_ahead(
    weight, row, first, last, K, N,
    AHEAD: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """Start loading `AHEAD` elements of each row, from `first` on, into the L2
    cache, without waiting for them.

    Shared memory would be wrong: the preceding kernel may still write the
    weights, and only the cache sees these writes.
    """
    # as many requests as threads, or some would be made twice; of 16 bytes at
    # least
    share: tl.constexpr = AHEAD * row.shape[0] // THREADS
    each: tl.constexpr = share if share > 8 else 8
    item_bytes: tl.constexpr = weight.dtype.element_ty.primitive_bitwidth // 8
    col = first + tl.arange(0, AHEAD // each)[None, :] * each
    # not beyond a row: what follows the last one may not be memory
    left = tl.where(row[:, None] < N, tl.minimum(last - col, each), 0)
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.gt.s32 p, $2, 0;
        @p cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [weight + (row[:, None].to(tl.int64) * K + col), left * item_bytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def launch_next_if(now):
    """`gdc_launch_dependents` without a branch, since a branch would keep
    Triton from pipelining the loop.

    The next kernel should start before this kernel ends, but so late that its
    prefetched bytes are still in the cache when it needs them.
    """
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.ne.s32 p, $1, 0;
        @p griddepcontrol.launch_dependents;
        mov.b32 $0, 0;
        }""",
        "=r,r",
        [now.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


# --8<-- [end:ahead]
