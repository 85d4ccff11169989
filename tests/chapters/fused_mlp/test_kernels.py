"""The plain Triton kernels on the CPU, through Triton's interpreter, against float64 and plain PyTorch.

The interpreter is chosen when Triton is imported, so one process with TRITON_INTERPRET=1 runs all the cases and leaves
what they wrote; the tests look at it here. It truncates float32 to bfloat16 where a GPU rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import few_tokens, hopper, launch, portable, support
from snippets.fused_mlp.geglu.few_tokens import FewTiles
from snippets.fused_mlp.geglu.portable_tiles import PortableTiles
from snippets.fused_mlp.geglu.work import Tiles
from tests.chapters.fused_mlp.checks import ACTIVATIONS, BF16, F16, F32, gated, linear
from tests.chapters.guarded import GUARD, check_guards, save_written

PAIRS = tuple(zip((BF16, F16, F32, BF16, F16), ACTIVATIONS, strict=True))
ROUGH = ("rough_gelu_tanh", "rough_silu")
PORTABLE = ("portable_linear", "portable_gated")
SMALL_TILES = Tiles(64, 32, 2)
PORTABLE_TILES = PortableTiles(64, 32, 32, 2, 4)
WARPS_APART = FewTiles(16, 16, 64, 3)
"""Each warp multiplies a part of K; its blocks divide neither K nor N below."""
WARPS_TOGETHER = FewTiles(64, 32, 32, 3, warps=4, parts=1)
ONE = FewTiles(1, 4, 128, 2)
GATED = ("stacked", "portable_gated", "few_gated")
FEW = ("few_gated", "few_linear")
EXTREMES = (math.nan, math.inf, -math.inf, 1e4, -1e4, 30.0, -30.0, 0.0)


@dataclass(frozen=True)
class Case:
    kernel: str
    dtype: torch.dtype
    activation: str
    shape: tuple[int, ...]
    """Of both tensors of a pointwise kernel; of a product: rows, dim, outputs."""
    tiles: Tiles | PortableTiles | FewTiles = SMALL_TILES
    has_bias: bool = False
    is_view: bool = False
    """Whether the first input is not contiguous."""
    is_extreme: bool = False
    """Whether NaN, infinities and values for which tanh is 1 are among the first input."""

    def __str__(self) -> str:
        flags = [name for name in ("has_bias", "is_view", "is_extreme") if getattr(self, name)]
        dtype = str(self.dtype).removeprefix("torch.")
        shape = "x".join(map(str, self.shape))
        return " ".join([self.kernel, dtype, self.activation, shape, self.tiles.name, *flags])

    def inputs(self) -> list[Tensor]:
        """The arguments, the same in each process: tensors of `dtype`, of which the last one is None without a bias."""
        generator = torch.Generator().manual_seed(7)

        def values(*shape: int, scale: float = 1.0) -> Tensor:
            return (scale * torch.randn(shape, generator=generator)).to(self.dtype)

        if self.kernel in ("forward", "backward", "training"):
            found = [values(*self.shape, scale=2.0) for _ in range(2 if self.kernel == "forward" else 3)]
        else:
            rows, dim, outputs = self.shape
            weights = [values(outputs, dim, scale=max(dim, 1) ** -0.5) for _ in range(2 if self.kernel in GATED else 1)]
            found = [values(rows, dim), *weights]
            found += [values(outputs)] if self.has_bias else []
        if self.is_extreme:
            found[0][:: found[0].shape[0] // len(EXTREMES), 1] = torch.tensor(EXTREMES).to(self.dtype)
        if self.is_view and "linear" in self.kernel:
            found[0] = torch.cat([found[0], found[0]], dim=1)[:, : found[0].shape[1]]
        elif self.is_view:
            found[0] = found[0].t().contiguous().t()
        return found

    def plain(self, *inputs: Tensor) -> list[Tensor]:
        """Plain PyTorch's result for the inputs, in their dtype."""
        if self.kernel == "forward":
            gate, up = inputs
            return [support.act(gate, self.activation) * up]
        if self.kernel == "backward":
            gate, up, d_out = inputs
            leaves = [gate.detach().clone().requires_grad_(), up.detach().clone().requires_grad_()]
            return list(torch.autograd.grad(support.act(leaves[0], self.activation) * leaves[1], leaves, d_out))
        if self.kernel == "training":
            gate, up, d_out = inputs
            leaf = torch.cat([gate, up], dim=1).requires_grad_()
            g, u = leaf.chunk(2, dim=1)
            hidden = support.act(g, self.activation) * u
            return [hidden.detach(), *torch.autograd.grad(hidden, leaf, d_out), hidden.detach()]
        if self.kernel in GATED:
            return [gated(*inputs, self.activation)]
        x, weight, *bias = inputs
        return [linear(x, weight, *bias or [None], self.activation)]

    def run(self) -> None:
        """Run the kernel, which makes its results, in order, by `new_empty`."""
        inputs = self.inputs()
        if self.kernel == "forward":
            gate, up = (one.contiguous() for one in inputs)
            launched = portable.pointwise_launch(gate.numel(), gate.dtype, gate.device, self.activation)
            launched(gate, up, gate.new_empty(*gate.shape))
        elif self.kernel == "backward":
            gate, up, d_out = inputs
            launched = portable.pointwise_backward_launch(gate.numel(), gate.dtype, gate.device, self.activation)
            launched(d_out, gate, up, gate.new_empty(*gate.shape), up.new_empty(*up.shape))
        elif self.kernel == "training":
            gate, up, d_out = inputs
            work = gate.numel(), gate.dtype, gate.device, self.activation, gate.shape[0]
            halves = torch.cat([gate, up], dim=1).chunk(2, dim=1)
            portable.pointwise_launch(*work)(*halves, gate.new_empty(*gate.shape))
            d_pre = gate.new_empty(gate.shape[0], 2 * gate.shape[1]).copy_(torch.cat([gate, up], dim=1)).chunk(2, dim=1)
            hidden = gate.new_empty(*gate.shape).copy_(d_out)
            portable.pointwise_backward_launch(*work, has_hidden=True)(hidden, *d_pre, *d_pre, hidden)
        elif self.kernel == "stacked":
            x, gate, up = inputs
            hopper.stacked_gate_up(x, torch.stack([gate, up]), self.activation, self.tiles)
        else:
            weights = inputs if self.kernel in GATED or self.has_bias else [*inputs, None]
            RUN[self.kernel](*weights, self.activation, self.tiles)


RUN = {
    "linear": hopper.small_linear,
    "portable_linear": portable.portable_linear,
    "portable_gated": portable.portable_gate_up,
    "few_linear": few_tokens.few_tokens_linear,
    "few_gated": few_tokens.few_tokens_gate_up,
}

CASES = [
    *(Case(kernel, dtype, activation, (33, 77))
      for kernel, dtype, activation in product(("forward", "backward"), (BF16, F16, F32), ACTIVATIONS)),
    *(replace(Case("forward", dtype, activation, (40, 3)), is_extreme=True)
      for dtype, activation in product((BF16, F16, F32), ACTIVATIONS)),
    # halves of one matrix, overwritten by their gradients, and the gradient of the result by the result
    *(Case("training", dtype, activation, (5, 77)) for dtype, activation in PAIRS),
    Case("training", F16, "gelu_tanh", (3, portable.POINTWISE_BLOCK // 2 + 8)),
    Case("forward", BF16, "gelu_tanh", (1, 1)),
    Case("forward", BF16, "gelu_tanh", (2, portable.POINTWISE_BLOCK)),
    Case("forward", BF16, "gelu_tanh", (33, 77), is_view=True),
    *(Case(kernel, dtype, activation, (77, 136, 40), Tiles(64, 64, 2) if kernel == "stacked" else SMALL_TILES)
      for kernel, (dtype, activation) in product(("linear", "stacked"), PAIRS)),
    *(Case("linear", dtype, "gelu_tanh", (70, 72, 40), has_bias=True) for dtype in (BF16, F32)),
    *(Case(kernel, F16, "gelu_tanh", shape, Tiles(64, 16, 2, group=2))
      for kernel, shape in product(("linear", "stacked"), [(1, 64, 8), (64, 64, 16), (200, 8, 40), (129, 200, 24)])),
    Case("linear", F16, "gelu_tanh", (77, 136, 40), is_view=True, has_bias=True),
    *(Case(kernel, F32, activation, (40, 72, 24), tiles, is_extreme=True)
      for (kernel, tiles), activation in product(
          [("linear", Tiles(64, 16, 2)), ("stacked", Tiles(64, 16, 2)),
           *((kernel, PORTABLE_TILES) for kernel in PORTABLE)],
          ("gelu_tanh", "relu"))),
    *(Case("portable_gated", F16 if activation == "silu" else BF16, activation, (77, 40, 40), PORTABLE_TILES)
      for activation in (*ACTIVATIONS, *ROUGH)),
    *(Case("portable_linear", F16 if activation == "silu" else BF16, activation, (77, 40, 40), PORTABLE_TILES)
      for activation in ("silu", "none", "rough_gelu_tanh")),
    *(Case(kernel, dtype, activation, (3, 136, 24), WARPS_APART)
      for kernel in FEW for activation, dtype in zip(ACTIVATIONS, (BF16, F16, F32, BF16, F16), strict=True)),
    *(Case(kernel, F16, "gelu_tanh", (rows, dim, outputs), tiles._replace(block_m=block_m, slices=slices))
      for rows, dim, outputs, block_m, tiles, slices, kernels in [
          (1, 64, 16, 8, WARPS_APART, 1, FEW), (3, 200, 24, 16, WARPS_APART, 2, FEW[:1]),
          (16, 136, 40, 16, WARPS_APART, 3, FEW), (17, 8, 8, 32, WARPS_APART, 4, FEW[:1]),
          (64, 72, 24, 64, WARPS_APART, 1, FEW[:1]), (64, 136, 40, 64, WARPS_TOGETHER, 1, FEW),
          (17, 200, 40, 64, WARPS_TOGETHER, 3, FEW[:1])]
      for kernel in kernels),
    Case("few_gated", BF16, "gelu_tanh", (9, 264, 24), WARPS_APART._replace(slices=3)),
    Case("few_linear", F32, "gelu_tanh", (9, 264, 24), WARPS_APART._replace(slices=3)),
    *(Case("few_linear", dtype, "silu", (5, 136, 24), WARPS_APART._replace(slices=slices), has_bias=True)
      for dtype, slices in [(BF16, 1), (F32, 2)]),
    *(Case(kernel, dtype, "gelu_tanh", (1, *shape), ONE)
      for kernel in FEW for dtype, shape in [(BF16, (200, 16)), (F16, (128, 8)), (F32, (8, 24))]),
    Case("few_linear", F32, "gelu", (1, 200, 16), ONE, has_bias=True),
    # One row, whole tiles, sizes that only 4, 2 and 1 divide, and nothing to sum.
    *(Case(kernel, F16, "gelu_tanh", shape, PortableTiles(64, 32, 64, 3, 4, group=2), has_bias="linear" in kernel)
      for kernel, shape in product(PORTABLE, [(1, 64, 8), (64, 64, 16), (200, 8, 40), (129, 204, 20), (33, 70, 22),
                                              (17, 35, 21), (5, 0, 24)])),
]  # fmt: skip
"""Kernels that are only loads and the activation: each dtype with each activation, which is the same code in all. Those
with products: each dtype and each activation. A linear for few tokens runs a part of the code of gate and up: of the
shapes it has the smallest, one in slices and one whose warps share rows."""


def run_all(path: str) -> None:
    """In the process that interprets: all the cases, and what each of them wrote into a file."""
    assert launch.interpreted()
    torch.empty_like = lambda like: like.new_empty(*like.shape)
    assert len(set(map(str, CASES))) == len(CASES), "a name for each"
    save_written(path, CASES, Case.run)


@pytest.fixture(scope="module")
def written(interpreted: Callable[[str], Any]) -> dict[str, list[Tensor]]:
    return interpreted(__name__)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_exact_as_plain_pytorch(case: Case, written: dict[str, list[Tensor]]) -> None:
    """Against float64: the largest error, and all of it together. And nothing is written beside the result, nor beside
    the sums of slices, all of which are."""
    inputs = case.inputs()
    eager, exact = case.plain(*inputs), case.plain(*(tensor.double() for tensor in inputs))
    slices = case.tiles.slices if case.kernel in FEW else 1
    check_guards(written[str(case)], len(eager) + (slices > 1))
    for partial in written[str(case)][len(eager) :]:
        assert (partial.dtype, len(partial) - 2 * GUARD) == (
            F32,
            slices * (1 + (case.kernel in GATED)) * exact[0].numel(),
        )
        assert bool(partial[GUARD:-GUARD].isfinite().all())
    for buffer, plain, right in zip(written[str(case)], eager, exact, strict=False):
        found = buffer[GUARD:-GUARD].view(right.shape)
        assert found.dtype == plain.dtype
        # Here tanh comes from a sigmoid and is exact to 1e-7; where a slope is nearly 0, its sum magnifies that.
        check(found, plain, right, case, absolute=2e-5 if case.kernel in ("backward", "training") else 1e-6)


def check(found: Tensor, plain: Tensor, right: Tensor, case: Case, absolute: float) -> None:
    expected = right.to(found.dtype)  # not `plain`: on a CPU the gelu of infinity is NaN in float32, in float64 not
    infinite, finite = expected.isinf(), expected.isfinite()
    assert bool(expected.isnan().any() and infinite.any()) == case.is_extreme
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[infinite], expected[infinite])
    assert torch.equal(found.isfinite(), finite)
    error, allowed = ((tensor.double() - right)[finite].abs() for tensor in (found, plain))
    if found.dtype == BF16:  # cut off instead of rounded: up to one unit in the last place, where two are allowed
        assert bool((error <= 2 * 2**-7 * right[finite].abs() + absolute).all())
        assert error.norm() <= (1.5 if case.kernel in FEW else 1) * 2**-8 * right[finite].norm()
    else:
        assert error.max() <= 2 * allowed.max() + absolute
        assert error.norm() <= 2 * allowed.norm() + absolute
