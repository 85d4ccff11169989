"""What the early-launch step still misses: for each part, the time beyond reading, by cause."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import LAYER_PARTS, MODELS, ONE, PART_NAMES, parts_of, steady_of
from snippets.decode_kernels.findings.parts import bytes_of, part_us
from snippets.decode_kernels.findings.rungs import SMALL_MODEL, best, model_floor, steady_us
from snippets.decode_kernels.findings.waits import added, tails, tails_us
from snippets.decoder.findings.limits import boundary_us
from snippets.decoder.findings.probed import entry
from snippets.decoder.findings.reading import Shape, floor_of, read_rate
from snippets.lab.charts.bar_charts import stacked_bars
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    claim,
    format_value,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import show as show


def beyond(device: Device, model: str, part: str) -> Figure:
    """The time of a part alone, less the time of reading its bytes."""
    us, reading = part_us(device, model, part), floor_of(device, bytes_of(device, model, part))
    low, high = us.bounds[0] - reading.bounds[1], us.bounds[1] - reading.bounds[0]
    return Figure(us.number - reading.number, "us", (low, high), us.origin)


def step_beyond(device: Device, model: str) -> Figure:
    """The time of the faster step, less the time of reading."""
    us, reading = steady_us(device, model, best(device, model)), model_floor(device, model)
    low, high = us.bounds[0] - reading.bounds[1], us.bounds[1] - reading.bounds[0]
    return Figure(us.number - reading.number, "us", (low, high), us.origin)


def boundaries_of(device: Device, model: str, part: str) -> Figure:
    """A boundary for each kernel of a part."""
    kernels, each = int(entry(device, parts_of(model), part, "launches")), boundary_us(device)
    low, high = (kernels * bound for bound in each.bounds)
    return Figure(kernels * each.number, "us", (low, high), each.origin)


def barriers_us(device: Device) -> Figure:
    """What all barriers of the smaller model's one-kernel step take, with all else beyond reading and tails."""
    us, ideal = steady_us(device, SMALL_MODEL, ONE), added(model_floor(device, SMALL_MODEL), tails_us(device))
    low, high = us.bounds[0] - ideal.bounds[1], us.bounds[1] - ideal.bounds[0]
    return Figure(us.number - ideal.number, "us", (low, high), us.origin)


def barrier_us(device: Device) -> Figure:
    """What a barrier takes, with its share of all else beyond reading and tails."""
    us, barriers = barriers_us(device), barriers_of(MODELS[SMALL_MODEL][1])
    low, high = (bound / barriers for bound in us.bounds)
    return Figure(us.number / barriers, "us", (low, high), us.origin)


def barrier_bytes(device: Device) -> Figure:
    """The bytes that the GPU could read during all barriers."""
    us, rate = barriers_us(device), read_rate(device)
    return Figure(round(rate.number * us.number / 1e6), "bytes", origin=f"{rate.origin}; {us.origin}")


def barriers_of(shape: Shape) -> int:
    """Barriers of a one-kernel step: one after each part of a layer."""
    return len(LAYER_PARTS) * shape.layers


def small_kernels_share(device: Device) -> Figure:
    """The time beyond reading of all parts but the MLP and the head, in percent of all parts' time beyond reading."""
    times = {part: beyond(device, SMALL_MODEL, part) for part in PART_NAMES}
    few = added(*(times[part] for part in ("qkv", "attend", "out")))
    return percent(unpaired_ratio(few, added(*times.values())))


@claim("DK27", at_least(50), scope="timing")
def small_kernels_miss_most(device: Device) -> Figure:
    """For the smaller model, the three parts of attention read about a fifth of the bytes, but take at least half of
    all parts' time beyond reading."""
    return small_kernels_share(device)


@claim("DK28", at_most(2), scope="timing")
def barrier_over_boundary(device: Device) -> Figure:
    """A barrier of the one-kernel step, with all other time beyond reading and tails, takes at most twice as long as a
    boundary between two kernels.

    After a barrier, all programs load their inputs at the same time, and only then multiply the weights that they hold.
    No other program reads memory in this time.
    """
    return unpaired_ratio(barrier_us(device), boundary_us(device))


def missing_bars(device: Device) -> Html:
    """The time of each model's faster step: reading, and the time beyond."""
    groups = {}
    for model in MODELS:
        if "left_out" in device[steady_of(model)].data:
            continue
        rest = max(0.0, step_beyond(device, model).number)
        groups[f"{model} weights"] = [("reading", model_floor(device, model).number), ("beyond reading", rest)]
    kinds = {"reading": "copy", "beyond reading": "pointwise"}
    return stacked_bars(
        device, groups, "Reading, and time beyond reading, in the faster step", axis="time of a token", kinds=kinds
    )


def missing_table(device: Device, model: str) -> Html:
    """Every part alone: the time beyond reading, and how much of it tails and boundaries explain."""
    small = model == SMALL_MODEL
    waiting = tails(device) if small else {}
    rows: list[list[Cell]] = []
    for part, name in PART_NAMES.items():
        more, boundaries = beyond(device, model, part), boundaries_of(device, model, part)
        tail = waiting.get(part)
        explained = boundaries.number + (tail.number if tail else 0.0)
        rest = format_value(more.number - explained, "us")
        rows.append([name, figure_cell(more), figure_cell(tail) if tail else None, figure_cell(boundaries), rest])
    head = ["part of the step", "time beyond reading", "tails", "boundaries, none hidden", "the rest"]
    caption = f"Time beyond reading of each part alone, with {model} weights"
    return table(caption, head, rows)


FIGURES: Mapping[str, Measure] = {
    "barrier_bytes": barrier_bytes,
    "barriers_us": barriers_us,
    "barriers": lambda device: Figure(barriers_of(MODELS[SMALL_MODEL][1]), origin="the sizes of the model"),
}
