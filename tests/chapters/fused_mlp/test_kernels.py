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
from torch.nn import functional as F

from snippets.fused_mlp.geglu import hopper, launch, portable, support
from snippets.fused_mlp.geglu.portable_tiles import PortableTiles
from snippets.fused_mlp.geglu.work import Tiles
from tests.chapters.guarded import GUARD, save_written

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ACTIVATIONS = ("gelu_tanh", "gelu", "silu", "relu", "none")
PAIRS = tuple(zip((BF16, F16, F32, BF16, F16), ACTIVATIONS, strict=True))
ROUGH = ("rough_gelu_tanh", "rough_silu")
PORTABLE = ("portable_linear", "portable_gated")
SMALL_TILES = Tiles(64, 32, 2)
PORTABLE_TILES = PortableTiles(64, 32, 32, 2, 4)
GATED = ("stacked", "portable_gated")
EXTREMES = (math.nan, math.inf, -math.inf, 1e4, -1e4, 30.0, -30.0, 0.0)


@dataclass(frozen=True)
class Case:
    kernel: str
    dtype: torch.dtype
    activation: str
    shape: tuple[int, ...]
    """Of both tensors of a pointwise kernel; of a product: rows, dim, outputs."""
    tiles: Tiles | PortableTiles = SMALL_TILES
    has_bias: bool = False
    is_view: bool = False
    """Whether the first input is not contiguous."""
    is_extreme: bool = False
    """Whether NaN, infinities and values for which tanh is 1 are among the first input."""

    def __str__(self) -> str:
        flags = [name for name in ("has_bias", "is_view", "is_extreme") if getattr(self, name)]
        dtype = str(self.dtype).removeprefix("torch.")
        shape = "x".join(map(str, self.shape))
        return " ".join(
            [self.kernel, dtype, self.activation, shape, f"{self.tiles.block_m}x{self.tiles.block_n}", *flags]
        )

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
            x, gate, up = inputs
            return [support.act(F.linear(x, gate), self.activation) * F.linear(x, up)]
        return [support.act(F.linear(*inputs), self.activation)]

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
        elif self.kernel == "portable_gated":
            portable.portable_gate_up(*inputs, self.activation, self.tiles)
        else:
            x, weight, *bias = inputs
            linear = hopper.small_linear if self.kernel == "linear" else portable.portable_linear
            linear(x, weight, bias[0] if bias else None, self.activation, self.tiles)


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
    # One row, whole tiles, sizes that only 4, 2 and 1 divide, and nothing to sum.
    *(Case(kernel, F16, "gelu_tanh", shape, PortableTiles(64, 32, 64, 3, 4, group=2), has_bias="linear" in kernel)
      for kernel, shape in product(PORTABLE, [(1, 64, 8), (64, 64, 16), (200, 8, 40), (129, 204, 20), (33, 70, 22),
                                              (17, 35, 21), (5, 0, 24)])),
]  # fmt: skip
"""Kernels that are only loads and the activation: each dtype with each activation, which is the same code in all. Those
with products: each dtype and each activation."""


def run_all(path: str) -> None:
    """In the process that interprets: all the cases, and what each of them wrote into a file."""
    assert launch.interpreted()
    torch.empty_like = lambda like: like.new_empty(*like.shape)
    save_written(path, CASES, Case.run)


@pytest.fixture(scope="module")
def written(interpreted: Callable[[str], Any]) -> dict[str, list[Tensor]]:
    return interpreted(__name__)


def test_each_case_has_a_name_of_its_own() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_exact_as_plain_pytorch(case: Case, written: dict[str, list[Tensor]]) -> None:
    """Against float64: the largest error, and all of it together. And nothing is written beside the result."""
    inputs = case.inputs()
    eager, exact = case.plain(*inputs), case.plain(*(tensor.double() for tensor in inputs))
    buffers = written[str(case)]
    assert len(buffers) == len(eager)
    for buffer, plain, right in zip(buffers, eager, exact, strict=True):
        assert bool(torch.cat([buffer[:GUARD], buffer[-GUARD:]]).isnan().all())
        found = buffer[GUARD:-GUARD].view(right.shape)
        assert found.dtype == plain.dtype
        # Here tanh comes from a sigmoid and is exact to 1e-7; where a slope is nearly 0, its sum magnifies that.
        check(found, plain, right, case.is_extreme, absolute=2e-5 if case.kernel in ("backward", "training") else 1e-6)


def check(found: Tensor, plain: Tensor, right: Tensor, is_extreme: bool, absolute: float) -> None:
    expected = right.to(found.dtype)  # not `plain`: on a CPU the gelu of infinity is NaN in float32, in float64 not
    infinite, finite = expected.isinf(), expected.isfinite()
    assert bool(expected.isnan().any() and infinite.any()) == is_extreme
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[infinite], expected[infinite])
    assert torch.equal(found.isfinite(), finite)
    error, allowed = ((tensor.double() - right)[finite].abs() for tensor in (found, plain))
    if found.dtype == BF16:  # cut off instead of rounded: up to one unit in the last place, where two are allowed
        assert bool((error <= 2 * 2**-7 * right[finite].abs() + absolute).all())
        assert error.norm() <= 2**-8 * right[finite].norm()
    else:
        assert error.max() <= 2 * allowed.max() + absolute
        assert error.norm() <= 2 * allowed.norm() + absolute
