"""What the early-launch step still misses: for each part, the time beyond reading, by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import (
    EARLY,
    LAYER_PARTS,
    MODELS,
    ONE,
    PART_NAMES,
    PLAIN,
    kernels_of,
    parts_of,
    steady_of,
)
from snippets.decode_kernels.findings.parts import bytes_of, part_us
from snippets.decode_kernels.findings.rungs import SMALL_MODEL, best, model_floor, steady_us
from snippets.decode_kernels.findings.waits import added, beyond_each, floor_us, less, tails, token_us
from snippets.decoder.findings.limits import boundary_us
from snippets.decoder.findings.probed import entry
from snippets.decoder.findings.reading import Shape, floor_of, read_rate
from snippets.lab.charts.bar_charts import stacked_bars, with_rest
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
    return less(part_us(device, model, part), floor_of(device, bytes_of(device, model, part)))


def small_beyond_us(device: Device) -> Figure:
    """The time of the smaller model's early-launch step, less the time of reading."""
    return less(steady_us(device, SMALL_MODEL, EARLY), model_floor(device, SMALL_MODEL))


def boundaries_of(device: Device, model: str, part: str) -> Figure:
    """A boundary for each kernel of a part."""
    kernels, each = int(entry(device, parts_of(model), part, "launches")), boundary_us(device)
    low, high = (kernels * bound for bound in each.bounds)
    return Figure(kernels * each.number, "us", (low, high), each.origin)


def one_beyond_us(device: Device) -> Figure:
    """The time of the smaller model's one-kernel step beyond reading."""
    return less(token_us(device, ONE), floor_us(device))


def barrier_us(device: Device) -> Figure:
    """The same for each barrier."""
    return beyond_each(device, ONE, floor_us(device), barriers_of(MODELS[SMALL_MODEL][1]))


def one_beyond_bytes(device: Device) -> Figure:
    """The bytes that the GPU could read in this time."""
    us, rate = one_beyond_us(device), read_rate(device)
    return Figure(round(rate.number * us.number / 1e6), "bytes", origin=f"{rate.origin}; {us.origin}")


def barriers_of(shape: Shape) -> int:
    """Barriers of a one-kernel step: one after each part of a layer."""
    return len(LAYER_PARTS) * shape.layers


SMALL_KERNELS = ("qkv", "attend", "out")
"""All parts but the MLP and the head."""


def beyond_share(device: Device, parts: Sequence[str]) -> Figure:
    """The time beyond reading of some parts, in percent of all parts' time beyond reading."""
    times = {part: beyond(device, SMALL_MODEL, part) for part in PART_NAMES}
    return percent(unpaired_ratio(added(*(times[part] for part in parts)), added(*times.values())))


def small_kernels_bytes(device: Device) -> Figure:
    """The bytes that these parts read, in percent of the bytes of a step."""
    reading = {part: bytes_of(device, SMALL_MODEL, part) for part in PART_NAMES}
    share = 100 * sum(reading[part] for part in SMALL_KERNELS) / sum(reading.values())
    return Figure(share, "%", origin=device[parts_of(SMALL_MODEL)].origin)


@claim("DK27", at_least(50), scope="timing")
def small_kernels_miss_most(device: Device) -> Figure:
    """For the smaller model, queries, keys and values, attention, and the output projection together take at least half
    of all parts' time beyond reading."""
    return beyond_share(device, SMALL_KERNELS)


@claim("DK28", at_most(1), scope="timing")
def barrier_over_kernel(device: Device) -> Figure:
    """Beyond reading, the one-kernel step takes no more time for each barrier than the five-kernel step takes for each
    kernel.

    A barrier isn't the only time beyond reading. All parts of the one-kernel step share one number of warps, registers
    and columns, so not every part can have its best tile. We didn't measure how much of the time a barrier takes.
    """
    plain = beyond_each(device, PLAIN, floor_us(device), kernels_of(MODELS[SMALL_MODEL][1]))
    return unpaired_ratio(barrier_us(device), plain)


def missing_bars(device: Device) -> Html:
    """The time of each model's faster step: reading, and the time beyond."""
    groups = {}
    for model in MODELS:
        if "left_out" in device[steady_of(model)].data:
            continue
        time_us = steady_us(device, model, best(device, model)).number
        reading = [("reading", model_floor(device, model).number)]
        groups[f"{model} weights"] = with_rest(time_us, reading, "beyond reading")
    kinds = {"reading": "copy", "beyond reading": "pointwise"}
    return stacked_bars(
        device, groups, "Reading, and time beyond reading, in the faster step", axis="time of a token", kinds=kinds
    )


def missing_table(device: Device, model: str) -> Html:
    """Every part alone: the time beyond reading, and how much of it tails and boundaries explain."""
    small = model == SMALL_MODEL
    waiting = tails(device, EARLY) if small else {}
    rows: list[list[Cell]] = []
    for part, name in PART_NAMES.items():
        more, boundaries = beyond(device, model, part), boundaries_of(device, model, part)
        tail = waiting.get(part)
        explained = boundaries.number + (tail.number if tail else 0.0)
        rest = format_value(more.number - explained, "us")
        rows.append([name, figure_cell(more), figure_cell(tail) if tail else None, figure_cell(boundaries), rest])
    head = ["part of the step", "time beyond reading", "tails", "all boundaries, if none was hidden", "the rest"]
    caption = f"Time beyond reading of each part alone, with {model} weights"
    return table(caption, head, rows)


FIGURES: Mapping[str, Measure] = {
    "one_beyond_bytes": one_beyond_bytes,
    "one_beyond_us": one_beyond_us,
    "small_beyond_us": small_beyond_us,
    "small_kernels_bytes": small_kernels_bytes,
    "attention_beyond_share": lambda device: beyond_share(device, ("attend",)),
    "barriers": lambda device: Figure(barriers_of(MODELS[SMALL_MODEL][1]), origin="the sizes of the model"),
}
