"""The chapter's kernels compiled for a GPU that is not there."""

from __future__ import annotations

import torch
from triton.runtime.jit import JITFunction

from snippets.fused_mlp.experiments.compiling import Code, compiled
from snippets.fused_mlp.geglu import backward_kernels, hopper, hopper_kernels, kernels, pingpong_kernels, portable
from snippets.fused_mlp.geglu.work import BLOCK_K, BackwardTiles, Tiles

SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


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
    tiles: Tiles,
    dtype: torch.dtype,
    activation: str,
    gated: bool,
    has_bias: bool = False,
    save: bool = False,
    **one: int,
) -> Code:
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


def _constants(tiles: Tiles, activation: str) -> dict[str, object]:
    return {
        "BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "BLOCK_K": BLOCK_K, "GROUP": tiles.group,
        "ACTIVATION": kernels.ACTIVATIONS[activation].value,
    }  # fmt: skip


def _block(dtype: torch.dtype, *block: int) -> str:
    return f"tensordesc<{SHORT[dtype]}{list(block)}>"


def swizzled(dtype: torch.dtype, *block: int) -> str:
    return f"tensordesc<{SHORT[dtype]}{list(block)},{hopper.swizzle(dtype, *block)!r}>"
