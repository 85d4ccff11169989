"""Kernels of a gated MLP for 1 to 64 tokens. They take as long as reading the
weights, and read each weight once, at the memory's rate.

The weights are the rows of a product and the tokens its columns. A tile of 16
tokens may have 15 empty columns; a tile of 64 or 128 tokens, as in large
products, would be nearly empty. All programs are equally long and run at the
same time, so none waits for another's place, and the memory gives each its
share. The memory is busy while enough bytes are in flight: 4.3 TB/s for 1 us
are 4.3 MB, or 33 KB on each of 132 multiprocessors, and twice that near the
memory's limit.

Adjacent weights, such as views of one tensor, are read no faster than separate
weights, because a program loads rows of each separately anyway. No weight
should stay in the L2 cache, but only plain loads can say so, as in
`one_token_kernel`: Triton's copies to shared memory cannot.

M is the number of tokens, K the size of the input, N the size of the output.
Products are accumulated in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from .ahead import fetch_ahead, launch_next_if
from .kernels import activated


# --8<-- [start:few_tokens]
@triton.jit(do_not_specialize=["M"])
def few_tokens_kernel(
    x, weight, up, bias, out, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, SLICES: tl.constexpr, AHEAD: tl.constexpr,
    THREADS: tl.constexpr, LEAD: tl.constexpr, GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out = activation(x @ weight.T) * (x @ up.T) if GATED, otherwise
    activation(x @ weight.T + bias), for at most BLOCK_M tokens.

    A program multiplies BLOCK_N rows of each weight by one of SLICES slices of
    K; the programs of the first slice come first. With more than one slice, out
    is a float32 tensor (SLICES, 2 if GATED else 1, M, N) for
    `sum_slices_kernel`.
    """
    K = K // 8 * 8  # rows of 16 bytes: the compiler would not know
    tiles = tl.cdiv(N, BLOCK_N)
    which = tl.program_id(0) // tiles  # slice
    row = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    slice_k = tl.cdiv(tl.cdiv(K, BLOCK_K), SLICES) * BLOCK_K
    first = which * slice_k
    last = tl.minimum(first + slice_k, K)
    if DEPENDENT:
        if AHEAD:
            fetch_ahead(weight, row, first, last, K, N, AHEAD, THREADS)
            if GATED:
                fetch_ahead(up, row, first, last, K, N, AHEAD, THREADS)
        gdc_wait()  # the kernel before may still be writing x
    token = tl.arange(0, BLOCK_M)
    k_in_block = tl.arange(0, BLOCK_K)[None, :]
    w_row, x_row = row[:, None], token[:, None]
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    if PARTS > 1:
        # A part of each block of K for each warp: products of shape (PARTS,
        # BLOCK_N, BLOCK_M), where no warp reads from shared memory what
        # another one reads. In one of 16 rows all would read the same.
        part: tl.constexpr = BLOCK_K // PARTS
        k_in_block = (
            tl.arange(0, PARTS)[:, None, None] * part
            + tl.arange(0, part)[None, None, :]
        )
        w_row, x_row = w_row[None, :, :], x_row[None, :, :]
        acc = tl.zeros((PARTS, BLOCK_N, BLOCK_M), tl.float32)
    up_acc = acc
    w_at = w_row.to(tl.int64) * K + k_in_block
    x_at = x_row * K + k_in_block
    blocks = tl.cdiv(last - first, BLOCK_K)
    late = first + tl.maximum(blocks - LEAD, 0) * BLOCK_K
    for k in range(first, last, BLOCK_K):
        if DEPENDENT and LEAD:
            launch_next_if(k == late)
        there = k_in_block < last - k
        tokens = tl.load(x + (x_at + k), (x_row < M) & there, 0.0)
        w = tl.load(weight + (w_at + k), (w_row < N) & there, 0.0)
        if INTERPRETED:  # there bf16 products are wrong
            tokens, w = tokens.to(tl.float32), w.to(tl.float32)
        acc = tl.dot(w, tl.trans(tokens), acc)
        if GATED:
            u = tl.load(up + (w_at + k), (w_row < N) & there, 0.0)
            if INTERPRETED:
                u = u.to(tl.float32)
            up_acc = tl.dot(u, tl.trans(tokens), up_acc)
    if DEPENDENT and not LEAD:
        launch_next_if(M > 0)
    if PARTS > 1:
        acc, up_acc = tl.sum(acc, 0), tl.sum(up_acc, 0)
    row, token = row[:, None], token[None, :]
    there = (row < N) & (token < M)
    if SLICES > 1:
        sums: tl.constexpr = 2 if GATED else 1
        out += which * sums * M * N + token * N + row
        tl.store(out, acc, there)
        if GATED:
            tl.store(out + M * N, up_acc, there)
    else:
        if HAS_BIAS:
            acc += tl.load(bias + row, row < N, 0.0).to(tl.float32)
        value = activated(acc, ACTIVATION, INTERPRETED)
        if GATED:
            value *= up_acc
        tl.store(out + (token * N + row), value.to(out.dtype.element_ty), there)


# --8<-- [end:few_tokens]


@triton.jit(do_not_specialize=["count"])
def sum_slices_kernel(
    slices, bias, out, count, N,
    SLICES: tl.constexpr, BLOCK: tl.constexpr, GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out, `count` elements in rows of N, from the sums of each slice of K.

    Adds in a fixed order. Atomic additions in memory would add in order of
    arrival. The last program to finish could also add the slices, but it would
    need a counter of this run alone that starts at zero: another kernel, or a
    persistent tensor that two streams would share.
    """
    count = count // 8 * 8
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    value = tl.zeros((BLOCK,), tl.float32)
    up = tl.zeros((BLOCK,), tl.float32)
    if DEPENDENT:
        gdc_wait()
        launch_next_if(count > 0)
    for _ in tl.static_range(SLICES):
        value += tl.load(slices + at, there, 0.0)
        slices += count
        if GATED:
            up += tl.load(slices + at, there, 0.0)
            slices += count
    if HAS_BIAS:
        value += tl.load(bias + at % N, there, 0.0).to(tl.float32)
    value = activated(value, ACTIVATION, INTERPRETED)
    if GATED:
        value *= up
    tl.store(out + at, value.to(out.dtype.element_ty), there)


# --8<-- [start:one_token]
@triton.jit
def one_token_kernel(
    x, weight, up, bias, out, N, K,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    AHEAD: tl.constexpr, THREADS: tl.constexpr, LEAD: tl.constexpr,
    GATED: tl.constexpr, HAS_BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    INTERPRETED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """`few_tokens_kernel` for one token, without tensor cores: each element
    read needs only one multiplication, and each thread keeps its own sum until
    the rows end."""
    K = K // 8 * 8
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if DEPENDENT:
        if AHEAD:
            fetch_ahead(weight, row, 0, K, K, N, AHEAD, THREADS)
            if GATED:
                fetch_ahead(up, row, 0, K, K, N, AHEAD, THREADS)
        gdc_wait()
    col = tl.arange(0, BLOCK_K)
    at = row[:, None].to(tl.int64) * K + col[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    up_acc = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    late = tl.maximum(tl.cdiv(K, BLOCK_K) - LEAD, 0) * BLOCK_K
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        if DEPENDENT:
            launch_next_if(k == late)
        there = (row < N)[:, None] & (col < K - k)[None, :]
        token = tl.load(x + col + k, col < K - k, 0.0).to(tl.float32)[None, :]
        w = tl.load(
            weight + (at + k), there, 0.0, eviction_policy="evict_first"
        )
        acc += w.to(tl.float32) * token
        if GATED:
            u = tl.load(
                up + (at + k), there, 0.0, eviction_policy="evict_first"
            )
            up_acc += u.to(tl.float32) * token
    value = tl.sum(acc, 1)
    if HAS_BIAS:
        value += tl.load(bias + row, row < N, 0.0).to(tl.float32)
    value = activated(value, ACTIVATION, INTERPRETED)
    if GATED:
        value *= tl.sum(up_acc, 1)
    tl.store(out + row, value.to(out.dtype.element_ty), row < N)


# --8<-- [end:one_token]
