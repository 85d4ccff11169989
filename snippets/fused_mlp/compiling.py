"""Kernels compiled for a GPU that is not there, and what their machine code holds.

code = compiled(hopper_kernels.linear_kernel, {"bias": "*bf16", ...}, {"BLOCK_M": 64, ...}, capability=90)
code.count("STL"), code.registers, code.shared_bytes
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

from snippets.fused_mlp.geglu.kernels import (
    ACTIVATIONS,
    portable_gate_up_kernel,
    portable_linear_kernel,
)
from snippets.fused_mlp.geglu.portable import (
    PORTABLE,
    PORTABLE_GATED,
    PortableTiles,
    aligned,
    shared_bytes,
)

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
THREADS_OF_A_WARP = 32
LINE = re.compile(
    r"^(\.L_\w+:)|^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][^;]*?)\s*;",
    re.MULTILINE,
)


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
        return {
            line.split()[0] for line in self.lines if re.match(pattern, line)
        }

    def count(self, pattern: str) -> int:
        return sum(bool(re.match(pattern, line)) for line in self.lines)

    def multiplies_with(self) -> str:
        """The instruction of the tensor cores, without its shape: `HGMMA`."""
        return " ".join(
            sorted(
                {
                    name.partition(".")[0]
                    for name in self.names("HMMA|HGMMA|UTC[A-Z]*MMA")
                }
            )
        )

    def loops(self, pattern: str) -> list[Code]:
        """The innermost loops that hold such an instruction, in order."""
        labels = {
            line[:-1]: place
            for place, line in enumerate(self.lines)
            if line.endswith(":")
        }
        spans = []
        for end, line in enumerate(self.lines):
            target = re.match(r"BRA\S* .*`\((\.L_\w+)\)", line)
            if target and labels[target[1]] < end:
                spans.append((labels[target[1]], end))
        found = set()
        for place, line in enumerate(self.lines):
            around = [
                (start, end) for start, end in spans if start < place < end
            ]
            if around and re.match(pattern, line):
                found.add(min(around, key=lambda span: span[1] - span[0]))
        return [
            replace(self, lines=self.lines[start:end])
            for start, end in sorted(found)
        ]


def missing_tools() -> str:
    """Why machine code cannot be read here; empty if it can."""
    missing = [
        tool
        for tool in ("cuobjdump", "nvdisasm", "ptxas")
        if not (TOOLS / tool).exists()
    ]
    return f"this Triton comes without {', '.join(missing)}" if missing else ""


def build(
    kernel: JITFunction,
    types: Mapping[str, str],
    constants: Mapping[str, object],
    capability: int,
    warps: int = 4,
    stages: int = 3,
    **options: object,
) -> CompiledKernel:
    """The kernel for compute capability `capability` (80 is 8.0). What is in neither mapping is a 32-bit integer.

    As in a launch, 16 divides addresses, and the count of a pointwise kernel; nothing is known about M, N and K.
    """
    signature = {
        name: types.get(name, "constexpr" if name in constants else "i32")
        for name in kernel.arg_names
    }
    divisible = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or name == "count"
    }
    values = {
        (kernel.arg_names.index(name),): value
        for name, value in constants.items()
    }
    return triton.compile(
        source_of(kernel)(kernel, signature, values, divisible),
        target=GPUTarget("cuda", capability, THREADS_OF_A_WARP),
        options={"num_warps": warps, "num_stages": stages, **options},
    )


def read(built: CompiledKernel) -> Code:
    """What the machine code of a compiled kernel holds."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        usage, text = (
            _told("cuobjdump", "-res-usage", file.name),
            _told("nvdisasm", "-c", file.name),
        )
    used = {
        name: int(amount)
        for name, amount in re.findall(r"(REG|STACK|SHARED):(\d+)", usage)
    }
    threads = re.search(r"\.reqntid (\d+)", built.asm["ptx"])
    assert threads is not None, "no .reqntid in the PTX"
    return Code(
        lines=tuple(
            label or instruction for label, instruction in LINE.findall(text)
        ),
        registers=used["REG"],
        threads=int(threads[1]),
        stack_bytes=used["STACK"],
        shared_bytes=max(built.metadata.shared, used["SHARED"]),
    )


def compiled(
    kernel: JITFunction,
    types: Mapping[str, str],
    constants: Mapping[str, object],
    capability: int,
    warps: int = 4,
    stages: int = 3,
) -> Code:
    """As `build`, read."""
    return read(build(kernel, types, constants, capability, warps, stages))


def source_of(kernel: JITFunction) -> type[ASTSource]:
    """What Triton compiles: of its explicit dialect, Gluon, or of plain Triton."""
    if not kernel.is_gluon():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def _told(tool: str, *arguments: str) -> str:
    return subprocess.run(
        [TOOLS / tool, *arguments], capture_output=True, text=True, check=True
    ).stdout


# --- every architecture ---


KIB = 1024
SHARED_LIMITS = {
    80: 163 * KIB,
    86: 99 * KIB,
    89: 99 * KIB,
    90: 227 * KIB,
    100: 227 * KIB,
    120: 99 * KIB,
}
"""Bytes of shared memory that a program may take, by compute capability: Ampere (80, 86), Ada, Hopper, Blackwell."""


OLDEST_PTX = 80
"""PTX 8.0, which drivers know since CUDA 12.0."""


class Built(NamedTuple):
    """One candidate of a portable kernel for one architecture: a row of `matrix`."""

    capability: int
    kernel: str
    """`gate_up` or `linear`."""
    tiles: str
    instruction: str
    """With which it multiplies: HMMA, HGMMA or UTCHMMA."""
    copies: int
    """Instructions that copy from memory to shared memory behind the program's back: LDGSTS."""
    registers: int
    spills: int
    """Instructions that write registers to memory, or read them back, because there are too few."""
    shared_bytes: int


def portable(
    tiles: PortableTiles,
    capability: int,
    weights: int,
    dtype: torch.dtype = torch.bfloat16,
    activation: str = "gelu_tanh",
    *,
    has_bias: bool = False,
    is_even: bool = True,
    alignment: int = 8,
    **options: object,
) -> CompiledKernel:
    """The portable kernel of gate and up (`weights` is 2) or of a linear (1). `is_even`: block_k divides the sum."""
    names = "x", "gate", "up", "weight", "bias", "out"
    short = {
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float32: "fp32",
    }[dtype]
    constants: dict[str, object] = {
        "BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "BLOCK_K": tiles.block_k, "GROUP": tiles.group,
        "ALIGNED": alignment, "EVEN_K": is_even, "ACTIVATION": ACTIVATIONS[activation].value, "INTERPRETED": False,
    }  # fmt: skip
    if weights == 1:
        constants["HAS_BIAS"] = has_bias
    kernel = portable_gate_up_kernel if weights == 2 else portable_linear_kernel
    return build(
        kernel, dict.fromkeys(names, f"*{short}"), constants, capability, tiles.warps, tiles.stages, **options
    )  # fmt: skip


def matrix(
    limits: Mapping[int, int] = SHARED_LIMITS, threads: int | None = None
) -> list[Built]:
    """Every candidate of both portable kernels, compiled for every architecture whose shared memory it fits into.

    Needs no GPU. Minutes on one core; a thread for each core by default.
    """
    work = [
        (tiles, capability, weights)
        for capability, limit in limits.items()
        for weights, tilings in ((2, PORTABLE_GATED), (1, PORTABLE))
        for tiles in tilings
        if shared_bytes(tiles, 2, capability, weights) <= limit
    ]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(lambda item: row(*item), work))


def row(tiles: PortableTiles, capability: int, weights: int) -> Built:
    code = read(portable(tiles, capability, weights))
    return Built(
        capability,
        "gate_up" if weights == 2 else "linear",
        tiles.name,
        code.multiplies_with(),
        code.count("LDGSTS"),
        code.registers,
        code.count("STL|LDL"),
        code.shared_bytes,
    )


# --- an older architecture's kernel, run ---


def for_the_driver(built: CompiledKernel) -> CompiledKernel:
    """The kernel as PTX, of which the driver makes machine code for the GPU at hand, if that is as new or newer.

    `built[programs, 1, 1](*arguments)` launches it, with all of the kernel's arguments in order.
    """
    built.kernel = built.asm["ptx"].encode() + b"\0"
    return built


def assembled(built: CompiledKernel, capability: int) -> CompiledKernel:
    """As `for_the_driver`, made by Triton's ptxas for compute capability `capability`."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        ptx.write_text(built.asm["ptx"])
        _told(
            "ptxas", f"--gpu-name=sm_{capability}", str(ptx), "-o", str(cubin)
        )
        built.kernel = built.asm["cubin"] = cubin.read_bytes()
    return built


def gate_up_for(
    capability: int,
    tiles: PortableTiles,
    dtype: torch.dtype,
    dim: int,
    hidden: int,
    activation: str = "gelu_tanh",
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`portable_gate_up` for these sizes, as compiled for a GPU that may be older than the one at hand."""
    built = for_the_driver(
        portable(
            tiles, capability, 2, dtype, activation, is_even=dim % tiles.block_k == 0, alignment=aligned(hidden, dim),
            ptx_version=OLDEST_PTX,
        )
    )  # fmt: skip

    def run(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        """x is (rows, dim), gate and up are (hidden, dim)."""
        rows = x.shape[0]
        out = x.new_empty(rows, hidden)
        programs = triton.cdiv(rows, tiles.block_m) * triton.cdiv(
            hidden, tiles.block_n
        )
        constants = [None] * (
            len(portable_gate_up_kernel.arg_names) - 7
        )  # compiled in
        built[programs, 1, 1](x, gate, up, out, rows, hidden, dim, *constants)
        return out

    return run
