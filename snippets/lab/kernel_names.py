"""What a kernel's name says: library, operation, types, tile, layout, and each token with how well it is known.

`decode` reads a name by the grammar in kernel_grammar.json; `shown` and `decorated` put decoded names into pages, with
the raw name one click away. Nothing is guessed: what a name does not tell, or we cannot read, stays None.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from html import escape
from typing import Any

from snippets.lab.html import Html, shortened
from snippets.lab.kernel_grammar import Reading, Token
from snippets.lab.trace import printable

MOST_COLUMNS = 60
"""Of a short form."""
FIELDS = ("library", "operation", "arch", "dtype", "tile", "layout")


@dataclass(frozen=True)
class KernelName:
    """A name taken apart."""

    name: str
    library: str
    """One of cublas, cutlass, cudnn, aten, inductor, triton, flash_attention, nccl, cuda; else unknown."""
    operation: str
    """gemm, gemv, elementwise, reduction, softmax, normalization, attention, convolution, communication, copy (moves
    values and computes none) or memset; else other."""
    arch: str | None
    """`sm80` where the name has a number, else the generation that it spells out: `ampere`."""
    dtype: str | None
    """What the inputs are; tf32 where they are f32 in memory and rounded before they are multiplied."""
    tile: str | None
    """`128x256x64`, or as much of it as the name tells; in attention, queries by keys, with cuDNN
    also by the size of a head."""
    layout: str | None
    """Which of A and B are transposed, in the name's own letters: `tn`, `TNT`."""
    fused: tuple[str, ...]
    """Operators that the name lists as parts of the kernel."""
    tokens: tuple[Token, ...]
    short: str
    """For people, at most 60 characters: `cuBLAS GEMM bf16 · 256x128x64 · TNT`."""


@lru_cache(maxsize=4096)
def decode(name: str) -> KernelName:
    """Take a kernel's name apart. Never raises; a name that no family claims is of library `unknown`."""
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
        shortened(get("short") or name, MOST_COLUMNS),
    )


def as_data(kernel: KernelName) -> dict[str, Any]:
    """A decoded name as JSON has it."""
    data = {"name": kernel.name, **{field: getattr(kernel, field) for field in FIELDS}}
    return data | {"fused": list(kernel.fused), "tokens": [asdict(token) for token in kernel.tokens]}


def main(name: str, as_json: bool) -> int:
    """Print a decoded name, for people or as JSON."""
    kernel = decode(name)
    if as_json:
        print(json.dumps(as_data(kernel), indent=2))
        return 0
    rows = [("name", name), *((field, getattr(kernel, field) or "-") for field in FIELDS)]
    for label, value in [*rows, ("fused", ", ".join(kernel.fused) or "-"), ("in short", kernel.short)]:
        print(f"{label:10} {printable(value)}")
    if kernel.tokens:
        tokens = [(printable(one.token), one.basis, printable(one.meaning)) for one in kernel.tokens]
        wide = min(max(len(token) for token, _, _ in tokens), MOST_COLUMNS // 2)
        print("")
        for token, basis, meaning in tokens:
            print(f"  {token:{wide}}  {basis:10}  {meaning}")
    return 0


_times_shown: Counter[str] = Counter()


def shown(name: str) -> Html:
    """A decoded name in place, inside a sentence or a cell: its short form, a button that opens the raw name.

    Ids are made of the name and of how often it was shown before, so that a build gives the same ones again.
    """
    kernel = decode(name)
    mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    _times_shown[name] += 1
    place = f"kernel-{mark}-{_times_shown[name]}"
    facts = [kernel.library, kernel.operation, kernel.arch, kernel.dtype, kernel.tile, kernel.layout]
    facts += [f"with {', '.join(kernel.fused)}"] if kernel.fused else []
    line = " · ".join(fact for fact in facts if fact)
    return Html(
        f'<button type="button" class="kernel-name {escape(kernel.library)}" popovertarget="{place}" '
        f'title="{escape(name)}">{escape(kernel.short)}</button>'
        f'<span popover id="{place}" class="kernel-raw"><code>{escape(name)}</code> <span>{escape(line)}</span></span>'
    )


_BRACKET_OR_SEPARATOR = re.compile(
    r"(?P<open>[<({\[])|->|(?P<close>[>)}\]])"
    r"|(?P<separator> → |,(?: then| and)? | \+ |; |: | then | against | in both | and | or | with )"
)


def decorated(text: str) -> Html:
    """Text as HTML, in which every kernel name that stands as a part or as a word is `shown`; all else is escaped."""
    pieces = []
    for part, separator in _parts(text):
        words = [part] if _is_kernel(part) else re.split("( )", part)
        pieces += [str(shown(word)) if _is_kernel(word) else escape(word) for word in words]
        pieces.append(escape(separator))
    return Html("".join(pieces))


def _is_kernel(text: str) -> bool:
    return decode(text).library != "unknown"


def _parts(text: str) -> list[tuple[str, str]]:
    """The parts with the separators after them. What stands in brackets is not split: a C++ name has commas."""
    parts, depth, begin = [], 0, 0
    for found in _BRACKET_OR_SEPARATOR.finditer(text):
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth = max(0, depth - 1)
        elif found["separator"] and depth == 0:
            parts.append((text[begin : found.start()], found[0]))
            begin = found.end()
    return [*parts, (text[begin:], "")]
