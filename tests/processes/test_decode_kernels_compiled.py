"""The compiler's code for the kernels of a decode step, read without a GPU, for compute capability 8.0 and 9.0."""

from __future__ import annotations

from typing import Any

import pytest
from triton.runtime.jit import JITFunction

from snippets.decode_kernels import kernels, persistent
from snippets.decode_kernels.sizes import FEW_TOKENS, ONE_TOKEN, Tile
from snippets.fused_mlp.experiments.compiling import Code, build, read
from tests.processes.fused_compiling import check_resources, with_tools

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
ATTENTION = {"HEAD_DIM": 64, "GROUP": 16, "BLOCK_KEYS": 64, "SPLITS": 16}
CAPABILITIES = pytest.mark.parametrize("capability", [80, 90])
BATCHES = pytest.mark.parametrize("tokens", [1, 8])


def code_of(kernel: JITFunction[Any], constants: dict[str, object], capability: int, **options: object) -> Code:
    types = {name: TYPES[name] for name in kernel.arg_names if name in TYPES}
    if capability >= 90 and "DEPENDENT" in constants:
        options["launch_pdl"] = True
    return read(build(kernel, types, {**constants, "INTERPRETED": False}, capability, 4, 3, **options))


def constants_of(tile: Tile, tokens: int, capability: int) -> dict[str, object]:
    tiles = ONE_TOKEN if tokens == 1 else FEW_TOKENS
    return {
        "TOKENS": tokens, "BLOCK_N": tile.rows, "BLOCK_K": tile.block_k, "STAGES": tile.stages, "AHEAD": tiles.ahead,
        "THREADS": 32 * tile.warps, "DEPENDENT": capability >= 90,
    }  # fmt: skip


@CAPABILITIES
@BATCHES
def test_products_copy_whole_lines_and_spill_nothing(tokens: int, capability: int) -> None:
    """Weights are copied 16 bytes at a time; on Hopper the next weights are asked for while another kernel runs."""
    tiles = ONE_TOKEN if tokens == 1 else FEW_TOKENS
    for kernel, tile in (
        (kernels.qkv_kernel, tiles.qkv),
        (kernels.residual_kernel, tiles.out),
        (kernels.gate_up_kernel, tiles.gate_up),
        (kernels.head_kernel, tiles.head),
    ):
        constants = constants_of(tile, tokens, capability)
        code = code_of(kernel, constants | ({"HEAD_DIM": 64} if kernel is kernels.qkv_kernel else {}), capability)
        check_resources(code)
        assert code.count(r"LDGSTS\.E\.BYPASS\.128") >= 15
        assert code.multiplies_with() == ("HMMA" if tokens > 1 else "")
        assert bool(code.count("UBLKPF")) == (capability >= 90)


@CAPABILITIES
def test_attention_multiplies_on_tensor_cores(capability: int) -> None:
    code = code_of(kernels.attend_kernel, ATTENTION | {"DEPENDENT": capability >= 90}, capability)
    check_resources(code)
    assert code.multiplies_with() == "HMMA"


@CAPABILITIES
def test_a_whole_step_fits_a_multiprocessor(capability: int) -> None:
    """One kernel holds every part's registers: the number of registers of a thread is near its limit of 255."""
    tiles = ONE_TOKEN
    constants = {
        **ATTENTION, "TOKENS": 1, "QKV_N": tiles.qkv.rows, "OUT_N": tiles.out.rows, "UP_N": tiles.gate_up.rows,
        "DOWN_N": tiles.down.rows, "HEAD_N": tiles.head.rows, "BLOCK_K": tiles.gate_up.block_k,
        "STAGES": tiles.gate_up.stages, "AHEAD": tiles.ahead if capability >= 90 else 0, "THREADS": 128,
    }  # fmt: skip
    code = code_of(persistent.step_kernel, constants, capability, launch_cooperative_grid=True)
    check_resources(code)
    assert code.multiplies_with() == "HMMA"
