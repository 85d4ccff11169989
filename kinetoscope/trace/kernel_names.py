"""The command `decode`: library, operation, types, tile and layout of a kernel, decoded from its name.

The grammar is in kernel_grammar.json. The decoder never guesses: a field that the name does not state stays None.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from kinetoscope.trace.kernel_grammar import Reading, Token
from kinetoscope.trace.text import json_text, printable, shortened

DESCRIPTION = """\
Print what a kernel's name says: library, operation, architecture, types, tile, layout, and the meaning of each token.

  %(prog)s nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT
  %(prog)s "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>" --json
"""
SHORT_NAME_WIDTH = 60
FIELDS = ("library", "operation", "arch", "dtype", "tile", "layout")


@dataclass(frozen=True)
class KernelName:
    """A decoded kernel name."""

    name: str
    library: str
    """The kernel's library, such as cublas, cutlass, cudnn, aten, inductor, triton, flash_attention, nccl, cuda,
    tensile, composable_kernel, miopen, rccl, vllm; the grammar has them all. Else unknown."""
    operation: str
    """gemm, gemv, elementwise, reduction, softmax, normalization, attention, convolution, communication, copy (moves
    values and computes none) or memset; else other."""
    arch: str | None
    """`sm80` or `gfx942` if the name has a number, else the generation in words: `ampere`."""
    dtype: str | None
    """Type of the inputs; tf32 if they are f32 in memory and rounded before the multiplication."""
    tile: str | None
    """`128x256x64`, or the part of it in the name; for attention, queries x keys, with cuDNN
    also x the head size."""
    layout: str | None
    """Which of A and B are transposed, in the letters of the name: `tn`, `TNT`; Tensile's indices as BLAS's letters."""
    fused: tuple[str, ...]
    """Operators that the name lists as parts of the kernel."""
    tokens: tuple[Token, ...]
    short: str
    """The form for people, at most 60 characters: `cuBLAS GEMM bf16 · 256x128x64 · TNT`."""


@cache
def decode_kernel_name(name: str) -> KernelName:
    """Decode a kernel name. Never raises; if no family matches the name, its library is `unknown`."""
    reading = Reading(name)
    get = reading.fields.get
    return KernelName(
        name,
        get("library") or "unknown",
        get("operation") or "other",
        get("arch"),
        get("dtype"),
        get("tile"),
        get("layout"),
        tuple(reading.fused),
        tuple(reading.tokens),
        shortened(get("short") or name, SHORT_NAME_WIDTH),
    )


def kernel_name_data(kernel: KernelName) -> dict[str, Any]:
    """A decoded name as JSON data."""
    data = {"name": kernel.name, **{field: getattr(kernel, field) for field in FIELDS}}
    return data | {"fused": list(kernel.fused), "tokens": [asdict(token) for token in kernel.tokens]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `decode`."""
    parser.add_argument("kernel", metavar="NAME", help="in quotes, as the profiler prints it")
    parser.add_argument("--json", action="store_true", help="print JSON")


def command(arguments: argparse.Namespace) -> int:
    """Print a decoded kernel name."""
    return print_kernel_name(arguments.kernel, arguments.json)


def print_kernel_name(name: str, as_json: bool) -> int:
    """Print a decoded name as text or as JSON."""
    kernel = decode_kernel_name(name)
    if as_json:
        print(json_text(kernel_name_data(kernel)))
        return 0
    rows = [("name", name), *((field, getattr(kernel, field) or "-") for field in FIELDS)]
    for label, value in [*rows, ("fused", ", ".join(kernel.fused) or "-"), ("in short", kernel.short)]:
        print(f"{label:10} {printable(value)}")
    if kernel.tokens:
        tokens = [(printable(token.token), token.basis, printable(token.meaning)) for token in kernel.tokens]
        width = min(max(len(text) for text, _, _ in tokens), SHORT_NAME_WIDTH // 2)
        print("")
        for text, basis, meaning in tokens:
            print(f"  {text:{width}}  {basis:10}  {meaning}")
    return 0
