"""A kernel made to spill: its registers, its machine code and its time beside one that does not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kinetoscope.html import Cell, Html, details, table
from kinetoscope.trace.units import format_value
from snippets.lab.finding import Device, Figure, Measure, at_least, claim, equals, timing_of_samples
from snippets.lab.finding.measure import derived, ratio_of_pairs
from snippets.lab.page import figure_cell, show as show
from snippets.lab.recording.schema import Timing

FEW, MANY = 64, 8192
FITS, SPILLS = "128x256x64, 8 warps, 3 stages", "128x256x64, 4 warps, 3 stages"
"""The same tile, for twice as many threads and for half of them."""

OTHERS = ("linear", "eager")
"""What stands between the tiles: the product alone, and eager's two kernels."""


def tiles(device: Device, tokens: int) -> Mapping[str, Any]:
    """Each tile tried with `tokens` tokens, and its data."""
    found: Mapping[str, Any] = device["regimes/spills"].data[str(tokens)]
    return found


def tile_timing(device: Device, tokens: int, tile: str) -> Timing:
    """The times of the kernel with a tile, or of eager."""
    return timing_of_samples(tiles(device, tokens)[tile]["us"])


def tile_ratio(device: Device, tokens: int, upper: str, lower: str) -> Figure:
    """The kernel's time with one tile / its time with another."""
    above, below = (tile_timing(device, tokens, tile) for tile in (upper, lower))
    return ratio_of_pairs(above, below, f"{device['regimes/spills'].origin}, {upper} over {lower}")


def fastest_tile(device: Device, tokens: int) -> str:
    """The fastest of the tiles tried at so many tokens."""
    names = [name for name in tiles(device, tokens) if name not in OTHERS]
    return min(names, key=lambda name: tile_timing(device, tokens, name).median_us)


def of_tile(device: Device, tokens: int, tile: str, quantity: str) -> Figure:
    """A number of a compiled kernel: `registers` of a thread, `spills`, `shared_bytes` or `programs`."""
    return Figure(int(tiles(device, tokens)[tile][quantity]), origin=device["regimes/spills"].origin)


def in_loop(device: Device, tile: str, kind: str) -> Figure:
    """Instructions of a kind in the loop of the kernel: `stores` and `loads` of spilled registers, `products`."""
    return Figure(int(tiles(device, MANY)[tile]["code"]["loop"][kind]), origin=device["regimes/spills"].origin)


def moved_in_loop(device: Device) -> Figure:
    """Bytes that each step of the spilling loop stores and loads, in all threads of a program.

    Each instruction moves eight bytes of a thread.
    """
    moves = sum(in_loop(device, SPILLS, kind).number for kind in ("stores", "loads"))
    return Figure(int(moves) * 8 * 128, "bytes", origin=device["regimes/spills"].origin)


def tile_table(device: Device, tokens: int) -> Html:
    """Each tile's resources, its spilled registers and its time."""
    rows: list[list[Cell]] = []
    timings = {name: tile_timing(device, tokens, name) for name in tiles(device, tokens)}
    for name in sorted(timings, key=lambda name: timings[name].median_us):
        time, seen = figure_cell(Figure.from_timing(timings[name])), tiles(device, tokens)[name]
        if name in OTHERS:
            rows.append([{"linear": "cuBLAS, without GELU", "eager": "eager"}[name], time, *[None] * 5])
            continue
        loop = seen["code"]["loop"]
        rows.append(
            [
                name,
                time,
                f"{seen['programs']:,}",
                str(seen["registers"]),
                str(seen["spills"]),
                f"{loop['stores']} and {loop['loads']}",
                format_value(seen["shared_bytes"], "bytes"),
            ]
        )
    head = [
        "tile",
        "time",
        "programs",
        "registers",
        "spilled registers",
        "stores and loads in the loop",
        "shared memory",
    ]
    return table(f"The fused kernel with several tiles, {tokens:,} tokens", head, rows, folded=("shared memory",))


EXCERPT = 14
"""Lines of machine code that the page shows of each loop."""
_OF_INTEREST = re.compile(r"\b(STL|LDL|\w*MMA)\b")


def excerpt(listing: Sequence[str]) -> list[str]:
    """A loop's stores, products and loads in order, each run of equal instructions cut to its first two."""
    chosen: list[str] = []
    run, last = 0, ""
    for text in listing:
        match = _OF_INTEREST.search(text)
        kind = match[1] if match else ""
        run = run + 1 if kind == last else 1
        last = kind
        if kind and run <= 2:
            chosen.append(text)
        elif kind and run == 3:
            chosen.append("…")
    return chosen[:EXCERPT]


def machine_code(device: Device) -> Html:
    """The two loops in machine code: what matters of each, and all of it folded."""
    parts = []
    for name in (FITS, SPILLS):
        listing = tiles(device, MANY)[name]["code"]["listing"]
        parts.append(f"<p>Tile of {escape(name)}:</p>{_lines(excerpt(listing))}")
        parts.append(details(f"All {len(listing)} instructions of this loop", _lines(listing)))
    return Html("".join(parts))


def _lines(texts: Sequence[str]) -> str:
    code = f"<pre><code>{escape(chr(10).join(texts))}</code></pre>"
    return f'<div class="language-text highlight" data-search-exclude>{code}</div>'


@claim("RG50", equals(True), scope="this-gpu")
def spills_with_half(device: Device) -> Figure:
    """A tile of 128x256 fits into the registers of eight warps, but spills registers with four warps."""
    fits, spilled = (of_tile(device, MANY, tile, "spills") for tile in (FITS, SPILLS))
    return derived(fits.number == 0 < spilled.number, fits, spilled, display=f"{fits.text} and {spilled.text}")


@claim("RG51", at_least(3), scope="timing")
def spilling_ratio(device: Device) -> Figure:
    """With 8192 tokens, the kernel with a tile of 128x256 takes at least three times as long with four warps, which
    spill registers, as with eight warps."""
    return tile_ratio(device, MANY, SPILLS, FITS)


@claim("RG52", equals("0 and 0; 128 and 128"), scope="this-gpu")
def moves_in_loop(device: Device) -> Figure:
    """With eight warps, the loop of the 128x256 tile moves no register to memory or back. With four warps, each step of
    the loop stores 128 pairs of registers and loads 128 pairs of registers."""
    pairs = [[in_loop(device, tile, kind) for kind in ("stores", "loads")] for tile in (FITS, SPILLS)]
    texts = (" and ".join(figure.text for figure in pair) for pair in pairs)
    return derived("; ".join(texts), *(figure for pair in pairs for figure in pair))


@claim("RG54", equals(0), scope="this-gpu")
def few_spill_none(device: Device) -> Figure:
    """With 1 token and with 64 tokens, none of the tiles that we tried spills a register."""
    spilled = [
        of_tile(device, tokens, name, "spills")
        for tokens in (1, FEW)
        for name in tiles(device, tokens)
        if name not in OTHERS
    ]
    return derived(max(int(figure.number) for figure in spilled), *spilled)


FIGURES: Mapping[str, Measure] = {
    "programs_at_few": lambda device: of_tile(device, FEW, "64x32x128, 4 warps, 4 stages", "programs"),
    "fused_of_product": lambda device: tile_ratio(device, MANY, FITS, "linear"),
}
