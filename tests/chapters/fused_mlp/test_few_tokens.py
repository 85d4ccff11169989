"""The Triton kernels for few tokens on the CPU, through Triton's interpreter, against float64 and plain PyTorch.

As in test_kernels.py one process interprets all the cases and leaves what they wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.fused_mlp.geglu import (
    few_tokens,
    few_tokens_hopper,
    few_tokens_kernels,
    hopper,
    launch,
    portable,
    support,
    ways,
)
from snippets.fused_mlp.geglu.few_tokens import FewTiles
from snippets.fused_mlp.geglu.work import Sizes
from tests.chapters.guarded import GUARD, save_written

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ACTIVATIONS = ("gelu_tanh", "gelu", "silu", "relu", "none")
WARPS_APART = FewTiles(16, 16, 64, 3)
"""Each warp multiplies a part of K; its blocks divide neither K nor N below."""
WARPS_TOGETHER = FewTiles(64, 32, 32, 3, warps=4, parts=1)
ONE = FewTiles(1, 4, 128, 2)


@dataclass(frozen=True)
class Case:
    gated: bool
    dtype: torch.dtype
    activation: str
    shape: tuple[int, int, int]
    """Tokens, dim, outputs."""
    tiles: FewTiles
    has_bias: bool = False

    def __str__(self) -> str:
        kind = "gate_up" if self.gated else "linear with a bias" if self.has_bias else "linear"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{kind} {dtype} {self.activation} {'x'.join(map(str, self.shape))} by {self.tiles.name}"

    def inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """x, the weight or gate, and up or the bias; the same in each process."""
        generator = torch.Generator().manual_seed(11)
        rows, dim, outputs = self.shape
        x, weight, up, bias = (
            (scale * torch.randn(shape, generator=generator)).to(self.dtype)
            for shape, scale in [
                ((rows, dim), 1.0),
                ((outputs, dim), dim**-0.5),
                ((outputs, dim), dim**-0.5),
                ((outputs,), 1.0),
            ]
        )
        return x, weight, up if self.gated else bias if self.has_bias else None

    def plain(self, x: Tensor, weight: Tensor, other: Tensor | None) -> Tensor:
        """Plain PyTorch's result for the inputs, in their dtype."""
        if self.gated:
            assert other is not None
            return support.act(F.linear(x, weight), self.activation) * F.linear(x, other)
        return support.act(F.linear(x, weight, other), self.activation)

    def run(self) -> None:
        function = few_tokens.few_tokens_gate_up if self.gated else few_tokens.few_tokens_linear
        function(*self.inputs(), self.activation, self.tiles)


CASES = [
    *(Case(gated, dtype, activation, (3, 136, 24), WARPS_APART)
      for gated in (True, False)
      for activation, dtype in zip(ACTIVATIONS, (BF16, F16, F32, BF16, F16), strict=True)),
    *(Case(gated, F16, "gelu_tanh", (rows, dim, outputs), tiles._replace(block_m=block_m, slices=slices))
      for (rows, block_m), (dim, outputs), (tiles, slices), kinds in zip(
          [(1, 8), (3, 16), (16, 16), (17, 32), (64, 64), (64, 64), (17, 64)],
          [(64, 16), (200, 24), (136, 40), (8, 8), (72, 24), (136, 40), (200, 40)],
          [(WARPS_APART, 1), (WARPS_APART, 2), (WARPS_APART, 3), (WARPS_APART, 4), (WARPS_APART, 1),
           (WARPS_TOGETHER, 1), (WARPS_TOGETHER, 3)],
          ["both", "gated", "both", "gated", "gated", "both", "gated"],
          strict=True)
      for gated in (True, False)[: 2 if kinds == "both" else 1]),
    Case(True, BF16, "gelu_tanh", (9, 264, 24), WARPS_APART._replace(slices=3)),
    Case(False, F32, "gelu_tanh", (9, 264, 24), WARPS_APART._replace(slices=3)),
    *(Case(False, dtype, "silu", (5, 136, 24), WARPS_APART._replace(slices=slices), has_bias=True)
      for dtype, slices in [(BF16, 1), (F32, 2)]),
    *(Case(gated, dtype, "gelu_tanh", (1, dim, outputs), ONE)
      for gated in (True, False)
      for dtype, (dim, outputs) in [(BF16, (200, 16)), (F16, (128, 8)), (F32, (8, 24))]),
    Case(False, F32, "gelu", (1, 200, 16), ONE, has_bias=True),
]  # fmt: skip
"""Each activation and each dtype, not each with each: both are known to code of their own. A linear runs a part of the
code of gate and up: of the shapes it has the smallest, one in slices and one whose warps share rows."""


def run_all(path: str) -> None:
    """In the process that interprets: all the cases, and what each of them wrote into a file."""
    assert launch.interpreted()
    save_written(path, CASES, Case.run)


@pytest.fixture(scope="module")
def written(interpreted: Callable[[str], Any]) -> dict[str, list[Tensor]]:
    return interpreted(__name__)


def test_each_case_has_a_name_of_its_own() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_exact_as_plain_pytorch(case: Case, written: dict[str, list[Tensor]]) -> None:
    """Against float64. Nothing is written beside the result, nor beside the sums of the slices, all of which are."""
    inputs = case.inputs()
    right = case.plain(*(None if tensor is None else tensor.double() for tensor in inputs))
    out, *sums = written[str(case)]
    assert len(sums) == (case.tiles.slices > 1)
    for buffer in (out, *sums):
        assert bool(torch.cat([buffer[:GUARD], buffer[-GUARD:]]).isnan().all())
        assert bool(buffer[GUARD:-GUARD].isfinite().all())
    for partial in sums:
        assert partial.dtype == F32
        assert partial.numel() - 2 * GUARD == case.tiles.slices * (1 + case.gated) * right.numel()
    plain = case.plain(*inputs)
    found = out[GUARD:-GUARD].view(right.shape)
    assert found.dtype == plain.dtype
    error, allowed = (tensor.double() - right for tensor in (found, plain))
    if case.dtype == BF16:  # cut off instead of rounded: one unit in the last place for half of one
        assert bool((error.abs() <= 2 * 2**-7 * right.abs() + 1e-6).all())
        assert error.norm() <= 1.5 * 2**-8 * right.norm()
    else:
        assert error.abs().max() <= 2 * allowed.abs().max() + 1e-6
        assert error.norm() <= 2 * allowed.norm() + 1e-6


def test_more_tokens_than_a_tile_has_are_refused() -> None:
    x, weight = torch.zeros(17, 8), torch.zeros(8, 8)
    with pytest.raises(ValueError, match="17 tokens are more than 16"):
        few_tokens.few_tokens_linear(x, weight, None, "none", FewTiles(16, 16, 64, 3))
    with pytest.raises(ValueError, match="17 tokens are more than 8"):
        few_tokens_hopper.few_tokens_hopper_gate_up(x, weight, weight, "none", FewTiles(8, 64, 64, 3))


@pytest.mark.parametrize(("dim", "outputs"), [(12, 8), (8, 12)])
def test_widths_that_8_does_not_divide_are_refused(dim: int, outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels would do them wrong; other ways remain."""
    x, weight = torch.zeros(1, dim), torch.zeros(outputs, dim)
    with pytest.raises(ValueError, match=f"{dim}x{outputs}: no multiples of 8"):
        few_tokens.few_tokens_linear(x, weight, None, "none", FewTiles(16, 16, 64, 3))
    monkeypatch.setattr(ways, "is_hopper", lambda device: True)
    monkeypatch.setattr(portable, "limits", lambda device: (90, LIMITS[90]))
    known = Sizes(1, 8, 8, BF16, torch.device("cuda", 0))
    assert ways.few_ways(known, "silu", gated=True, has_bias=False, only_portable=False)
    unknown = known._replace(dim=dim, outputs=outputs)
    assert ways.few_ways(unknown, "silu", gated=True, has_bias=False, only_portable=False) == {}
    assert ways.few_ways(known._replace(rows=65), "silu", gated=True, has_bias=False, only_portable=False) == {}


def test_weights_come_first_only_behind_kernels_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for few tokens let the next one start after they have waited: it finds all weights written."""
    monkeypatch.setattr(ways, "is_hopper", lambda device: True)
    monkeypatch.setattr(hopper, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(portable, "limits", lambda device: (90, LIMITS[90]))
    sizes = Sizes(16, 4096, 14336, BF16, torch.device("cuda", 0))
    back = sizes._replace(dim=14336, outputs=4096)
    gate_up = ways.gate_up_ways(sizes, "silu")
    for name, way in gate_up.items():
        found = ways.linear_ways(back, "none", has_bias=False, before=way)
        early = [one for one in found if one.endswith("weights first")]
        candidates = few_tokens_hopper.hopper_tiles(back.rows, back.dim, gated=False)
        assert len(early) == (len(candidates) if name.startswith("few ") else 0)
    assert {name.split()[0] for name in gate_up} == {"ping-pong", "few", "two"}


def test_slices_are_two_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_tokens.Launch, "__call__", lambda launch, *tensors: seen.append((launch.kernel, tensors)))
    seen: list[tuple[object, tuple[Tensor, ...]]] = []
    x, weight, bias = torch.zeros(3, 64), torch.zeros(40, 64), torch.zeros(40)
    out = few_tokens.few_tokens_linear(x, weight, bias, "none", WARPS_APART._replace(slices=2))
    (first, (first_x, first_weight, sums)), (last, (last_sums, last_bias, last_out)) = seen
    assert (first, last) == (few_tokens_kernels.few_tokens_kernel, few_tokens_kernels.sum_slices_kernel)
    assert (first_x is x, first_weight is weight, last_bias is bias, last_out is out) == (True, True, True, True)
    assert sums is last_sums
    assert (sums.shape, sums.dtype) == ((2, 1, 3 * 40), F32)


LIMITS = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
"""Shared memory that one program may take, by compute capability."""


@pytest.mark.parametrize("gated", [True, False], ids=["gate_up", "linear"])
@pytest.mark.parametrize(("rows", "block_m"), [(1, 8), (2, 8), (8, 8), (9, 16), (16, 16), (17, 32), (33, 64), (64, 64)])
def test_candidates_hold_the_tokens_and_fit(rows: int, block_m: int, gated: bool) -> None:
    for capability, limit in LIMITS.items():
        candidates = few_tokens.few_tokens_tiles(rows, gated, 2, capability, limit)
        assert {tiles.block_m for tiles in candidates} - {1} == {block_m}, capability
        assert (1 in {tiles.block_m for tiles in candidates}) == (rows == 1), capability
        assert len({tiles.name for tiles in candidates}) == len(candidates), capability
        sizes = [few_tokens.shared_bytes(tiles, gated, 2, capability) for tiles in candidates]
        assert max(sizes) <= limit, capability


def test_candidates_fit_into_shared_memory() -> None:
    assert few_tokens.few_tokens_tiles(16, True, 2, 86, 49_152) == (FewTiles(16, 16, 256, 3), FewTiles(16, 32, 128, 3))
    assert few_tokens.few_tokens_tiles(16, True, 2, 86, 49_151) == (FewTiles(16, 32, 128, 3),)
    assert few_tokens.few_tokens_tiles(16, True, 2, 86, 40_959) == ()


@pytest.mark.parametrize("gated", [True, False], ids=["gate_up", "linear"])
@pytest.mark.parametrize("rows", [1, 3, 16, 17, 64])
def test_programs_on_hopper_take_all_the_shared_memory(rows: int, gated: bool) -> None:
    """As many as are meant to share a multiprocessor fit, with less than a slot to spare for each."""
    candidates = few_tokens_hopper.hopper_tiles(rows, 4096, gated)
    cuts = few_tokens_hopper.GATE_UP if gated else few_tokens_hopper.LINEAR
    shares = {(block_n, block_k, slices): programs for block_n, block_k, slices, _, programs in cuts}
    assert len({tiles.name for tiles in candidates}) == len(candidates)
    for tiles in candidates:
        programs = shares[tiles.block_n, tiles.block_k, tiles.slices]
        taken = few_tokens_hopper.hopper_shared_bytes(tiles, gated)
        slot = taken // tiles.slots
        assert tiles.slots >= 2
        assert programs * (taken + 1024) <= 228 * 1024 < programs * (taken + slot + 1024)
        assert rows <= tiles.block_m
        assert 8 <= tiles.block_m * tiles.parts <= 64


def test_rows_in_parts_on_hopper() -> None:
    """Where 16 bytes divide the parts, and the parts of all tokens are columns of one product."""

    def parts(rows: int, dim: int) -> list[tuple[int, int]]:
        return [(tiles.block_m, tiles.parts) for tiles in few_tokens_hopper.hopper_tiles(rows, dim, gated=False)]

    assert parts(1, 3072) == [(2, 4), (2, 4), (4, 2), *[(8, 1)] * 3]
    assert parts(16, 3072) == [(16, 4), (16, 2), *[(16, 1)] * 3]
    assert parts(17, 3072) == [(32, 2), *[(32, 1)] * 3]
    assert parts(1, 3088) == [(4, 2), *[(8, 1)] * 3]
    assert parts(64, 3072) == [(64, 1)] * 3


def test_one_slot_is_no_ring() -> None:
    """A block of 16 tokens and 16 rows in four parts takes more than half of what a program has."""
    assert (16, 256, 1, 4, 2) in few_tokens_hopper.LINEAR
    assert (16, 256) not in {tiles[1:3] for tiles in few_tokens_hopper.hopper_tiles(16, 4096, gated=False)}
    x, weight = torch.zeros(1, 72), torch.zeros(8, 72)
    with pytest.raises(ValueError, match="rows of 72 elements have no 4 parts"):
        few_tokens_hopper.few_tokens_hopper_linear(x, weight, None, "none", FewTiles(2, 16, 64, 3))
    with pytest.raises(ValueError, match="rows of 64 elements have no 4 parts"):
        few_tokens_hopper.few_tokens_hopper_gate_up(
            x[:, :64], weight[:, :64], weight[:, :64], "none", FewTiles(2, 16, 64, 3)
        )
