"""The compiler's code for the package of decode kernels, without a GPU, for each compute capability of its card."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from triton.runtime.jit import JITFunction

from snippets.decode_kernels.llama_decode import layer_kernels
from snippets.decode_kernels.sizes import LONG, tiles_for
from snippets.fused_mlp.experiments.compiling import Code, build, read
from tests.processes.fused_compiling import REGISTERS, check_resources, with_tools
from tests.processes.test_decode_kernels_compiled import (
    ATTENTION,
    PAIRED,
    ROOM,
    SIZES,
    TYPES,
    check_loads,
    constants_of,
)

pytestmark = with_tools
PACKAGE = Path(__file__).resolve().parents[2] / "snippets/decode_kernels/llama_decode_kernels"
BUILD = tomllib.loads((PACKAGE / "build.toml").read_text(encoding="utf-8"))
CAPABILITIES = [int(one.replace(".", "")) for one in BUILD["torch-noarch"]["cuda_capabilities"]]
POINTERS = {
    **TYPES,
    **dict.fromkeys(("q_weight", "k_weight", "v_weight", "cos", "sin", "gate", "up"), "*bf16"),
    "mask": "*u8",
}
HEADS = {"HEAD_DIM": 64, "COUNTERS": 64}


def code_of(kernel: JITFunction[Any], constants: dict[str, object], capability: int, warps: int = 4) -> Code:
    """The code with `constants`, which may be of arguments that are None."""
    is_late = capability >= 90
    constants = {**constants, "DEPENDENT": is_late, "INTERPRETED": False}
    types = {name: POINTERS[name] for name in kernel.arg_names if name in POINTERS and name not in constants}
    return read(build(kernel, types, constants, capability, warps, 3, **({"launch_pdl": True} if is_late else {})))


def check(code: Code) -> None:
    """At most four numbers are spilled, outside of loops."""
    assert code.registers * code.threads <= REGISTERS
    assert code.stack_bytes <= 16
    assert not any(loop.count("LDL|STL") for loop in code.loops("FFMA|HMMA"))


@pytest.mark.parametrize(("batch", "width"), [*((1, width) for width in SIZES), (8, LONG), (16, LONG)])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_products_load_whole_lines(batch: int, width: int, capability: int) -> None:
    """Also where a program chooses between three weights by its number, and where two weights are apart.

    Up to Hopper, nothing is spilled for one token."""
    tiles = tiles_for(batch, width)
    more: dict[str, object]
    for part, kernel, more in (
        ("qkv", layer_kernels.decode_project_kernel, HEADS),
        ("out", layer_kernels.decode_residual_kernel, {}),
        ("down", layer_kernels.decode_residual_kernel, {}),
        ("gate_up", layer_kernels.decode_gate_up_kernel, {}),
    ):
        tile, columns = getattr(tiles, part), SIZES[width] if part == "down" else width
        code = code_of(kernel, constants_of(tile, batch, columns) | more, capability, tile.warps)
        check(code)
        assert code.shared_bytes <= ROOM
        if capability <= 90 and batch == 1:
            check_resources(code)
        is_early = capability == 90 and part != "qkv"
        check_loads(code, tile, batch, columns, part in PAIRED, int8=False, early=is_early, again=False)
        assert code.multiplies_with() == "HMMA"


@pytest.mark.parametrize("capability", [90, 100])
def test_no_kernel_of_a_layer_loads_weights_that_are_still_written(capability: int) -> None:
    """Its first kernel waits for all that ran before, then lets the next kernel start, and then loads."""
    tile = tiles_for(1, LONG).qkv
    code = code_of(layer_kernels.decode_project_kernel, constants_of(tile, 1, LONG) | HEADS, capability, tile.warps)
    order = [line.split()[0] for line in code.lines if line.startswith(("ACQBULK", "PREEXIT", "LDG.E.EF"))]
    assert order[:3] == ["ACQBULK", "PREEXIT", "LDG.E.EF.128"]


@pytest.mark.parametrize("absent", [(), ("position", "mask")], ids=str)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_attention_multiplies_on_tensor_cores(capability: int, absent: tuple[str, ...]) -> None:
    """With a static cache and its mask, and with a dynamic cache, which has no position and mostly no mask."""
    code = code_of(layer_kernels.decode_attend_kernel, ATTENTION | dict.fromkeys(absent), capability)
    check(code)
    assert code.multiplies_with() == "HMMA"


@pytest.mark.parametrize("capability", [80, 90])
def test_keys_of_a_dynamic_cache_go_to_the_first_row(capability: int) -> None:
    tiles = tiles_for(1, 2048)
    constants = constants_of(tiles.qkv, 1, 2048) | HEADS | {"position": None}
    check_resources(code_of(layer_kernels.decode_project_kernel, constants, capability))
