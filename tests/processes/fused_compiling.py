"""The chapter's kernels compiled for a GPU that is not there."""

from __future__ import annotations

import functools

import pytest
import torch
from triton.runtime.jit import JITFunction

from snippets.fused_mlp.experiments.compiling import Code, compiled, missing_tools
from snippets.fused_mlp.geglu import (
    backward_kernels,
    few_tokens_hopper_kernels,
    few_tokens_kernels,
    hopper,
    hopper_kernels,
    kernels,
    pingpong_kernels,
    portable,
)
from snippets.fused_mlp.geglu.few_tokens import SUM_BLOCK, FewTiles
from snippets.fused_mlp.geglu.work import BLOCK_K, BackwardTiles, Tiles

BF16, F16 = torch.bfloat16, torch.float16
SHORT = {BF16: "bf16", F16: "fp16", torch.float32: "fp32"}
REGISTERS = 65_536
"""All of a multiprocessor."""
MISSING = missing_tools()
with_tools = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    # Triton 3.9 asks once how products and sums are fused, and goes on as before.
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]


def check_resources(code: Code, stack_bytes: int = 0) -> None:
    """A program fits a multiprocessor, and keeps at most so many bytes of a thread in memory."""
    assert code.stack_bytes <= stack_bytes, "spilled"
    assert stack_bytes or not code.count("STL") + code.count("LDL"), "spilled"
    assert code.registers * code.threads <= REGISTERS


def pointwise(
    kernel: JITFunction, dtype: torch.dtype, activation: str, capability: int, has_hidden: bool = False
) -> Code:
    names = ("gate", "up", "out", "d_out", "d_gate", "d_up", *(["hidden"] * has_hidden))
    pointers = {name: f"*{SHORT[dtype]}" for name in names}
    constants = {
        "BLOCK": portable.POINTWISE_BLOCK, "ACTIVATION": kernels.ACTIVATIONS[activation].value, "INTERPRETED": False,
        **({} if has_hidden or "hidden" not in kernel.arg_names else {"hidden": None}),
    }  # fmt: skip
    return compiled(kernel, pointers, constants, capability, portable.POINTWISE_WARPS)


def small_linear(tiles: Tiles, dtype: torch.dtype, activation: str, capability: int, has_bias: bool = True) -> Code:
    types = {
        "x_desc": _block(dtype, tiles.block_m, BLOCK_K),
        "weight_desc": _block(dtype, tiles.block_n, BLOCK_K),
        "out_desc": _block(dtype, tiles.block_m, tiles.block_n),
        "bias": f"*{SHORT[dtype]}",
    }
    constants = {**_constants(tiles, activation), "HAS_BIAS": has_bias, "INTERPRETED": False}
    constants["DEPENDENT"] = capability >= 90
    return compiled(hopper_kernels.linear_kernel, types, constants, capability, tiles.warps, tiles.slots)


def stacked_gate_up(tiles: Tiles, dtype: torch.dtype, activation: str, capability: int) -> Code:
    types = {
        "x_desc": _block(dtype, tiles.block_m, BLOCK_K),
        "weights_desc": _block(dtype, 2, tiles.block_n, BLOCK_K),
        "out_desc": _block(dtype, tiles.block_m, tiles.block_n),
    }
    constants = {**_constants(tiles, activation), "INTERPRETED": False}
    return compiled(hopper_kernels.gate_up_kernel, types, constants, capability, tiles.warps, tiles.slots)


def pingpong(
    tiles: Tiles, dtype: torch.dtype, activation: str, gated: bool, has_bias: bool = False, save: bool = False,
    **one: int,
) -> Code:  # fmt: skip
    """For Hopper. `one` names sizes that are 1, which Triton makes constants: `M=1`."""
    result = swizzled(dtype, tiles.block_m, tiles.block_n)
    weights = swizzled(dtype, tiles.block_n, BLOCK_K)
    types = {
        "x_desc": swizzled(dtype, tiles.block_m, BLOCK_K), "gate_desc": weights, "up_desc": weights,
        "bias": f"*{SHORT[dtype]}", "out_desc": result, "saved_gate_desc": result, "saved_up_desc": result,
    }  # fmt: skip
    constants = {**_constants(tiles, activation), "SLOTS": tiles.slots, "LEAD": tiles.lead, **one}
    constants |= {"GATED": gated, "HAS_BIAS": has_bias, "SAVE": save}
    return compiled(pingpong_kernels.pingpong_kernel, types, constants, 90)


def pingpong_backward(tiles: BackwardTiles, dtype: torch.dtype, activation: str, has_hidden: bool = True) -> Code:
    """For Hopper."""
    piece = swizzled(dtype, tiles.height, tiles.width)
    types = {
        "d_out_desc": swizzled(dtype, tiles.block_m, BLOCK_K), "down_desc": swizzled(dtype, BLOCK_K, tiles.block_n),
        **dict.fromkeys(("gate_desc", "up_desc", "d_gate_desc", "d_up_desc", "hidden_desc"), piece),
    }  # fmt: skip
    constants = {
        "BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "BLOCK_K": BLOCK_K, "SLOTS": tiles.slots,
        "HEIGHT": tiles.height, "WIDTH": tiles.width, "STAGES": tiles.stages, "GROUP": tiles.group, "LEAD": tiles.lead,
        "ACTIVATION": kernels.ACTIVATIONS[activation].value,
    }  # fmt: skip
    if not has_hidden:
        del types["hidden_desc"]
        constants["hidden_desc"] = None
    return compiled(backward_kernels.pingpong_backward_kernel, types, constants, 90)


def few_tokens(
    tiles: FewTiles, dtype: torch.dtype, gated: bool, capability: int, has_bias: bool = False, activation: str = "gelu"
) -> Code:
    types = dict.fromkeys(("x", "weight", "up", "bias", "out"), f"*{SHORT[dtype]}")
    if tiles.slices > 1:
        types["out"] = "*fp32"
    values = _few_constants(tiles, gated, has_bias, activation)
    values |= {"THREADS": 32 * tiles.warps, "INTERPRETED": False, "DEPENDENT": capability >= 90}
    if tiles.block_m == 1:
        kernel = few_tokens_kernels.one_token_kernel
        del values["BLOCK_M"], values["SLICES"], values["PARTS"]
        values["STAGES"] = tiles.slots
    else:
        kernel = few_tokens_kernels.few_tokens_kernel
    return compiled(kernel, types, values, capability, tiles.warps, tiles.slots)


@functools.cache
def few_tokens_hopper(
    tiles: FewTiles, dtype: torch.dtype, gated: bool, weights_first: bool, has_bias: bool = False
) -> Code:
    short = f"*{SHORT[dtype]}"
    weight = swizzled(dtype, tiles.block_n * tiles.parts, tiles.block_k)
    types = {
        "x_desc": swizzled(dtype, tiles.block_m * tiles.parts, tiles.block_k), "weight_desc": weight, "up_desc": weight,
        "weight": short, "up": short, "bias": short, "out": "*fp32" if tiles.slices > 1 else short,
    }  # fmt: skip
    values = _few_constants(tiles, gated, has_bias, "gelu_tanh")
    values |= {"SLOTS": tiles.slots, "WEIGHTS_FIRST": weights_first}
    return compiled(few_tokens_hopper_kernels.few_tokens_hopper_kernel, types, values, 90)


def sum_of_slices(gated: bool, capability: int) -> Code:
    values = {"SLICES": 4, "BLOCK": SUM_BLOCK, "GATED": gated, "HAS_BIAS": False, "ACTIVATION": 1}
    values |= {"INTERPRETED": False, "DEPENDENT": capability >= 90}
    types = {"slices": "*fp32", "bias": "*bf16", "out": "*bf16"}
    return compiled(few_tokens_kernels.sum_slices_kernel, types, values, capability)


def _few_constants(tiles: FewTiles, gated: bool, has_bias: bool, activation: str) -> dict[str, object]:
    return {
        "BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "BLOCK_K": tiles.block_k, "SLICES": tiles.slices,
        "PARTS": tiles.parts, "AHEAD": tiles.ahead, "LEAD": tiles.lead, "GATED": gated, "HAS_BIAS": has_bias,
        "ACTIVATION": kernels.ACTIVATIONS[activation].value,
    }  # fmt: skip


def _constants(tiles: Tiles, activation: str) -> dict[str, object]:
    return {
        "BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "BLOCK_K": BLOCK_K, "GROUP": tiles.group,
        "ACTIVATION": kernels.ACTIVATIONS[activation].value,
    }  # fmt: skip


def _block(dtype: torch.dtype, *block: int) -> str:
    return f"tensordesc<{SHORT[dtype]}{list(block)}>"


def swizzled(dtype: torch.dtype, *block: int) -> str:
    return f"tensordesc<{SHORT[dtype]}{list(block)},{hopper.swizzle(dtype, *block)!r}>"
