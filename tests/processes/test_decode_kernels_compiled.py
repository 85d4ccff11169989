"""The compiler's code for the kernels of a decode step, read without a GPU, for compute capability 8.0 and 9.0."""

from __future__ import annotations

from typing import Any

import pytest
import triton
from triton.runtime.jit import JITFunction

from snippets.decode_kernels import kernels, persistent
from snippets.decode_kernels.one_kernel import PER_MULTIPROCESSOR, REGISTERS as STEP_REGISTERS, tiles_of_step
from snippets.decode_kernels.sizes import LONG, Tile, slices_for, tiles_for, tokens_for
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
    "qkv": kernels.decode_qkv_kernel,
    "out": kernels.decode_residual_kernel,
    "down": kernels.decode_residual_kernel,
    "gate_up": kernels.decode_gate_up_kernel,
    "head": kernels.decode_head_kernel,
}
PAIRED = ("qkv", "gate_up")
CAPABILITIES = pytest.mark.parametrize("capability", [80, 90])
KINDS = pytest.mark.parametrize(
    ("batch", "int8", "capability"),
    [
        (1, False, 80),
        (1, False, 90),
        (8, False, 90),
        (16, False, 90),
        (1, True, 80),
        (1, True, 90),
        (8, True, 90),
        (16, True, 80),
    ],
)
ROOM = 99 << 10
"""Bytes of shared memory that a program can have on the GPUs with the least."""
SIZES = {2048: 5632, LONG: 14_336}
"""Width of a model -> the width of its MLP, for each of the default tiles for one token."""
HEAD_STACK_BYTES = 64 if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 7) else 0
"""Of the head for 8 texts, Triton 3.7 keeps up to 14 numbers of a thread in memory. Triton 3.6 keeps none."""
SHARED_BYTES = 227 << 10
"""Of a multiprocessor of an H100, and what each of its programs takes in addition."""
SHARED_OF_A_PROGRAM = 1 << 10
NEEDED = 29_000
"""Bytes on their way to a multiprocessor of an H200: 4.8 TB/s for 0.8 us, by 132 multiprocessors."""
NEEDED_UNTUNED = 24_000
"""In int8 for several texts, which use the tiles of bf16."""


def code_of(
    kernel: JITFunction[Any],
    constants: dict[str, object],
    capability: int,
    int8: bool = False,
    warps: int = 4,
    **options: object,
) -> Code:
    types = {name: TYPES[name] for name in kernel.arg_names if name in TYPES}
    for name in {"head_scale"} if kernel is persistent.decode_step_kernel else {"scale"} & {*kernel.arg_names}:
        if kernel is not kernels.decode_attend_kernel:
            types.pop(name, None)
            (types if int8 else constants)[name] = "*fp32" if int8 else None
    if int8:
        types |= dict.fromkeys({"weight", "head"} & {*types}, "*u8")
    if capability >= 90 and "DEPENDENT" in constants:
        options["launch_pdl"] = True
    return read(build(kernel, types, {**constants, "INTERPRETED": False}, capability, warps, 3, **options))


def constants_of(tile: Tile, batch: int, columns: int) -> dict[str, object]:
    cut = {"SLICES": slices_for(batch), "STEPS": tile.steps, "PARTS": tile.warps, "HELD": tile.held}
    return {"K": columns, "TOKENS": tokens_for(batch), "ROWS": tile.rows, **cut}


def loads_of(tile: Tile, batch: int, columns: int, paired: bool, int8: bool, blocks: int = 1000) -> int:
    """Loads of 16 bytes of a thread for so many blocks of a row, or for all of it."""
    slices = slices_for(batch)
    steps = -(-columns * (1 if int8 else 2) // (64 * slices * tile.warps * tile.steps)) * tile.steps
    return min(steps, blocks * tile.steps) * tile.rows * slices // 8 * (2 if paired else 1)


def check_loads(
    code: Code, tile: Tile, batch: int, columns: int, paired: bool, int8: bool, early: bool, again: bool
) -> None:
    """Each thread loads 16 bytes of weights at a time, straight into the registers of the tensor cores' operands. All
    weights that a program holds are on their way before it waits for the kernel before. With `again`, it holds those of
    another tile, too."""
    held, whole = (loads_of(tile, batch, columns, paired, int8, blocks) for blocks in (tile.held, 1000))
    loads = [line for line in code.lines if line.startswith("LDG.E.EF")]
    assert {line.split()[0] for line in loads} == {"LDG.E.EF.128"}
    assert len(loads) == whole + (held if again else 0)
    assert [code.count(name) for name in ("LDGSTS", "I2F")] == [0, 0]
    assert code.count("LDSM") <= (8 if batch > 8 else 2), "of results only"
    if early:
        first = [line.split()[0] for line in code.lines[: 1 + code.lines.index("ACQBULK")]]
        assert len([name for name in first if name == "LDG.E.EF.128"]) == held
        assert not [name for name in first if name.startswith(("BAR", "HMMA"))]
        assert code.count("PREEXIT") == 1
        assert first.index("PREEXIT") < first.index("ACQBULK")


def programs_at_once(code: Code) -> int:
    registers = -(-code.registers // 8) * 8 * code.threads
    return min(REGISTERS // registers, SHARED_BYTES // (code.shared_bytes + SHARED_OF_A_PROGRAM))


@KINDS
def test_products_load_whole_lines_and_spill_nothing(batch: int, int8: bool, capability: int) -> None:
    """On Hopper the first weights are on their way while another kernel runs. Enough bytes are."""
    for width, hidden in SIZES.items():
        tiles = tiles_for(batch, width, int8)
        for part, kernel in PARTS.items():
            tile, columns = getattr(tiles, part), hidden if part == "down" else width
            constants = constants_of(tile, batch, columns) | {"DEPENDENT": capability >= 90}
            more = {"HEAD_DIM": 64} if part == "qkv" else {}
            code = code_of(kernel, constants | more, capability, int8, tile.warps)
            check_resources(code, HEAD_STACK_BYTES if part == "head" and batch == 8 else 0)
            paired = part in PAIRED
            check_loads(code, tile, batch, columns, paired, int8, capability >= 90, part == "head")
            assert code.multiplies_with() == "HMMA"
            assert code.shared_bytes <= ROOM
            if capability >= 90:
                held = loads_of(tile, batch, columns, paired, int8, tile.held) * 16 * code.threads
                needed = NEEDED_UNTUNED if int8 and batch > 1 else NEEDED
                assert programs_at_once(code) * held * (2 if part == "head" else 1) >= needed


@CAPABILITIES
def test_attention_multiplies_on_tensor_cores(capability: int) -> None:
    code = code_of(kernels.decode_attend_kernel, ATTENTION | {"DEPENDENT": capability >= 90}, capability)
    check_resources(code)
    assert code.multiplies_with() == "HMMA"


@pytest.mark.parametrize(("int8", "capability"), [(False, 80), (False, 90), (True, 90)])
def test_a_whole_step_fits_a_multiprocessor(int8: bool, capability: int) -> None:
    """One kernel holds the registers of its largest part: a thread has 210 to 255, and one program of eight warps fits.
    While it waits at a barrier, enough bytes are on their way.

    The compiler keeps up to 4 numbers in memory, in int8 up to 16.
    """
    tiles, (width, hidden) = tiles_of_step(1), list(SIZES.items())[-1]
    tile = tiles.gate_up
    cut = constants_of(tile, 1, width)
    del cut["ROWS"]
    constants = {
        **ATTENTION, **cut, "H": hidden, "HELD_DOWN": tiles.down.held, "HEAD_DIM": 128,
        "GROUP": 4, "BLOCK_KEYS": tiles.block_keys, "QKV": tiles.qkv.rows, "OUT": tiles.out.rows,
        "UP": tiles.gate_up.rows, "DOWN": tiles.down.rows, "HEAD": tiles.head.rows,
    }  # fmt: skip
    more = {"launch_cooperative_grid": True, "maxnreg": STEP_REGISTERS}
    code = code_of(persistent.decode_step_kernel, constants, capability, int8, tile.warps, **more)
    assert code.stack_bytes <= (64 if int8 else 16), "spilled"
    assert 200 < code.registers <= STEP_REGISTERS
    assert code.multiplies_with() == "HMMA"
    assert code.count("ATOMG") <= code.count("LDG.E.STRONG.GPU"), "barriers ask by loads"
    assert programs_at_once(code) >= PER_MULTIPROCESSOR
    for part in ("out", "gate_up", "down"):
        cut = getattr(tiles, part)
        columns = hidden if part == "down" else width
        held = loads_of(cut, 1, columns, part in PAIRED, int8, cut.held) * 16 * code.threads
        assert PER_MULTIPROCESSOR * held >= (NEEDED if not int8 else NEEDED / 2)
