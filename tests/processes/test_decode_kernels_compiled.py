"""The compiler's code for the kernels of a decode step, read without a GPU, for compute capability 8.0 and 9.0."""

from __future__ import annotations

import re
from typing import Any

import pytest
from triton.runtime.jit import JITFunction

from snippets.decode_kernels import kernels, persistent
from snippets.decode_kernels.one_kernel import PER_MULTIPROCESSOR, REGISTERS as STEP_REGISTERS, tiles_of_step
from snippets.decode_kernels.sizes import FEW_TOKENS, LONG, MOST_TOKENS, ROOM as FEW_ROOM, Tile, tiles_for
from snippets.fused_mlp.experiments.compiling import Code, build, read
from tests.processes.fused_compiling import REGISTERS, check_resources, with_tools

pytestmark = with_tools
TYPES = {
    **dict.fromkeys(
        (
            "x",
            "y",
            "gain",
            "weight",
            "rotary",
            "q",
            "keys",
            "values",
            "out",
            "logit",
            "embedding",
            "attended",
            "hidden",
        ),
        "*bf16",
    ),
    **dict.fromkeys(("norm", "head"), "*bf16"),
    **dict.fromkeys(("sums", "tops", "best"), "*fp32"),
    **dict.fromkeys(("arrived", "best_row"), "*i32"),
    **dict.fromkeys(("position", "token", "table"), "*i64"),
    **dict.fromkeys(("eps", "scale"), "fp32"),
}
ATTENTION = {"HEAD_DIM": 64, "GROUP": 8, "BLOCK_KEYS": 64, "SPLITS": 16}
PARTS = {
    "qkv": kernels.qkv_kernel,
    "out": kernels.residual_kernel,
    "down": kernels.residual_kernel,
    "gate_up": kernels.gate_up_kernel,
    "head": kernels.head_kernel,
}
PAIRED = ("qkv", "gate_up")
CAPABILITIES = pytest.mark.parametrize("capability", [80, 90])
KINDS = pytest.mark.parametrize(
    ("tokens", "int8", "capability"),
    [(1, False, 80), (1, False, 90), (8, False, 80), (8, False, 90), (1, True, 90), (8, True, 90)],
)
ROOM = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}
"""Bytes of shared memory that a program can have, by compute capability."""
SIZES = {2048: 5632, LONG: 14_336}
"""Width of a model -> the width of its MLP, for each of the default tiles for one token."""
SHARED_BYTES = 227 << 10
"""Of a multiprocessor of an H100, and what each of its programs takes in addition."""
SHARED_OF_A_PROGRAM = 1 << 10
NEEDED = 29_000
"""Bytes on their way to a multiprocessor of an H200: 4.8 TB/s for 0.8 us, by 132 multiprocessors."""


def code_of(
    kernel: JITFunction[Any],
    constants: dict[str, object],
    capability: int,
    int8: bool = False,
    warps: int = 4,
    **options: object,
) -> Code:
    types = {name: TYPES[name] for name in kernel.arg_names if name in TYPES}
    for name in {"head_scale"} if kernel is persistent.step_kernel else {"scale"} & {*kernel.arg_names}:
        if kernel is not kernels.attend_kernel:
            types.pop(name, None)
            (types if int8 else constants)[name] = "*fp32" if int8 else None
    if int8:
        types |= dict.fromkeys({"weight", "head"} & {*types}, "*i8")
    if capability >= 90 and "DEPENDENT" in constants:
        options["launch_pdl"] = True
    return read(build(kernel, types, {**constants, "INTERPRETED": False}, capability, warps, 3, **options))


def constants_of(tile: Tile, tokens: int, columns: int) -> dict[str, object]:
    return {
        "K": columns, "TOKENS": tokens, "BLOCK_K": tile.block_k, "STAGES": tile.stages, "PARTS": tile.parts,
        "HELD": tile.held,
    }  # fmt: skip


def blocks_held(tile: Tile, columns: int) -> int:
    return min(tile.held, -(-columns // tile.block_k))


def block_bytes(tile: Tile, paired: bool, int8: bool) -> int:
    return tile.rows * tile.block_k * (1 if int8 else 2) * (2 if paired else 1)


def check_held(code: Code, tile: Tile, columns: int, paired: bool, int8: bool) -> None:
    """A program asks for all weights that it holds, each thread for 16 bytes at a time. Only then does it wait for the
    kernel before, and only then for the first weight."""
    wanted = blocks_held(tile, columns) * block_bytes(tile, paired, int8) // (16 * code.threads)
    first = [line.split()[0] for line in code.lines[: 1 + code.lines.index("ACQBULK")]]
    assert [name for name in first if name.startswith("LDG.E.EF")] == ["LDG.E.EF.128"] * wanted
    assert not [name for name in first if name.startswith(("BAR", "FFMA"))]
    assert code.count("PREEXIT") == 1
    assert first.index("PREEXIT") < first.index("ACQBULK")


def check_loops(code: Code, tokens: int, tile: Tile) -> None:
    """Blocks that are not held are copied, 16 bytes at a time, by copies that overtake the products. Copies of the
    token and of the gain of a norm, which threads share, are smaller where a block has fewer than 8 columns for each
    thread. Integers are not converted one by one, at the rate of the few units for that. With several tokens, no warp
    loads the weights of another warp from shared memory."""
    assert code.count("LDGSTS")
    narrow = code.names("LDGSTS") - {"LDGSTS.E.BYPASS.128"}
    copies = sum(code.count(f"{re.escape(name)} ") for name in narrow)
    shared = 1 if tokens > 1 else 2 if tile.block_k < 8 * code.threads else 0
    assert copies <= 2 * shared * tile.stages
    assert code.count("I2F") == 0
    for loop in code.loops("HMMA"):
        assert loop.count("HMMA") <= 32, "each warp multiplies all rows by all columns"


def programs_at_once(code: Code) -> int:
    registers = -(-code.registers // 8) * 8 * code.threads
    return min(REGISTERS // registers, SHARED_BYTES // (code.shared_bytes + SHARED_OF_A_PROGRAM))


@KINDS
def test_products_load_whole_lines_and_spill_nothing(tokens: int, int8: bool, capability: int) -> None:
    """On Hopper the first weights are on their way while another kernel runs. Enough bytes are."""
    for width, hidden in SIZES.items():
        tiles = tiles_for(tokens, int8, width, ROOM[capability], early=capability >= 90)
        for part, kernel in PARTS.items():
            tile, columns = getattr(tiles, part), hidden if part == "down" else width
            constants = constants_of(tile, tokens, columns) | {"BLOCK_N": tile.rows, "DEPENDENT": capability >= 90}
            more = {"HEAD_DIM": 64} if part == "qkv" else {}
            code = code_of(kernel, constants | more, capability, int8, tile.warps)
            check_resources(code)
            paired, whole = part in PAIRED, blocks_held(tile, columns) * tile.block_k >= columns
            if capability >= 90 and not (int8 and tokens > 1):
                check_held(code, tile, columns, paired, int8)
            if blocks_held(tile, columns) * tile.block_k < columns - tile.block_k:  # or it is no loop
                check_loops(code, tokens, tile)
            assert code.multiplies_with() == ("HMMA" if tokens > 1 else "")
            assert code.shared_bytes <= min(ROOM[capability], FEW_ROOM if tokens > 1 and not int8 else 99 << 10)
            blocks = max(blocks_held(tile, columns), 0 if whole else tile.stages - 1)
            blocks *= 2 if part == "head" and whole else 1  # it holds the next tile, too
            assert programs_at_once(code) * blocks * block_bytes(tile, paired, int8) >= 2 * NEEDED


@pytest.mark.parametrize("capability", [80, 86])
@pytest.mark.parametrize("int8", [False, True])
def test_the_most_tokens_find_room(int8: bool, capability: int) -> None:
    tiles = tiles_for(MOST_TOKENS, int8, LONG, ROOM[capability])
    constants = constants_of(tiles.gate_up, MOST_TOKENS, LONG) | {"BLOCK_N": tiles.gate_up.rows, "DEPENDENT": False}
    code = code_of(kernels.gate_up_kernel, constants, capability, int8)
    check_resources(code)
    assert code.shared_bytes <= (FEW_ROOM if tiles is FEW_TOKENS else 99 << 10)
    assert (tiles is FEW_TOKENS) == (capability == 80 and not int8)


@CAPABILITIES
def test_attention_multiplies_on_tensor_cores(capability: int) -> None:
    code = code_of(kernels.attend_kernel, ATTENTION | {"DEPENDENT": capability >= 90}, capability)
    check_resources(code)
    assert code.multiplies_with() == "HMMA"


@pytest.mark.parametrize(("int8", "capability"), [(False, 80), (False, 90), (True, 90)])
def test_a_whole_step_fits_a_multiprocessor(int8: bool, capability: int) -> None:
    """One kernel holds the registers of its largest part: a thread has 210 to 255, and two programs fit. While they
    wait at a barrier, enough bytes are on their way.

    The compiler keeps up to 4 numbers in memory, in int8 up to 16.
    """
    tiles, (width, hidden) = tiles_of_step(1, int8), list(SIZES.items())[-1]
    tile = tiles.gate_up
    constants = {
        **ATTENTION, **constants_of(tile, 1, width), "H": hidden, "HELD_DOWN": tiles.down.held, "HEAD_DIM": 128,
        "GROUP": 4, "BLOCK_KEYS": tiles.block_keys,
        "QKV_N": tiles.qkv.rows, "OUT_N": tiles.out.rows, "UP_N": tiles.gate_up.rows, "DOWN_N": tiles.down.rows,
        "HEAD_N": tiles.head.rows,
    }  # fmt: skip
    code = code_of(
        persistent.step_kernel, constants, capability, int8, launch_cooperative_grid=True, maxnreg=STEP_REGISTERS
    )
    assert code.stack_bytes <= (64 if int8 else 16), "spilled"
    assert 200 < code.registers <= STEP_REGISTERS
    assert code.multiplies_with() == "HMMA"
    assert code.count("ATOMG") <= code.count("LDG.E.STRONG.GPU"), "barriers ask by loads"
    assert programs_at_once(code) >= PER_MULTIPROCESSOR
    for part in ("out", "gate_up", "down"):
        cut = getattr(tiles, part)
        held = blocks_held(cut, hidden if part == "down" else width) * block_bytes(cut, part in PAIRED, int8)
        assert PER_MULTIPROCESSOR * held >= (NEEDED if not int8 else NEEDED / 2)
