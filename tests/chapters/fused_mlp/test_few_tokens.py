"""The kernels for few tokens: what they refuse, which candidates there are, and how they are launched."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import few_tokens, few_tokens_hopper, few_tokens_kernels, hopper, portable, ways
from snippets.fused_mlp.geglu.few_tokens import FewTiles
from snippets.fused_mlp.geglu.work import Sizes
from tests.chapters.fused_mlp.checks import BF16, F32

TILES = FewTiles(16, 16, 64, 3)
LIMITS = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
"""Shared memory that one program may take, by compute capability."""
SIZES = Sizes(16, 4096, 14336, BF16, torch.device("cuda", 0))
each_kind = pytest.mark.parametrize("gated", [True, False], ids=["gate_up", "linear"])


@pytest.fixture
def on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "is_hopper", lambda device: True)
    monkeypatch.setattr(hopper, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(portable, "limits", lambda device: (90, LIMITS[90]))


def test_more_tokens_than_a_tile_has_are_refused() -> None:
    x, weight = torch.zeros(17, 8), torch.zeros(8, 8)
    with pytest.raises(ValueError, match="17 tokens are more than 16"):
        few_tokens.few_tokens_linear(x, weight, None, "none", TILES)
    with pytest.raises(ValueError, match="17 tokens are more than 8"):
        few_tokens_hopper.few_tokens_hopper_gate_up(x, weight, weight, "none", FewTiles(8, 64, 64, 3))


@pytest.mark.parametrize(("dim", "outputs"), [(12, 8), (8, 12)])
@pytest.mark.usefixtures("on_hopper")
def test_widths_that_8_does_not_divide_are_refused(dim: int, outputs: int) -> None:
    """The kernels would do them wrong; other ways remain."""
    x, weight = torch.zeros(1, dim), torch.zeros(outputs, dim)
    with pytest.raises(ValueError, match=f"{dim}x{outputs}: no multiples of 8"):
        few_tokens.few_tokens_linear(x, weight, None, "none", TILES)
    known = SIZES._replace(rows=1, dim=8, outputs=8)
    unknown = known._replace(dim=dim, outputs=outputs)
    for sizes, are_there in ((known, True), (unknown, False), (known._replace(rows=65), False)):
        assert bool(ways.few_ways(sizes, "silu", gated=True, has_bias=False, only_portable=False)) == are_there


@pytest.mark.usefixtures("on_hopper")
def test_weights_come_first_only_behind_kernels_that_wait() -> None:
    """Those for few tokens let the next one start after they have waited: it finds all weights written."""
    back = SIZES._replace(dim=14336, outputs=4096)
    gate_up = ways.gate_up_ways(SIZES, "silu")
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
    out = few_tokens.few_tokens_linear(x, weight, bias, "none", TILES._replace(slices=2))
    (first, (first_x, first_weight, sums)), (last, (last_sums, last_bias, last_out)) = seen
    assert (first, last) == (few_tokens_kernels.few_tokens_kernel, few_tokens_kernels.sum_slices_kernel)
    assert (first_x is x, first_weight is weight, last_bias is bias, last_out is out) == (True, True, True, True)
    assert sums is last_sums
    assert (sums.shape, sums.dtype) == ((2, 1, 3 * 40), F32)


@each_kind
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


@each_kind
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
