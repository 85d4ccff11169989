"""The compiler's code for the kernels, read without a GPU: the matrix instructions, no spills, no needless waits."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from snippets.fused_mlp.experiments.absent_gpus import SHARED_LIMITS
from snippets.fused_mlp.experiments.compiling import Code
from snippets.fused_mlp.geglu import kernels
from snippets.fused_mlp.geglu.hopper import PINGPONG, PINGPONG_BACKWARD, PINGPONG_GATED, SMALL, STACKED
from snippets.fused_mlp.geglu.work import BLOCK_K, BackwardTiles, Tiles, backward_shared_bytes
from tests.processes import fused_compiling as compiling
from tests.processes.fused_compiling import BF16, F16

pytestmark = compiling.with_tools

K_OF_A_PRODUCT = 16


def distinct(tilings: Iterable[Tiles]) -> list[Tiles]:
    """One of those that differ in their order only, which the resources do not depend on."""
    return list({(tiles.block_m, tiles.block_n, tiles.slots): tiles for tiles in reversed(tuple(tilings))}.values())


def check_resources(code: Code, capability: int) -> None:
    compiling.check_resources(code)
    assert code.shared_bytes <= SHARED_LIMITS[capability]


def check_products(
    code: Code, width: int, in_a_row: int, dtype: torch.dtype, consumers: int = 1, waits: int = 1
) -> None:
    """In each innermost loop all the products of a block, one after the other, and only then a wait."""
    suffix = ".BF16" if dtype == BF16 else ""
    assert code.names("HGMMA") == {f"HGMMA.64x{width}x16.F32{suffix}"}
    loops = code.loops("HGMMA")
    assert len(loops) == consumers
    for loop in loops:
        events = [line.split()[0] for line in loop.lines if line.startswith(("HGMMA", "WARPGROUP.DEPBAR"))]
        assert [event.partition(".")[0] for event in events] == in_a_row * ["HGMMA"] + waits * ["WARPGROUP"]
    assert code.count("HGMMA") == consumers * in_a_row


@pytest.mark.parametrize(
    ("kernel", "tensors_read", "tensors_written", "capability"),
    [
        (kernels.gated_activation_kernel, 2, 1, 80),
        (kernels.gated_activation_backward_kernel, 3, 2, 90),
        (kernels.gated_activation_backward_kernel, 3, 3, 80),
    ],
    ids=["forward", "backward", "backward and hidden"],
)
def test_pointwise_kernels_move_16_bytes_at_a_time(
    kernel: object, tensors_read: int, tensors_written: int, capability: int
) -> None:
    code = compiling.pointwise(kernel, BF16, "gelu_tanh", capability, has_hidden=tensors_written == 3)
    check_resources(code, capability)
    assert code.names("LDG") == {"LDG.E.128"}
    assert code.names("STG") == {"STG.E.128"}
    assert code.count("LDG") % tensors_read == 0
    assert code.count("LDG") // tensors_read == code.count("STG") // tensors_written
    assert code.names("MUFU") == {"MUFU.EX2", "MUFU.RCP"}


def test_the_small_linear_on_an_ampere_gpu() -> None:
    tiles = SMALL[0]  # the larger ones
    code = compiling.small_linear(tiles, F16, "gelu_tanh", 80)
    check_resources(code, 80)
    assert code.names("HG?MMA") == {"HMMA.16816.F32"}
    # 4 warps share a tile; an instruction multiplies 16 x 8 x 16.
    assert code.count("HMMA") == tiles.block_m * tiles.block_n * BLOCK_K // (16 * 8 * 16) // tiles.warps


def test_the_stacked_kernel_on_an_ampere_gpu() -> None:
    """The smallest tiles; with the others its registers do not suffice."""
    code = compiling.stacked_gate_up(STACKED[-1], BF16, "gelu_tanh", 80)
    check_resources(code, 80)
    assert code.names("HG?MMA") == {"HMMA.16816.F32.BF16"}


@pytest.mark.parametrize(("tiles", "dtype"), [(tiles, F16 if tiles == SMALL[0] else BF16) for tiles in SMALL])
def test_the_small_linear(tiles: Tiles, dtype: torch.dtype) -> None:
    code = compiling.small_linear(tiles, dtype, "gelu_tanh", 90)
    check_resources(code, 90)
    check_products(code, tiles.block_n, BLOCK_K // K_OF_A_PRODUCT, dtype)
    assert code.names("UTMA(LDG|STG)") == {"UTMALDG.2D", "UTMASTG.2D"}


@pytest.mark.parametrize("tiles", [STACKED[1], STACKED[3]])
def test_the_stacked_kernel(tiles: Tiles) -> None:
    """One product as wide as gate and up together, and no exchange between threads to take the two apart."""
    code = compiling.stacked_gate_up(tiles, BF16, "gelu_tanh", 90)
    check_resources(code, 90)
    in_a_row = BLOCK_K // K_OF_A_PRODUCT * tiles.block_m // (16 * tiles.warps)
    check_products(code, 2 * tiles.block_n, in_a_row, BF16, waits=3)  # its one loop holds the end of a tile, too
    assert code.names("UTMA(LDG|STG)") == {"UTMALDG.2D", "UTMALDG.3D", "UTMASTG.2D"}
    assert code.count("SHFL.(BFLY|UP|DOWN)") == 0


@pytest.mark.parametrize(
    ("tiles", "dtype", "activation", "options"),
    [
        *((tiles, BF16, "gelu_tanh", {}) for tiles in distinct(PINGPONG_GATED)),
        (PINGPONG_GATED[0], F16, "gelu", {"save": True}),
        (PINGPONG_GATED[0], BF16, "silu", {"M": 1}),
    ],
)
def test_the_gated_ping_pong_kernel(tiles: Tiles, dtype: torch.dtype, activation: str, options: dict[str, int]) -> None:
    code = compiling.pingpong(tiles, dtype, activation, gated=True, **options)
    check_ping_pong(code, tiles, 2 * tiles.block_n, dtype)
    assert code.count("UTMALDG") == 3, "x, gate, up"
    assert code.count("UTMASTG") == 2 * (3 if "save" in options else 1), "each consumer"
    assert code.count("SHFL.(BFLY|UP|DOWN)") == 0


@pytest.mark.parametrize(
    ("tiles", "dtype", "activation", "has_bias"),
    [
        # Not "gelu", whose erf takes more registers than the widest tile leaves.
        *((tiles, BF16, "gelu_tanh", True) for tiles in distinct(PINGPONG)),
        (PINGPONG[0], F16, "none", False),
    ],
)
def test_the_ping_pong_kernel_of_a_linear(tiles: Tiles, dtype: torch.dtype, activation: str, has_bias: bool) -> None:
    code = compiling.pingpong(tiles, dtype, activation, gated=False, has_bias=has_bias)
    check_ping_pong(code, tiles, tiles.block_n, dtype)
    assert code.count("UTMALDG") == 2, "x, weight"
    assert code.count("UTMASTG") == 2, "each consumer"


@pytest.mark.parametrize(
    ("tiles", "dtype", "activation", "has_hidden"),
    [
        # The largest tiles with the activation that takes the most registers: no other one spills if this does not.
        (PINGPONG_BACKWARD[0], F16, "gelu", True),
        (PINGPONG_BACKWARD[0], BF16, "gelu_tanh", True),
        (PINGPONG_BACKWARD[2], BF16, "gelu_tanh", False),
    ],
)
def test_the_ping_pong_kernel_of_the_backward_pass(
    tiles: BackwardTiles, dtype: torch.dtype, activation: str, has_hidden: bool
) -> None:
    code = compiling.pingpong_backward(tiles, dtype, activation, has_hidden)
    check_ping_pong(code, tiles, tiles.block_n, dtype)
    # The weight is read as it lies: its rows are what the product adds up.
    assert {line.split(".tnsp")[-1].split(",")[0] for line in code.lines if line.startswith("HGMMA")} == {"B"}
    # A block of more than 64 columns comes in parts of 64. The compiler may unroll the pieces of a tile.
    pieces = tiles.block_m * tiles.block_n // (tiles.height * tiles.width)
    assert code.count("UTMALDG") - 1 - tiles.block_n // 64 in (2, 2 * pieces), "d_out, down, gate, up"
    assert code.count("UTMASTG") == 2 * pieces * (2 + has_hidden), "each consumer"
    assert code.count("SHFL.(BFLY|UP|DOWN)") == 0, "a piece stays where it is"
    assert code.shared_bytes == backward_shared_bytes(tiles, has_hidden=has_hidden)


def check_ping_pong(code: Code, tiles: Tiles | BackwardTiles, width: int, dtype: torch.dtype) -> None:
    check_resources(code, 90)
    in_a_row = BLOCK_K // K_OF_A_PRODUCT * tiles.block_m // 64
    check_products(code, width, in_a_row, dtype, consumers=2)
    assert code.count("WARPGROUP.DEPBAR") == 2 * 2, "one in the loop of each consumer, one after it"
    # Two consumers of four warps with 240 registers a thread; the producer's four warps keep 24.
    assert code.threads == 3 * 128
    registers = {int(line.split()[-1], 16) for line in code.lines if line.startswith("USETMAXREG")}
    assert registers >= {240, 24}
