"""Launches of the kernels for 1 to 64 tokens, and their tiles of the
weights."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from . import portable
from .few_tokens_kernels import (
    few_tokens_kernel,
    one_token_kernel,
    sum_slices_kernel,
)
from .kernels import ACTIVATIONS
from .launch import Launch, interpreted
from .work import Sizes, sizes_of

MOST_TOKENS = 64
SUM_BLOCK = 512


class FewTiles(NamedTuple):
    """How a kernel for few tokens cuts the weights."""

    block_m: int
    """Tokens at most: 8, 16, 32 or 64; with 1, the kernel without matrix
    instructions."""
    block_n: int
    """Rows of each weight that a program multiplies."""
    block_k: int
    slots: int
    """Blocks of `block_k` in flight; in Triton, the stages of the loop."""
    slices: int = 1
    """Slices of K: this multiplies the number of programs, whose sums are then
    added."""
    warps: int = 4
    parts: int = 4
    """Parts of a block of K, one for each warp; with 1, the warps share rows.
    On Hopper: parts of each row, multiplied as separate rows."""
    ahead: int = 512
    """Elements of each row prefetched while the preceding kernel still runs."""
    lead: int = 2
    """Blocks before its end at which a program lets the next kernel start."""

    @property
    def name(self) -> str:
        """Different for any two tiles of one list below."""
        return "x".join(map(str, self[:3])) + (
            f", {self.slots} slots, {self.slices} slices, {self.warps} warps"
            f" in {self.parts}, {self.ahead} ahead, lead {self.lead}"
        )


ONE_TOKEN = (
    FewTiles(1, 4, 1024, 4, ahead=0),
    FewTiles(1, 8, 512, 3),
    FewTiles(1, 2, 1024, 1),
)
"""For one token: gate and up together, or one weight."""
FEW_GATE_UP = (
    FewTiles(16, 16, 256, 3),
    FewTiles(16, 32, 128, 3),
    FewTiles(32, 32, 128, 3),
    FewTiles(64, 64, 64, 4, parts=1, lead=0),
)
"""For a number of tokens that fills a tile at least half."""
FEW_LINEAR = (
    FewTiles(16, 16, 256, 6),
    FewTiles(16, 32, 256, 3, slices=2),
    FewTiles(32, 32, 256, 3, slices=2),
    FewTiles(64, 64, 128, 3, slices=4, parts=1, lead=0),
    FewTiles(64, 64, 64, 6, slices=4, parts=1, lead=0),
)


def few_tokens_tiles(
    rows: int, gated: bool, itemsize: int, capability: int, limit: int
) -> tuple[FewTiles, ...]:
    """The candidates for `rows` tokens, 64 at most, within a program's `limit`
    bytes of shared memory."""
    block_m = tokens_of_a_tile(rows)
    fitting = [
        tiles._replace(block_m=block_m)
        for tiles in (FEW_GATE_UP if gated else FEW_LINEAR)
        if tiles.block_m == max(16, block_m)
    ]
    return tuple(
        tiles
        for tiles in (*(ONE_TOKEN if rows == 1 else ()), *fitting)
        if shared_bytes(tiles, gated, itemsize, capability) <= limit
    )


def fitting(sizes: Sizes, gated: bool) -> tuple[FewTiles, ...]:
    """The candidates for these sizes on their GPU; empty if it has none."""
    if not are_known(sizes):
        return ()
    return few_tokens_tiles(
        sizes.rows, gated, sizes.dtype.itemsize, *portable.limits(sizes.device)
    )


def tokens_of_a_tile(rows: int, least: int = 8) -> int:
    """The smallest power of two that holds `rows` tokens and is at least
    `least`: the smallest matrix instruction has 8 columns."""
    return max(least, 1 << (rows - 1).bit_length())


def shared_bytes(
    tiles: FewTiles, gated: bool, itemsize: int, capability: int
) -> int:
    """A program's bytes of shared memory, as the compiler counts; capability 90
    is Hopper."""
    sums = 2 if gated else 1
    if tiles.block_m == 1 and tiles.slots == 1:  # straight into registers
        return 4 * tiles.block_n * tiles.warps
    block = (sums * tiles.block_n + tiles.block_m) * tiles.block_k * itemsize
    # Products of 64 rows that read from shared memory: one block more stays
    # there, and on the large Blackwell chips two barriers for each product.
    if capability // 10 in (9, 10) and tiles.parts == 1 and tiles.block_n >= 64:
        return tiles.slots * block + (16 * sums if capability >= 100 else 0)
    return (tiles.slots - 1) * block


def require_few(sizes: Sizes, tiles: FewTiles) -> None:
    """Raise `ValueError` for sizes that these kernels would compute wrongly."""
    if sizes.rows > tiles.block_m:
        raise ValueError(f"{sizes.rows} tokens are more than {tiles.block_m}")
    if not are_known(sizes):
        raise ValueError(f"{sizes.dim}x{sizes.outputs}: no multiples of 8")


def are_known(sizes: Sizes) -> bool:
    """Whether rows consist of whole 16 bytes, and there are at most 64
    tokens."""
    return (
        sizes.rows <= MOST_TOKENS
        and sizes.dim % 8 == 0
        and sizes.outputs % 8 == 0
    )


def launches_dependents(device: torch.device) -> bool:
    """Whether the device can launch a kernel before the preceding kernel has
    ended: Hopper and later."""
    return device.type == "cuda" and portable.limits(device)[0] >= 90


@functools.lru_cache(maxsize=1024)
def few_tokens_way(
    sizes: Sizes,
    tiles: FewTiles,
    activation: str,
    gated: bool = False,
    has_bias: bool = False,
) -> Launch:
    """A launch to be called with x, the weight, the second weight if `gated`,
    the bias if there is one, and the result."""
    require_few(sizes, tiles)
    rows, dim, outputs, _, device = sizes
    dependent = launches_dependents(device)
    has_bias_now = has_bias and tiles.slices == 1
    flags = (
        gated, has_bias_now, ACTIVATIONS[activation], interpreted(), dependent,
    )  # fmt: skip
    ahead = (tiles.ahead, 32 * tiles.warps, tiles.lead)

    def arguments(x: Tensor, weight: Tensor, *others: Tensor) -> tuple:
        up = others[0] if gated else None
        bias = others[-2] if has_bias_now else None
        if tiles.block_m == 1:
            return (
                x, weight, up, bias, others[-1], outputs, dim, tiles.block_n,
                tiles.block_k, tiles.slots, *ahead, *flags,
            )  # fmt: skip
        return (
            x, weight, up, bias, others[-1], rows, outputs, dim, *tiles[:3],
            tiles.parts, tiles.slices, *ahead, *flags,
        )  # fmt: skip

    launch = Launch(
        one_token_kernel if tiles.block_m == 1 else few_tokens_kernel,
        triton.cdiv(outputs, tiles.block_n) * tiles.slices,
        arguments,
        num_warps=tiles.warps,
        num_stages=tiles.slots,
        launch_pdl=dependent,
    )
    return summed(launch, sizes, tiles.slices, activation, gated, has_bias)


class Sliced(Launch):
    """One launch made of two: the launch for slices of K and the launch that
    adds them up."""

    def __init__(
        self, launch: Launch, last: Launch, weights: int, *shape: int
    ) -> None:
        self.launch, self.last = launch, last
        self.weights, self.shape = weights, shape
        self.kernel = last.kernel

    def __call__(self, *tensors: Tensor) -> None:
        for each, its_tensors in self.parts(tensors):
            each(*its_tensors)

    def compile(self, *tensors: Tensor) -> None:
        for each, its_tensors in self.parts(tensors):
            each.compile(*its_tensors)

    def parts(
        self, tensors: tuple[Tensor, ...]
    ) -> tuple[tuple[Launch, tuple[Tensor, ...]], ...]:
        """Each launch and its tensors: the first takes x and the weights, the
        last the bias and the result; the sums pass between them."""
        inputs = 1 + self.weights
        sums = tensors[-1].new_empty(*self.shape, dtype=torch.float32)
        return (
            (self.launch, (*tensors[:inputs], sums)),
            (self.last, (sums, *tensors[inputs:])),
        )


def summed(
    launch: Launch,
    sizes: Sizes,
    slices: int,
    activation: str,
    gated: bool,
    has_bias: bool,
) -> Launch:
    """The launch, followed by a sum of the slices if there are several."""
    if slices == 1:
        return launch
    count = sizes.rows * sizes.outputs
    dependent = launches_dependents(sizes.device)
    last = Launch(
        sum_slices_kernel,
        triton.cdiv(count, SUM_BLOCK),
        lambda sums, *others: (
            sums, others[0] if has_bias else None, others[-1], count,
            sizes.outputs, slices, SUM_BLOCK, gated, has_bias,
            ACTIVATIONS[activation], interpreted(), dependent,
        ),
        num_warps=4,
        launch_pdl=dependent,
    )  # fmt: skip
    weights = 2 if gated else 1
    return Sliced(launch, last, weights, slices, weights, count)


def few_tokens_gate_up(
    x: Tensor, gate: Tensor, up: Tensor, activation: str, tiles: FewTiles
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T) for at most `tiles.block_m` tokens. x
    is (rows, dim), gate and up are (hidden, dim)."""
    out = x.new_empty(x.shape[0], gate.shape[0])
    few_tokens_way(sizes_of(x, gate), tiles, activation, gated=True)(
        x, gate, up, out
    )
    return out


def few_tokens_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    tiles: FewTiles,
) -> Tensor:
    """activation(x @ weight.T + bias) for at most `tiles.block_m` tokens. x is
    (rows, dim), weight (outputs, dim)."""
    out = x.new_empty(x.shape[0], weight.shape[0])
    way = few_tokens_way(
        sizes_of(x, weight), tiles, activation, has_bias=bias is not None
    )
    way(*[one for one in (x, weight, bias, out) if one is not None])
    return out
