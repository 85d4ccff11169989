"""The portable kernels as machine code for each architecture, without a GPU: copies that overtake the products, tensor
cores, no spills, and exactly the shared memory that was reckoned.

Of candidates for gate and up that differ in their stages only one is compiled, for one architecture, and for every
architecture some; where there is a GPU, all for all.
"""

from __future__ import annotations

import re

import pytest

from snippets.fused_mlp.experiments import absent_gpus
from snippets.fused_mlp.experiments.absent_gpus import SHARED_LIMITS
from snippets.fused_mlp.experiments.compiling import Code, read
from snippets.fused_mlp.geglu.portable_tiles import (
    PORTABLE,
    PORTABLE_GATED,
    PortableTiles,
    candidates,
    shared_bytes,
    tensor_cores,
)
from tests.processes.fused_compiling import F16, REGISTERS, check_resources, with_tools

pytestmark = with_tools
ARCHITECTURES = tuple(SHARED_LIMITS)
TILINGS = {2: PORTABLE_GATED, 1: PORTABLE}
"""By the number of weights: gate and up, or that of a linear."""


def diagonal(weights: int) -> list[tuple[PortableTiles, int]]:
    """Each candidate with the next architecture that it fits into. Those that differ in their order are the same, and
    those that differ in their stages run the same loop: the last of them."""
    tilings = absent_gpus.distinct(TILINGS[weights])
    chosen = {tiles._replace(stages=0): tiles for tiles in tilings}.values()
    return [
        (
            tiles,
            next(one for one in (2 * ARCHITECTURES)[place % 6 :] if tiles in fitting(one, weights)),
        )
        for place, tiles in enumerate(chosen, weights)
    ]


def fitting(capability: int, weights: int) -> set[PortableTiles]:
    limit = SHARED_LIMITS[capability]
    return {tiles for tiles in TILINGS[weights] if shared_bytes(tiles, 2, capability, weights) <= limit}


def check(code: Code, tiles: PortableTiles, capability: int, weights: int) -> None:
    check_resources(code)
    assert code.threads == 32 * tiles.warps
    assert code.shared_bytes == shared_bytes(tiles, 2, capability, weights) <= SHARED_LIMITS[capability]
    assert code.multiplies_with() == tensor_cores(tiles, capability)
    check_pipeline(code, tiles, weights)


def check_pipeline(code: Code, tiles: PortableTiles, weights: int) -> None:
    """The loop copies 16 bytes a thread at a time, past the registers, and waits for the oldest block only."""
    assert code.names("LDGSTS") == {"LDGSTS.E.BYPASS.128"}
    (loop,) = code.loops("LDGSTS")
    block_bytes = 2 * tiles.block_k * (tiles.block_m + weights * tiles.block_n)
    assert loop.count("LDGSTS") == block_bytes // (16 * code.threads)
    assert loop.count("HMMA|HGMMA|UTCHMMA") > 0
    # Of x and of the weights: two copies for each block that may still be on its way.
    (allowed,) = {int(found[1], 16) for line in loop.lines if (found := re.match(r"DEPBAR\.LE SB0, (0x\w+)", line))}
    assert allowed == 2 * (tiles.stages - 2) > 0


@pytest.mark.parametrize(("tiles", "capability"), diagonal(2))
def test_gate_and_up(tiles: PortableTiles, capability: int) -> None:
    code = read(absent_gpus.portable(tiles, capability, 2))
    check(code, tiles, capability, 2)
    assert code.count("SHFL") == 0, "gate and up of an element are in one thread"
    assert code.count(r"LDG\.") == 0, "nothing is loaded otherwise"


def test_every_architecture_is_among_those_compiled() -> None:
    assert {capability for _, capability in diagonal(2)} == set(ARCHITECTURES)


@pytest.mark.parametrize(("tiles", "capability"), diagonal(1)[::3])
def test_a_linear(tiles: PortableTiles, capability: int) -> None:
    """With a bias, in float16. Its loop is that of gate and up: a third of the candidates."""
    code = read(absent_gpus.portable(tiles, capability, 1, F16, has_bias=True))
    check(code, tiles, capability, 1)


@pytest.mark.parametrize(
    ("activation", "capability", "special"),
    [
        ("gelu_tanh", 80, {"MUFU.EX2", "MUFU.RCP"}),
        ("gelu", 90, {"MUFU.EX2"}),
        ("rough_gelu_tanh", 89, {"MUFU.TANH"}),
    ],
)
def test_sums_that_end_within_a_block(activation: str, capability: int, special: set[str]) -> None:
    """And activations of each kind, with the instructions of the special function unit that it takes."""
    tiles = PORTABLE_GATED[7]
    code = read(absent_gpus.portable(tiles, capability, 2, F16, activation, is_even=False))
    check(code, tiles, capability, 2)
    # The reciprocal of a whole number's is from the order of tiles.
    assert code.names("MUFU") - {"MUFU.RCP"} == special - {"MUFU.RCP"}


@pytest.mark.parametrize(("alignment", "copy"), [(4, "LDGSTS.E.64"), (2, "LDGSTS.E")])
def test_narrow_rows_are_copied_in_narrow_pieces(alignment: int, copy: str) -> None:
    code = read(absent_gpus.portable(PORTABLE_GATED[10], 80, 2, alignment=alignment, is_even=False))
    assert code.names("LDGSTS") == {copy}
    assert code.shared_bytes == shared_bytes(PORTABLE_GATED[10], 2, 80, 2)


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_every_candidate_for_every_architecture() -> None:
    rows = absent_gpus.matrix()
    by_name = {(weights, tiles.name): tiles for weights in TILINGS for tiles in TILINGS[weights]}
    assert len(rows) == sum(
        len(absent_gpus.distinct([*fitting(one, weights)])) for one in ARCHITECTURES for weights in TILINGS
    )
    for row in rows:
        weights = 2 if row.kernel == "gate_up" else 1
        tiles = by_name[weights, row.tiles]
        assert (row.spills, row.instruction) == (0, tensor_cores(tiles, row.capability)), row
        assert row.copies > 0, row
        assert row.registers * 32 * tiles.warps <= REGISTERS, row
        assert row.shared_bytes == shared_bytes(tiles, 2, row.capability, weights), row


# Which candidates are tried


@pytest.mark.parametrize("capability", ARCHITECTURES)
@pytest.mark.parametrize("rows", [1, 16, 17, 64, 65, 128, 8192])
@pytest.mark.parametrize("tilings", [PORTABLE_GATED, PORTABLE], ids=["gate_up", "linear"])
def test_there_are_candidates_for_all_work(tilings: tuple[PortableTiles, ...], capability: int, rows: int) -> None:
    found = candidates(tilings, capability, SHARED_LIMITS[capability], rows)
    assert len(found) >= 2
    assert len({tiles.name for tiles in tilings}) == len(tilings)
    assert all(tiles.block_m < max(2 * rows, 32) for tiles in found), "half of a tile is work"
    assert all(tiles.block_m >= 64 for tiles in found) or rows <= 64


def test_candidates_are_pruned_by_shared_memory() -> None:
    """A program may take 163 KiB of an A100, 227 of an H100, and 99 of the others."""
    large = PORTABLE_GATED[1]
    assert {one: shared_bytes(large, 2, one, 2) // 1024 for one in ARCHITECTURES} == {
        80: 144, 86: 144, 89: 144, 90: 192, 100: 192, 120: 144,
    }  # fmt: skip
    tried = {one: large in candidates(PORTABLE_GATED, one, SHARED_LIMITS[one], 8192) for one in ARCHITECTURES}
    assert tried == {80: True, 86: False, 89: False, 90: True, 100: True, 120: False}
    assert candidates(PORTABLE_GATED, 80, 0, 8192) == []


# A kernel for an older GPU on a newer one


def test_what_is_compiled_for_ampere_is_assembled_for_hopper() -> None:
    """The same PTX: copies and products of Ampere, in machine code of Hopper."""
    built = absent_gpus.assembled(absent_gpus.portable(PORTABLE_GATED[7], 80, 2), 90)
    code = read(built)
    assert built.kernel == built.asm["cubin"]
    assert code.multiplies_with() == "HMMA"
    assert code.count("LDGSTS") > 0
    assert code.count("STL|LDL") == 0
    assert code.shared_bytes == shared_bytes(PORTABLE_GATED[7], 2, 80, 2)


def test_the_driver_is_given_ptx_for_ampere() -> None:
    """Of a version that drivers know since 2022, and with the parameters that Triton's launcher hands over: pointers,
    sizes and two addresses of scratch memory that nobody needs."""
    built = absent_gpus.for_the_driver(
        absent_gpus.portable(PORTABLE_GATED[7], 80, 2, ptx_version=absent_gpus.OLDEST_PTX)
    )
    text = built.kernel.decode()
    assert text.endswith("\0")
    assert re.findall(r"^\.(version|target) (\S+)$", text, re.MULTILINE) == [("version", "8.0"), ("target", "sm_80")]
    assert re.findall(r"\.param \.(\w+)", text.partition(".entry")[2].partition(")")[0]) == [
        *4 * ["u64"], *3 * ["u32"], *2 * ["u64"],
    ]  # fmt: skip
    assert (built.metadata.global_scratch_size, built.metadata.profile_scratch_size) == (0, 0)
