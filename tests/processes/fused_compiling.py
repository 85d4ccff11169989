"""Kernels compiled for a GPU that is not there, and what their machine code holds.

code = compiled(hopper_kernels.linear_kernel, {"bias": "*bf16", ...}, {"BLOCK_M": 64, ...}, capability=90)
code.count("STL"), code.registers, code.shared_bytes
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction
from triton.runtime.jit import JITFunction

from snippets.fused_mlp.geglu import backward_kernels, hopper, hopper_kernels, kernels, portable
from snippets.fused_mlp.geglu.work import BLOCK_K, BackwardTiles, Tiles

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
THREADS_OF_A_WARP = 32
LINE = re.compile(r"^(\.L_\w+:)|^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][^;]*?)\s*;", re.MULTILINE)


@dataclass(frozen=True)
class Code:
    """A compiled kernel."""

    lines: tuple[str, ...]
    """Labels and instructions in order, without predicates: `.L_x_6:`, `HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8]`."""
    registers: int
    """Of a thread when the kernel starts."""
    threads: int
    """Of a program, those of all its roles."""
    stack_bytes: int
    shared_bytes: int

    def names(self, pattern: str) -> set[str]:
        """What the instructions are called that begin so: `{"HGMMA.64x128x16.F32.BF16"}`."""
        return {line.split()[0] for line in self.lines if re.match(pattern, line)}

    def count(self, pattern: str) -> int:
        return sum(bool(re.match(pattern, line)) for line in self.lines)

    def loops(self, pattern: str) -> list[Code]:
        """The innermost loops that hold such an instruction, in order."""
        labels = {line[:-1]: place for place, line in enumerate(self.lines) if line.endswith(":")}
        spans = []
        for end, line in enumerate(self.lines):
            target = re.match(r"BRA .*`\((\.L_\w+)\)", line)
            if target and labels[target[1]] < end:
                spans.append((labels[target[1]], end))
        found = set()
        for place, line in enumerate(self.lines):
            around = [(start, end) for start, end in spans if start < place < end]
            if around and re.match(pattern, line):
                found.add(min(around, key=lambda span: span[1] - span[0]))
        return [replace(self, lines=self.lines[start:end]) for start, end in sorted(found)]


def missing_tools() -> str:
    """Why machine code cannot be read here; empty if it can."""
    missing = [tool for tool in ("cuobjdump", "nvdisasm", "ptxas") if not (TOOLS / tool).exists()]
    return f"this Triton comes without {', '.join(missing)}" if missing else ""


def compiled(
    kernel: JITFunction,
    types: Mapping[str, str],
    constants: Mapping[str, object],
    capability: int,
    warps: int = 4,
    stages: int = 3,
) -> Code:
    """The kernel for compute capability `capability` (80 is 8.0). What is in neither mapping is a 32-bit integer.

    As in a launch, 16 divides addresses, and the count of a pointwise kernel; nothing is known about M, N and K.
    """
    signature = {name: types.get(name, "constexpr" if name in constants else "i32") for name in kernel.arg_names}
    divisible = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or name == "count"
    }
    source = GluonASTSource if isinstance(kernel, GluonJITFunction) else ASTSource
    built = triton.compile(
        source(kernel, signature, {(kernel.arg_names.index(name),): one for name, one in constants.items()}, divisible),
        target=GPUTarget("cuda", capability, THREADS_OF_A_WARP),
        options={"num_warps": warps, "num_stages": stages},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        usage, text = _told("cuobjdump", "-res-usage", file.name), _told("nvdisasm", "-c", file.name)
    used = {name: int(amount) for name, amount in re.findall(r"(REG|STACK|SHARED):(\d+)", usage)}
    threads = re.search(r"\.reqntid (\d+)", built.asm["ptx"])
    assert threads is not None, "no .reqntid in the PTX"
    return Code(
        lines=tuple(label or instruction for label, instruction in LINE.findall(text)),
        registers=used["REG"],
        threads=int(threads[1]),
        stack_bytes=used["STACK"],
        shared_bytes=max(built.metadata.shared, used["SHARED"]),
    )


def _told(tool: str, *arguments: str) -> str:
    return subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True, check=True).stdout


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
    result = _swizzled(dtype, tiles.block_m, tiles.block_n)
    weights = _swizzled(dtype, tiles.block_n, BLOCK_K)
    types = {
        "x_desc": _swizzled(dtype, tiles.block_m, BLOCK_K), "gate_desc": weights, "up_desc": weights,
        "bias": f"*{SHORT[dtype]}", "out_desc": result, "saved_gate_desc": result, "saved_up_desc": result,
    }  # fmt: skip
    constants = {**_constants(tiles, activation), "SLOTS": tiles.slots, "LEAD": tiles.lead, **one}
    constants |= {"GATED": gated, "HAS_BIAS": has_bias, "SAVE": save}
    return compiled(hopper_kernels.pingpong_kernel, types, constants, 90)


def pingpong_backward(tiles: BackwardTiles, dtype: torch.dtype, activation: str, has_hidden: bool = True) -> Code:
    """For Hopper."""
    piece = _swizzled(dtype, tiles.height, tiles.width)
    types = {
        "d_out_desc": _swizzled(dtype, tiles.block_m, BLOCK_K), "down_desc": _swizzled(dtype, BLOCK_K, tiles.block_n),
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


def _swizzled(dtype: torch.dtype, *block: int) -> str:
    return f"tensordesc<{SHORT[dtype]}{list(block)},{hopper.swizzle(dtype, *block)!r}>"
