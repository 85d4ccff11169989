"""A kernel that is made to spill: registers, machine code and times of one Triton kernel with tiles of several
sizes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from snippets.lab.experiment import Experiment, Instruments, NeedsGpu
from snippets.regimes.experiments.layer import Steps, layer_subjects

# --8<-- [start:tried]
TRIED: Mapping[int, Sequence[tuple[int, int, int, int, int]]] = {
    1: ((16, 32, 128, 4, 4), (16, 64, 128, 4, 4)),
    64: (
        (64, 32, 128, 4, 4),
        (32, 32, 128, 4, 4),
        (16, 32, 128, 4, 4),
        (64, 64, 64, 4, 4),
    ),
    1024: ((128, 128, 64, 8, 4), (128, 256, 64, 8, 3), (64, 128, 64, 4, 4)),
    8192: ((128, 256, 64, 8, 3), (128, 256, 64, 4, 3), (256, 256, 64, 8, 2)),
}
# --8<-- [end:tried]
"""Tokens -> rows and columns of a tile, its step along the sum, warps, stages.
A tile of 128x256 has 128 float32 sums for each thread of 8 warps, and 256 for
each of 4: more than the 255 registers that a thread may have."""


class Instruction(NamedTuple):
    """One line of machine code."""

    address: int
    text: str
    """Without the semicolon; `STL.64 [R1+0x8], R24` writes registers to
    memory."""


def spills(
    instruments: Instruments, device: str, dim: int, hidden: int
) -> dict[str, Any]:
    """Compile the kernel with each tile, read its machine code, time it.

    Returns {tokens: {tile: {"registers", "spills": registers kept in memory,
    "shared_bytes", "programs", "code": counts of `code_summary`, "us":
    samples}}}, with eager's times and those of its product as tiles named
    "eager" and "linear". The loop's instructions are listed for the largest
    number of tokens.
    """
    from snippets.regimes.kernels import linear_gelu_kernel

    if device != "cuda":
        raise NeedsGpu("Triton compiles for a GPU only: regimes/layer_eager")
    found: dict[str, Any] = {}
    for tokens, tried in TRIED.items():
        subjects = layer_subjects(
            device, tokens, dim, hidden, partial(tiled_steps, tried)
        )
        del subjects["fused"], subjects["epilogue"]
        entries: dict[str, Any] = found.setdefault(str(tokens), {})
        for sizes in tried:
            name = tile_name(sizes)
            linear_gelu_kernel.device_caches.clear()
            instruments.relative_error(subjects[name], device)
            kernel = last_compiled(linear_gelu_kernel)
            code = disassembled(kernel.asm["cubin"])
            entries[name] = {
                "registers": kernel.n_regs,
                "spills": kernel.n_spills,
                "shared_bytes": kernel.metadata.shared,
                "programs": -(-tokens // sizes[0]) * -(-hidden // sizes[1]),
                "code": code_summary(code, listed=tokens == max(TRIED)),
            }
        for name, timing in instruments.time_interleaved(subjects).items():
            entries.setdefault(name, {})["us"] = timing.samples_us
    return found


def tile_name(sizes: Sequence[int]) -> str:
    """`128x256x64, 8 warps, 3 stages`."""
    rows, columns, step, warps, stages = sizes
    return f"{rows}x{columns}x{step}, {warps} warps, {stages} stages"


def tiled_steps(
    tried: Sequence[Sequence[int]], weight: Any, bias: Any
) -> Steps:
    """The fused step with each of these tiles, by its name."""
    from snippets.regimes.kernels import Tiles, linear_gelu

    def step_with(tiles: Tiles) -> Callable[[Any], Any]:
        return lambda x: linear_gelu(x, weight, bias, tiles)

    return {tile_name(sizes): step_with(Tiles(*sizes)) for sizes in tried}


def last_compiled(kernel: Any) -> Any:
    """The only program of a Triton kernel in this process."""
    (program,) = (
        program
        for caches in kernel.device_caches.values()
        for program in caches[0].values()
    )
    return program


def disassembled(cubin: bytes) -> list[Instruction]:
    """A kernel's machine code (SASS), by the tool that comes with Triton."""
    import triton

    bundled = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        printed = subprocess.run(
            [bundled, "-sass", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return instructions(printed)


def instructions(printed: str) -> list[Instruction]:
    """The instructions that cuobjdump printed, each with its address."""
    pattern = r"/\*([0-9a-f]{4,})\*/\s+([^;/]+?)\s*;"
    return [
        Instruction(int(address, 16), text)
        for address, text in re.findall(pattern, printed)
    ]


# --8<-- [start:main_loop]
def main_loop(code: Sequence[Instruction]) -> list[Instruction]:
    """The instructions of the loop with the most products, from the target of
    its backward branch to the branch; empty without such a loop."""
    loops: list[list[Instruction]] = [[]]
    for branch in code:
        target = re.search(r"\bBRA\b.*0x([0-9a-f]+)", branch.text)
        if target and (first := int(target[1], 16)) < branch.address:
            loops.append(
                [one for one in code if first <= one.address <= branch.address]
            )
    return max(loops, key=lambda loop: counts(loop)["products"])


# --8<-- [end:main_loop]


def counts(code: Sequence[Instruction]) -> dict[str, int]:
    """Numbers of all instructions, of stores and loads of spilled registers,
    and of tensor core products."""
    names = [re.sub(r"^@\S+\s+", "", one.text).split(".")[0] for one in code]
    return {
        "instructions": len(names),
        "stores": sum(name.startswith("STL") for name in names),
        "loads": sum(name.startswith("LDL") for name in names),
        "products": sum("MMA" in name for name in names),
    }


def code_summary(code: Sequence[Instruction], listed: bool) -> dict[str, Any]:
    """Counts of a kernel and of its loop, and the loop's text if `listed`."""
    loop = main_loop(code)
    summary: dict[str, Any] = {"kernel": counts(code), "loop": counts(loop)}
    if listed:
        summary["listing"] = [one.text for one in loop]
    return summary


SPILLING = (
    Experiment(
        chapter="regimes",
        name="spills",
        probe=spills,
        parameters={"dim": 1024, "hidden": 4096},
        time_limit_s=180,
    ),
)
"""Tiles that fit into registers and tiles that do not."""
