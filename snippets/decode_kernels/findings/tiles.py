"""How a step's kernels cut their weights: steps with another tile of one part next to a step with this book's tiles."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import HEAD, LAYER_PARTS, PART_NAMES
from snippets.decode_kernels.findings.rungs import LARGE_MODEL, SMALL_MODEL
from snippets.decoder.findings.probed import entry, ratio, time
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, claim
from snippets.lab.page import show as show

TILES = "decode_kernels/tiles"
POINTS = {SMALL_MODEL: "1.1b, batch 1, bf16", LARGE_MODEL: "8b, batch 1, bf16"}
"""Weights -> the steps of a model for one text."""
CUT = tuple(part for part in (*LAYER_PARTS, HEAD) if part != "attend")
"""Parts that multiply by a weight."""


def tried(device: Device, model: str, part: str) -> dict[str, Figure]:
    """Tile of a part -> the time of a step with it, the fastest first."""
    keys, chosen = (POINTS[model], part, "us"), chosen_tile(device, model, part)
    times = {name: time(device, TILES, *keys, name) for name in entry(device, TILES, *keys) if name != chosen}
    return dict(sorted(times.items(), key=lambda item: item[1].number))


def chosen_tile(device: Device, model: str, part: str) -> str:
    """This book's tile of a part."""
    return str(entry(device, TILES, POINTS[model], part, "chosen"))


def fastest_over_chosen(device: Device, model: str, part: str) -> Figure:
    """The time of a step with the fastest tile of a part over the time with this book's tile. Raises `NotTimed` if no
    tile ran."""
    keys = POINTS[model], part, "us"
    for name in tried(device, model, part):
        return ratio(device, TILES, (*keys, name), (*keys, chosen_tile(device, model, part)))
    raise NotTimed(f"{TILES} on {device.name} has no tile of {part}")


@claim("DK37", at_least(0.97), scope="timing")
def tiles_are_chosen_well(device: Device) -> Figure:
    """For the smaller model and one text, no tile that we tried for one part saves more than 3 % of the early-launch
    step's time."""
    ratios = (fastest_over_chosen(device, SMALL_MODEL, part) for part in CUT)
    return min(ratios, key=lambda each: each.bounds[0])


def tile_table(device: Device, model: str) -> Html:
    """The parts that multiply: the fastest tile, the time of a step with it, and the time with this book's tiles."""
    rows: list[list[Cell]] = []
    for part in CUT:
        found = tried(device, model, part)
        if not found:
            rows.append([PART_NAMES[part], "no tile ran", "0", *[None] * 4])
            continue
        name, us = next(iter(found.items()))
        chosen = chosen_tile(device, model, part)
        own = time(device, TILES, POINTS[model], part, "us", chosen)
        cells = map(figure_cell, (us, own, fastest_over_chosen(device, model, part)))
        rows.append([PART_NAMES[part], name, chosen, f"{len(found)}", *cells])
    head = ["part with another tile", "fastest other tile", "this book's tile", "other tiles that ran"]
    head += ["step with the fastest other tile", "step with this book's tiles", "ratio"]
    return table(f"Early-launch steps with {model} weights, with another tile of one part", head, rows, text_columns=3)


def fastest_tile(device: Device, model: str) -> Figure:
    """The time of the fastest step with another tile of one part over the time with this book's tiles."""
    return min((fastest_over_chosen(device, model, part) for part in CUT), key=lambda ratio: ratio.number)


FIGURES: Mapping[str, Measure] = {
    "fastest_tile_small": lambda device: fastest_tile(device, SMALL_MODEL),
    "fastest_tile_large": lambda device: fastest_tile(device, LARGE_MODEL),
    "tile_count": lambda device: Figure(len(tried(device, SMALL_MODEL, "gate_up")), origin=device[TILES].origin),
}
