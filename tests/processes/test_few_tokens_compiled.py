"""The compiler's code for the kernels for few tokens, read without a GPU: asynchronous copies, no spills, and the
prefetches while the preceding kernel still runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from snippets.fused_mlp.experiments.absent_gpus import SHARED_LIMITS
from snippets.fused_mlp.experiments.compiling import Code
from snippets.fused_mlp.geglu.few_tokens import FewTiles, few_tokens_tiles, shared_bytes
from snippets.fused_mlp.geglu.few_tokens_hopper import hopper_shared_bytes, hopper_tiles
from tests.processes.fused_compiling import (
    BF16,
    F16,
    check_resources,
    few_tokens,
    few_tokens_hopper,
    sum_of_slices,
    with_tools,
)

pytestmark = with_tools


def order(code: Code, *patterns: str) -> list[str]:
    """The first of each kind of instruction, as they come."""
    first = {}
    for place, line in enumerate(code.lines):
        for pattern in patterns:
            if line.startswith(pattern):
                first.setdefault(pattern, place)
    return sorted(first, key=first.__getitem__)


def candidates() -> Iterator[tuple[int, bool, FewTiles]]:
    """Every one for one architecture, in turn; where there is a GPU, for all.

    Of those for one token gate and up's: a linear is compiled to a part of the same code.
    """
    every = torch.cuda.is_available()
    found = [
        (gated, tiles)
        for gated in (True, False)
        for rows in (1, 16, 32, 64)
        for tiles in few_tokens_tiles(rows, gated, 2, 90, SHARED_LIMITS[90])
        if rows > 1 or (tiles.block_m == 1 and (gated or every))  # of those for 8 tokens one, below
    ]
    for place, (gated, tiles) in enumerate(found):
        for capability in SHARED_LIMITS if every else (tuple(SHARED_LIMITS)[place % len(SHARED_LIMITS)],):
            if shared_bytes(tiles, gated, 2, capability) <= SHARED_LIMITS[capability]:
                yield capability, gated, tiles


CANDIDATES = [
    pytest.param(*each, id=f"{each[0]} {'gate_up' if each[1] else 'linear'} {each[2].name}") for each in candidates()
]


def test_every_architecture_is_among_those_compiled() -> None:
    assert {each.values[0] for each in CANDIDATES} == set(SHARED_LIMITS)


@pytest.mark.parametrize(("capability", "gated", "tiles"), CANDIDATES)
def test_every_candidate(capability: int, gated: bool, tiles: FewTiles) -> None:
    """Copies run beside the products, but for the kernel that reads straight into registers, 16 bytes at a time."""
    code = few_tokens(tiles, BF16, gated, capability)
    check_resources(code)
    # from Hopper on the system takes 1 KiB for itself, which the tools show where the program takes less
    assert code.shared_bytes == max(shared_bytes(tiles, gated, 2, capability), 1024 if capability >= 90 else 0)
    if tiles.slots == 1:
        assert code.names(r"LDG\.") == {"LDG.E.128", "LDG.E.EF.128"}, "x, and weights that are evicted first"
    else:
        assert code.count("LDGSTS.E.BYPASS.128") > 0
        assert code.names(r"LDG\.") == set()
    if capability >= 90:  # griddepcontrol.wait and griddepcontrol.launch_dependents
        assert code.count("ACQBULK") == code.count("PREEXIT") == 1
        assert order(code, "UBLKPF", "ACQBULK", "LDGSTS", "LDG.")[:2] == ["UBLKPF", "ACQBULK"]


@pytest.mark.parametrize("capability", [80, 90])
def test_each_warp_reads_what_no_other_one_reads(capability: int) -> None:
    """A warp multiplies 16 rows by 16 tokens with its 64 of 256 elements of K."""
    code = few_tokens(FewTiles(16, 16, 256, 3), BF16, True, capability)
    assert code.names("H?G?MMA") == {"HMMA.16816.F32.BF16"}
    # an instruction multiplies 16 x 8 x 16
    assert code.count("HMMA") == 2 * (16 // 8) * (64 // 16)
    # each brings four matrices of 8 x 8: gate's, up's and the tokens' 16 x 64
    assert code.count("LDSM.16.M88.4") == code.count("LDSM") == 3 * 16 * 64 // 256
    assert code.names("LDGSTS") == {"LDGSTS.E.BYPASS.128"}
    assert code.count("LDGSTS") == 3 * (16 * 256 * 2 // 16 * 3) // 128, "two stages before the loop, one in it"


def test_products_of_64_rows_on_hopper() -> None:
    code = few_tokens(FewTiles(64, 64, 64, 4, warps=4, parts=1, lead=0), F16, True, 90)
    assert code.names("H?G?MMA") == {"HGMMA.64x64x16.F32"}
    code = few_tokens_hopper(FewTiles(16, 64, 64, 4, parts=1), F16, False, weights_first=True, has_bias=True)
    check_resources(code)
    assert code.names("HGMMA") == {"HGMMA.64x16x16.F32"}


@pytest.mark.parametrize(
    ("tiles", "gated", "has_bias", "activation"),
    [
        (FewTiles(8, 16, 256, 3), True, False, "silu"),
        (FewTiles(16, 16, 256, 3), False, True, "gelu_tanh"),
        (FewTiles(1, 4, 1024, 4), False, True, "gelu_tanh"),
    ],
    ids=["8", "16", "1"],
)
def test_half_precision(tiles: FewTiles, gated: bool, has_bias: bool, activation: str) -> None:
    check_resources(few_tokens(tiles, F16, gated, 80, has_bias, activation))


@pytest.mark.parametrize(("gated", "capability"), [(True, 90), (False, 80)], ids=["gate_up", "linear"])
def test_sums_of_slices_are_read_16_bytes_at_a_time(gated: bool, capability: int) -> None:
    code = sum_of_slices(gated, capability)
    check_resources(code)
    assert code.names(r"LDG\.") == {"LDG.E.128"}
    assert code.count(r"LDG\.") == 4 * (2 if gated else 1)
    if capability >= 90:
        assert order(code, "ACQBULK", "LDG", "STG") == ["ACQBULK", "LDG", "STG"]


def hopper_candidates() -> list[tuple[bool, FewTiles]]:
    """Of each cut of the weights the one with the most tokens, which takes the most registers, and one for one token;
    where there is a GPU, all."""
    every = [
        (gated, tiles) for gated in (True, False) for rows in (1, 16, 64) for tiles in hopper_tiles(rows, 4096, gated)
    ]
    if torch.cuda.is_available():
        return every
    return [every[0], *{(gated, *tiles[1:3]): (gated, tiles) for gated, tiles in every}.values()]


HOPPER_CANDIDATES = [
    pytest.param(gated, tiles, id=f"{'gate_up' if gated else 'linear'} {tiles.name}")
    for gated, tiles in hopper_candidates()
]


def test_every_width_of_a_product_is_among_those_compiled() -> None:
    widths = {(gated, tiles.block_m * tiles.parts) for gated, tiles in (each.values for each in HOPPER_CANDIDATES)}
    assert widths >= {(True, 8), (True, 64), (False, 8), (False, 32), (False, 64)}


@pytest.mark.parametrize(("gated", "tiles"), HOPPER_CANDIDATES)
def test_every_candidate_of_the_hopper_kernel(gated: bool, tiles: FewTiles) -> None:
    """The copy engine brings everything; all products of a block come in a row, and then one wait."""
    code = few_tokens_hopper(tiles, BF16, gated, weights_first=not gated)
    check_resources(code)
    assert code.threads == 128
    assert code.shared_bytes == hopper_shared_bytes(tiles, gated)
    assert code.names("UTMA") == {"UTMALDG.2D"}
    # x, and gate and up or the weight: into each slot before the loop, and in the loop; 64 columns at a time
    loads = 3 if gated else 2
    assert code.count("UTMALDG") % (loads * (tiles.slots + 1)) == 0
    assert code.names("HGMMA") == {f"HGMMA.64x{tiles.block_m * tiles.parts}x16.F32.BF16"}
    (loop,) = code.loops("HGMMA")
    products = tiles.block_k // 16 * max(1, tiles.block_n * tiles.parts * (2 if gated else 1) // 64)
    events = [
        line.split()[0].partition(".")[0] for line in loop.lines if line.startswith(("HGMMA", "WARPGROUP.DEPBAR"))
    ]
    assert events == products * ["HGMMA"] + ["WARPGROUP"]


@pytest.mark.parametrize(
    "tiles", [hopper_tiles(16, 4096, True)[0], hopper_tiles(16, 4096, True)[2]], ids=["64 rows", "32 rows"]
)
def test_no_slot_is_filled_again_before_all_warps_have_read_it(tiles: FewTiles) -> None:
    """In the loop: the products' end, a barrier of all threads, and only then the next copies."""
    (loop,) = few_tokens_hopper(tiles, BF16, True, weights_first=True).loops("HGMMA")
    events = [line.split()[0] for line in loop.lines]
    wait = next(place for place, name in enumerate(events) if name.startswith("WARPGROUP.DEPBAR"))
    later = [name for name in events[wait + 1 :] if name.startswith(("BAR.SYNC", "SYNCS.ARRIVE", "UTMALDG"))]
    assert [name.split(".")[0] for name in later[:3]] == ["BAR", "SYNCS", "BAR"]
    assert not any(name.startswith("UTMALDG") for name in events[:wait])


def test_weights_are_loaded_before_the_kernel_before_has_ended() -> None:
    """And x after it. Where that kernel may write the weights, they are only fetched into the L2 cache."""
    tiles = hopper_tiles(16, 4096, True)[0]
    early = few_tokens_hopper(tiles, BF16, True, weights_first=True)
    assert order(early, "UBLKPF", "UTMALDG", "ACQBULK") == ["UTMALDG", "ACQBULK"]
    before = early.lines[: early.lines.index("ACQBULK")]
    assert sum(line.startswith("UTMALDG") for line in before) == 2 * tiles.slots, "gate's and up's"
    late = few_tokens_hopper(tiles, BF16, True, weights_first=False)
    assert order(late, "UBLKPF", "UTMALDG", "ACQBULK") == ["UBLKPF", "ACQBULK", "UTMALDG"]
