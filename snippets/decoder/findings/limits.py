"""What keeps the last rung from its floor: boundaries of kernels, small kernels, and the size of the model."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decoder.findings.ladder import token_us
from snippets.decoder.findings.probed import entry, rate, time
from snippets.decoder.findings.reading import CONTEXT, LARGE, SMALL, Shape, floor_us, read_rate
from snippets.lab.charts.bar_charts import stacked_bars, with_rest
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Source,
    at_least,
    at_most,
    between,
    claim,
    format_value,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import Computation, floor_bars, prediction as prediction, show as show

LAST = "decoder/joined"
MODELS = {"1.1 billion": ("decoder/steady_1b", SMALL), "8 billion": ("decoder/steady_8b", LARGE)}
HEADINGS = {
    "eager": "plain loop",
    "graph": "eager graph",
    "layers": "compiled-layers graph",
    "joined": "joined-projections graph",
    "fused": "joined-projections graph, this book's fused MLP",
    "max_autotune": "max-autotune graph",
}


def steady_us(device: Device, experiment: str, rung: str) -> Figure:
    """The time of a token alone for seconds."""
    return time(device, experiment, "variants", rung, "us")


def joules(device: Device, experiment: str, rung: str) -> Figure:
    """The energy of a token, with the spread of its time. Raises `NotTimed` without power readings."""
    value = entry(device, experiment, "variants", rung, "joules")
    if not value:
        raise NotTimed(f"{experiment} on {device.name} has no energy: its power was not read")
    us = steady_us(device, experiment, rung)
    low, high = (value * bound / us.number for bound in us.bounds)
    return Figure(value, "J", (low, high), f"{device[experiment].origin}, {rung}")


def read_share(device: Device, model: str, rung: str) -> Figure:
    """The rate at which a token's bytes are read, in percent of the rate of reading alone."""
    experiment, shape = MODELS[model]
    reads = rate(shape.read_bytes(1, CONTEXT), steady_us(device, experiment, rung), "bytes/s")
    return percent(unpaired_ratio(reads, read_rate(device)))


def boundary_us(device: Device) -> Figure:
    """What a kernel that does next to nothing takes inside a CUDA graph."""
    return time(device, "decoder/boundary", "1", "us")


def boundaries_us(device: Device) -> Figure:
    """The kernels of a token of the last rung, times a boundary."""
    kernels, each = device[LAST].per_step(lambda step: len(step.kernels)), boundary_us(device)
    return Figure(kernels.number * each.number, "us", origin=f"{kernels.origin}; {each.origin}")


def floor_with_boundaries(device: Device) -> Figure:
    """Reading, and a boundary for each kernel."""
    reading, boundaries = floor_us(device), boundaries_us(device)
    return Figure(reading.number + boundaries.number, "us", origin=f"{reading.origin}; {boundaries.origin}")


@claim("DE24", between(1.17, 1.43), scope="timing", source=Source("Hazy Research", "1.3 µs", device="NVIDIA H100"))
def boundary_as_said(device: Device) -> Figure:
    """Inside a CUDA graph, a kernel that does next to nothing takes about 1.3 µs.

    We time a chain of kernels on one number. The source doesn't say which kernels it timed.
    """
    return boundary_us(device)


@claim("DE25", at_least(2), scope="timing")
def boundary_in_a_stream(device: Device) -> Figure:
    """A kernel that does next to nothing takes at least twice as long outside a CUDA graph as inside a CUDA graph."""
    return unpaired_ratio(time(device, "decoder/boundary", "1", "stream_us"), boundary_us(device))


@claim("DE26", at_least(100 / 3), scope="timing")
def boundaries_explain(device: Device) -> Figure:
    """In a CUDA graph with joined projections, boundaries between kernels take at least a third of a token's time
    beyond the time of reading."""
    beyond = token_us(device, "joined").number - floor_us(device).number
    if beyond <= 0:
        raise NotTimed("the joined-projections graph takes no longer than its floor")
    boundaries = boundaries_us(device)
    return Figure(100 * boundaries.number / beyond, "%", origin=boundaries.origin)


@claim("DE27", at_least(70), scope="timing")
def large_model_reads(device: Device) -> Figure:
    """With max-autotune, the GPU reads 8 billion weights at 70 % or more of its highest rate of reading."""
    return read_share(device, "8 billion", "max_autotune")


@claim("DE28", at_least(1.2), scope="timing")
def larger_comes_nearer(device: Device) -> Figure:
    """With compiled layers, the GPU reads a model of 8 billion weights at least 1.2 times as fast as a model of 1.1
    billion weights."""
    return unpaired_ratio(read_share(device, "8 billion", "layers"), read_share(device, "1.1 billion", "layers"))


@claim("DE29", at_most(0.5), scope="timing")
def energy_of_a_token(device: Device) -> Figure:
    """A token takes at most half as much energy with joined projections in a CUDA graph as in the plain token loop."""
    return unpaired_ratio(*(joules(device, "decoder/steady_1b", rung) for rung in ("joined", "eager")))


@claim("DE79", at_most(0.95), scope="timing")
def fused_mlp(device: Device) -> Figure:
    """In a CUDA graph with joined projections, this book's fused MLP shortens a token's time by at least 5 %."""
    return unpaired_ratio(*(steady_us(device, "decoder/steady_1b", rung) for rung in ("fused", "joined")))


BOUNDARIES = Computation(
    "How long do reading and the boundaries between kernels take together?",
    "decoder.floor_with_boundaries",
    "{decoder.floor_us} of reading, and {decoder.joined_kernels} boundaries of {decoder.boundary_us}.",
    "Add one boundary for each kernel to the floor.",
    {
        "decoder.boundaries_us": "your result is the time of the boundaries alone.",
        "decoder.floor_us": "your result is the time of reading alone.",
    },
)


def last_bars(device: Device) -> Html:
    """The last rung between its floors."""
    rungs = {
        "floor and boundaries: one boundary per kernel": floor_with_boundaries(device),
        "joined-projections graph": token_us(device, "joined"),
    }
    return floor_bars(
        device,
        ("the floor: bytes / rate of reading", floor_us(device)),
        rungs,
        "Time of one token in the joined-projections graph, and its floor",
    )


def parts(device: Device) -> Html:
    """The last rung's token as reading, boundaries, and the rest."""
    boundaries = ("boundaries between kernels", boundaries_us(device).number)
    computed = [("reading", floor_us(device).number), boundaries]
    groups = {"a token": with_rest(token_us(device, "joined").number, computed, "the rest")}
    kinds = {"reading": "copy", "boundaries between kernels": "other", "the rest": "pointwise"}
    return stacked_bars(
        device,
        groups,
        "The parts of a token's time in the joined-projections graph",
        axis="time of a token",
        kinds=kinds,
    )


def models(device: Device) -> Html:
    """Both models alone for seconds: time, rate, clock, power, energy of a token."""
    rows: list[list[Cell]] = []
    for model, (experiment, shape) in MODELS.items():
        data = device[experiment].data
        if "left_out" in data:
            rows.append([model, "left out", str(data["left_out"]), *[None] * 5])
            continue
        variants = data["variants"]
        for rung, found in sorted(variants.items(), key=lambda item: [*HEADINGS].index(item[0])):
            stopped = [str(found["stopped"]), *[None] * 5] if "stopped" in found else None
            rows.append([model, HEADINGS.get(rung, rung), *(stopped or _model_cells(device, experiment, rung, shape))])
    head = [
        "weights",
        "loop",
        "time of a token",
        "rate of reading",
        "share of the highest rate",
        "clock",
        "power",
        "energy of a token",
    ]
    return table(
        "Time and energy of a token by model and loop, if each loop runs alone for seconds", head, rows, text_columns=2
    )


def _model_cells(device: Device, experiment: str, rung: str, shape: Shape) -> list[Cell]:
    us = steady_us(device, experiment, rung)
    reads = rate(shape.read_bytes(1, CONTEXT), us, "bytes/s")
    found = entry(device, experiment, "variants", rung)
    sensors = [(found["clock_mhz"], "MHz"), (found["watts"], "W"), (found["joules"], "J")]
    share = percent(unpaired_ratio(reads, read_rate(device)))
    texts: list[Cell] = [format_value(value, unit) if value else None for value, unit in sensors]
    return [figure_cell(us), format_value(reads.number, "bytes/s"), figure_cell(share), *texts]


FIGURES: Mapping[str, Measure] = {
    "boundary_us": boundary_us,
    "boundaries_us": boundaries_us,
    "floor_with_boundaries": floor_with_boundaries,
    "boundary_in_stream": lambda device: time(device, "decoder/boundary", "1", "stream_us"),
    "large_read_share": lambda device: read_share(device, "8 billion", "max_autotune"),
    "large_layers_share": lambda device: read_share(device, "8 billion", "layers"),
    "small_layers_share": lambda device: read_share(device, "1.1 billion", "layers"),
    "large_us": lambda device: steady_us(device, "decoder/steady_8b", "max_autotune"),
    "eager_joules": lambda device: joules(device, "decoder/steady_1b", "eager"),
    "tokens_per_joule": lambda device: Figure(
        1 / joules(device, "decoder/steady_1b", "joined").number, origin="one joule / a token's"
    ),
    "joined_joules": lambda device: joules(device, "decoder/steady_1b", "joined"),
}
