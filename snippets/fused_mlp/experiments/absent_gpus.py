"""The portable kernels for absent GPUs: every candidate compiled for every architecture, and code for an older
architecture run on a newer GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from triton.compiler import CompiledKernel

from snippets.fused_mlp.experiments.compiling import build, output_of, read
from snippets.fused_mlp.geglu.kernels import ACTIVATIONS
from snippets.fused_mlp.geglu.launch import uncollected
from snippets.fused_mlp.geglu.portable_kernels import (
    portable_gate_up_kernel,
    portable_linear_kernel,
)
from snippets.fused_mlp.geglu.portable_tiles import (
    PORTABLE,
    PORTABLE_GATED,
    PortableTiles,
    aligned,
    shared_bytes,
)

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
"""PTX 8.0, which drivers have supported since CUDA 12.0."""


class Built(NamedTuple):
    """One candidate of a portable kernel for one architecture: a row of `matrix`."""

    capability: int
    kernel: str
    """`gate_up` or `linear`."""
    tiles: str
    instruction: str
    """The matrix instruction: HMMA, HGMMA or UTCHMMA."""
    copies: int
    """Instructions that copy asynchronously from memory to shared memory: LDGSTS."""
    registers: int
    spills: int
    """Instructions that write registers to memory, or read them back."""
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
    """The portable kernel of gate and up (`weights` is 2) or of a linear (1). `is_even`: block_k divides K."""
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
        for tiles in distinct(tilings)
        if shared_bytes(tiles, 2, capability, weights) <= limit
    ]
    with uncollected(), ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return list(pool.map(lambda item: row(*item), work))


def distinct(tilings: Sequence[PortableTiles]) -> list[PortableTiles]:
    """Drop tilings that differ only in their order, on which no code depends."""
    return list({tiles[:-1]: tiles for tiles in reversed(tilings)}.values())[
        ::-1
    ]


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


def for_the_driver(built: CompiledKernel) -> CompiledKernel:
    """The kernel as PTX. The driver compiles it for this machine's GPU, if that is as new or newer.

    `built[programs, 1, 1](*arguments)` launches it, with all of the kernel's arguments in order.
    """
    built.kernel = built.asm["ptx"].encode() + b"\0"
    return built


def assembled(built: CompiledKernel, capability: int) -> CompiledKernel:
    """As `for_the_driver`, but compiled by Triton's ptxas for compute capability `capability`."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        ptx.write_text(built.asm["ptx"])
        output_of(
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
    """`portable_gate_up` for these sizes, compiled for a GPU that may be older than this machine's."""
    built = for_the_driver(
        portable(
            tiles, capability, 2, dtype, activation, is_even=dim % tiles.block_k == 0, alignment=aligned(hidden, dim),
            ptx_version=OLDEST_PTX,
        )
    )  # fmt: skip
    assert built.run, "loaded now, which may not be while a graph is captured"

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
