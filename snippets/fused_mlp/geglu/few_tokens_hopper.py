"""Launches of the kernel for 1 to 64 tokens that is written for Hopper."""

from __future__ import annotations

import functools

import triton
from torch import Tensor

from .few_tokens import FewTiles, require_few, summed, tokens_of_a_tile
from .few_tokens_hopper_kernels import few_tokens_hopper_kernel
from .few_tokens_kernels import (
    few_tokens_kernel,
    one_token_kernel,
    sum_slices_kernel,
)
from .hopper import describe
from .kernels import ACTIVATIONS
from .launch import Launch
from .work import Sizes, sizes_of

SHARED_BYTES = 233_472
"""Bytes of a multiprocessor's shared memory, of which every program reserves 1
KiB."""
GATE_UP = (
    (64, 128, 1, 1, 2),
    (128, 128, 1, 1, 1),
    (32, 128, 1, 1, 3),
)
"""block_n, block_k, slices, parts, and how many programs share a
multiprocessor. Loads are in flight for all its shared memory, apart from the
tokens."""
LINEAR = (
    (16, 128, 1, 4, 2),
    (16, 256, 1, 4, 2),
    (32, 256, 1, 2, 1),
    (64, 256, 2, 1, 1),
    (64, 64, 6, 1, 3),
    (64, 128, 4, 1, 2),
)
LEAD = 512
"""Elements of K before its end at which a program lets the next kernel
start."""
WIDEST = 64
"""The most columns of a product: parts times tokens."""


def hopper_tiles(
    rows: int, dim: int, gated: bool, itemsize: int = 2
) -> tuple[FewTiles, ...]:
    """The candidates for `rows` tokens, 64 at most."""
    found = []
    for block_n, block_k, slices, parts, programs in (
        GATE_UP if gated else LINEAR
    ):
        # the smallest product has 8 columns
        block_m = max(8 // parts, tokens_of_a_tile(rows, 1))
        if block_m * parts > WIDEST or dim % (8 * parts):
            continue
        tiles = FewTiles(
            block_m,
            block_n,
            block_k,
            1,
            slices,
            parts=parts,
            lead=LEAD // block_k,
        )
        room = SHARED_BYTES // programs - 1024
        slots = room // hopper_shared_bytes(tiles, gated, itemsize)
        if slots > 1:
            found.append(tiles._replace(slots=slots))
    return tuple(found)


def hopper_shared_bytes(tiles: FewTiles, gated: bool, itemsize: int = 2) -> int:
    """A program's bytes of shared memory, as the compiler counts: slots, and a
    barrier of 8 bytes for each."""
    rows = (2 if gated else 1) * tiles.block_n + tiles.block_m
    block = rows * tiles.parts * tiles.block_k * itemsize
    return tiles.slots * (block + 8)


def waits_first(way: object) -> bool:
    """Whether the way ends with a kernel that waits for the preceding kernel
    before it lets the next kernel start. The next kernel then finds all weights
    written."""
    return isinstance(way, Launch) and way.kernel in (
        few_tokens_hopper_kernel,
        few_tokens_kernel,
        one_token_kernel,
        sum_slices_kernel,
    )


@functools.lru_cache(maxsize=1024)
def few_tokens_hopper_way(
    sizes: Sizes,
    tiles: FewTiles,
    activation: str,
    gated: bool = False,
    has_bias: bool = False,
    weights_first: bool = False,
) -> Launch:
    """A launch to be called with x, the weight, the second weight if `gated`,
    the bias if there is one, and the result.

    `weights_first` reads weights before the preceding kernel has ended. This is
    safe only after a kernel of `few_tokens_kernels` or this kernel, which wait
    for their preceding kernel before they let the next one start.
    """
    require_few(sizes, tiles)
    rows, dim, outputs, *_ = sizes
    block_m, block_n, block_k, slots, slices, _, parts, ahead, lead = tiles
    if dim % (8 * parts) or (gated and parts > 1):
        raise ValueError(f"rows of {dim} elements have no {parts} parts")
    has_bias_now = has_bias and slices == 1

    def arguments(x: Tensor, weight: Tensor, *others: Tensor) -> tuple:
        up = others[0] if gated else None
        x = x.view(rows * parts, -1)
        parted = weight.view(outputs * parts, -1)
        return (
            describe(x, block_m * parts, block_k),
            describe(parted, block_n * parts, block_k),
            None if up is None else describe(up, block_n, block_k), weight, up,
            others[-2] if has_bias_now else None, others[-1], rows, outputs,
            dim // parts, block_m, block_n, block_k, parts, slots, slices,
            ahead, lead, gated, has_bias_now, ACTIVATIONS[activation],
            weights_first,
        )  # fmt: skip

    launch = Launch(
        few_tokens_hopper_kernel,
        triton.cdiv(outputs, block_n) * slices,
        arguments,
        num_warps=4,
        launch_pdl=True,
    )
    return summed(launch, sizes, slices, activation, gated, has_bias)


def few_tokens_hopper_gate_up(
    x: Tensor, gate: Tensor, up: Tensor, activation: str, tiles: FewTiles
) -> Tensor:
    """As `few_tokens_gate_up`."""
    out = x.new_empty(x.shape[0], gate.shape[0])
    few_tokens_hopper_way(sizes_of(x, gate), tiles, activation, gated=True)(
        x, gate, up, out
    )
    return out


def few_tokens_hopper_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    tiles: FewTiles,
    weights_first: bool = False,
) -> Tensor:
    """As `few_tokens_linear`; `weights_first` as in `few_tokens_hopper_way`."""
    out = x.new_empty(x.shape[0], weight.shape[0])
    way = few_tokens_hopper_way(
        sizes_of(x, weight),
        tiles,
        activation,
        has_bias=bias is not None,
        weights_first=weights_first,
    )
    way(*[one for one in (x, weight, bias, out) if one is not None])
    return out
