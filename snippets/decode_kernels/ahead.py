"""Requests for weights, keys and values before they are needed."""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:ahead]
@triton.jit
def fetch_rows(weight, row, rows, K, AHEAD: tl.constexpr):
    """Start loading the first AHEAD elements of each row of a weight (rows, K)
    into the L2 cache, without waiting for them.

    One request for each row: the threads of a warp make their requests one
    after the other, so many small ones would take longer than their bytes.
    Shared memory would be wrong: a kernel before may still write the weights,
    and only the cache sees these writes.
    """
    # not beyond a row: what follows the last one may not be memory
    count = tl.where(row < rows, tl.minimum(K, AHEAD), 0)
    fetch(weight + row.to(tl.int64) * K, count, row.shape[0])


@triton.jit
def fetch(first, count, REQUESTS: tl.constexpr):
    """Start loading `count` elements, a multiple of 16 bytes, from each of the
    addresses `first`: a tensor of REQUESTS addresses, or one address."""
    item_bytes: tl.constexpr = first.dtype.element_ty.primitive_bitwidth // 8
    # the first threads: the others hold the same addresses again
    tl.inline_asm_elementwise(
        """{
        .reg .pred asks;
        .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.lt.u32 asks, thread, $3;
        setp.gt.and.s32 asks, $2, 0, asks;
        @asks cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r,r",
        [first, count * item_bytes, REQUESTS],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


# --8<-- [end:ahead]
