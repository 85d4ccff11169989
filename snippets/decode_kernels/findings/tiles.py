"""How a step's kernels cut their weights: the tile of this book next to the fastest tile that was tried."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import HEAD, LAYER_PARTS, PART_NAMES
from snippets.decode_kernels.findings.parts import part_us
from snippets.decode_kernels.findings.rungs import SMALL_MODEL
from snippets.decoder.findings.probed import entry, time
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, claim, unpaired_ratio
from snippets.lab.page import show as show

TILES = "decode_kernels/tiles"
POINT = "1.1b, batch 1, bf16"
CUT = tuple(part for part in (*LAYER_PARTS, HEAD) if part != "attend")
"""Parts that multiply by a weight."""


def tried(device: Device, part: str) -> dict[str, Figure]:
    """Tile -> the time of a part of all layers, the fastest first."""
    names = entry(device, TILES, POINT, part)
    times = {name: time(device, TILES, POINT, part, name) for name in names}
    return dict(sorted(times.items(), key=lambda item: item[1].number))


def fastest(device: Device, part: str) -> Figure:
    """The time of the fastest tile of a part. Raises `NotTimed` if no tile ran."""
    found = tried(device, part)
    if not found:
        raise NotTimed(f"{TILES} on {device.name} has no tile of {part}")
    return next(iter(found.values()))


def best_over_chosen(device: Device, part: str) -> Figure:
    """The time of the fastest tile of a part over the time of the tile of this book."""
    return unpaired_ratio(fastest(device, part), part_us(device, SMALL_MODEL, part))


@claim("DK37", at_least(0.9), scope="timing")
def tiles_are_chosen_well(device: Device) -> Figure:
    """For the smaller model and one text, no tile that we tried saves more than a tenth of a part's time."""
    return min((best_over_chosen(device, part) for part in CUT), key=lambda ratio: ratio.bounds[0])


def tile_table(device: Device) -> Html:
    """The parts that multiply: the fastest tile, its time, and the time of the tile of this book."""
    rows: list[list[Cell]] = []
    for part in CUT:
        found = tried(device, part)
        if not found:
            rows.append([PART_NAMES[part], "no tile ran", "0", *[None] * 3])
            continue
        name, us = next(iter(found.items()))
        ratio = best_over_chosen(device, part)
        chosen = part_us(device, SMALL_MODEL, part)
        rows.append([PART_NAMES[part], name, f"{len(found)}", *map(figure_cell, (us, chosen, ratio))])
    head = ["part of the step", "fastest tile", "tiles that ran", "its time", "time of this book's tile", "ratio"]
    return table(
        "Parts of a step with 1.1 billion weights: the fastest tile and this book's tile", head, rows, text_columns=2
    )


FIGURES: Mapping[str, Measure] = {
    "tile_count": lambda device: Figure(len(tried(device, "gate_up")), origin=device[TILES].origin),
}
