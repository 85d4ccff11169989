"""Compile kernels for an absent GPU, and read their machine code.

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

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

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
    """Registers of a thread when the kernel starts."""
    threads: int
    """Threads of a program, including all its roles."""
    stack_bytes: int
    shared_bytes: int

    def names(self, pattern: str) -> set[str]:
        """The full names of instructions that begin with `pattern`: `{"HGMMA.64x128x16.F32.BF16"}`."""
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
    """Why this machine cannot read machine code; empty if it can."""
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
    """The kernel for compute capability `capability` (80 is 8.0). An argument in neither mapping is a 32-bit integer.

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
    """Read the machine code of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        usage, text = (
            output_of("cuobjdump", "-res-usage", file.name),
            output_of("nvdisasm", "-c", file.name),
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
    """The source for Triton's compiler: of its explicit dialect, Gluon, or of plain Triton."""
    if not kernel.is_gluon():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def output_of(tool: str, *arguments: str) -> str:
    return subprocess.run(
        [TOOLS / tool, *arguments], capture_output=True, text=True, check=True
    ).stdout
