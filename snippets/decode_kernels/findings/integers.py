"""Weights in int8: half of the bytes, and what becomes of the time and of the logits."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import EARLY, INT8, INT8_HEADINGS, int8_of
from snippets.decode_kernels.findings.rungs import LARGE_MODEL, SMALL_MODEL, watts
from snippets.decoder.findings.limits import joules, steady_us
from snippets.decoder.findings.probed import entry
from snippets.decoder.findings.reading import floor_of
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
from snippets.lab.page import Computation, floor_bars, prediction as prediction, show as show


def step_us(device: Device, model: str, variant: str) -> Figure:
    """The time of a step next to the steps with other weights, alone for seconds."""
    return steady_us(device, int8_of(model), variant)


def step_bytes(device: Device, model: str, variant: str) -> int:
    """The bytes that a step reads: codes, scales, weights in bf16, and cache."""
    return int(entry(device, int8_of(model), "variants", variant, "bytes"))


def int8_floor(device: Device, model: str) -> Figure:
    """The time of reading the bytes of a step with int8 weights."""
    return floor_of(device, step_bytes(device, model, INT8 + EARLY))


def bf16_floor(device: Device, model: str) -> Figure:
    """The time of reading the bytes of a step with bf16 weights."""
    return floor_of(device, step_bytes(device, model, EARLY))


def gain(device: Device, model: str, variant: str = EARLY) -> Figure:
    """How many times as many tokens a step writes with int8 weights as with bf16 weights."""
    return unpaired_ratio(step_us(device, model, variant), step_us(device, model, INT8 + variant))


def share(device: Device, model: str, variant: str) -> Figure:
    """The rate of reading in a step, in percent of the rate of reading alone."""
    return percent(
        unpaired_ratio(floor_of(device, step_bytes(device, model, variant)), step_us(device, model, variant))
    )


def error(device: Device, model: str, variant: str) -> float:
    """The error of a step's logits against float32 with the same weights, in int8 or in bf16."""
    return float(entry(device, int8_of(model), "variants", variant, "error"))


@claim("DK31", at_least(1.7), scope="timing")
def int8_gain(device: Device) -> Figure:
    """For the larger model, the early-launch step writes at least 1.7 times as many tokens per second with int8 weights
    as with bf16 weights.

    With bf16 weights, the step already reads at nearly the highest rate. With int8 weights, it reads at a lower rate:
    for each byte, the GPU must convert and multiply twice as many numbers.
    """
    return gain(device, LARGE_MODEL)


@claim("DK32", at_least(1.05), scope="timing")
def smaller_gains_less(device: Device) -> Figure:
    """In the early-launch step, int8 weights speed up the larger model at least 1.05 times as much as the smaller
    model."""
    return unpaired_ratio(gain(device, LARGE_MODEL), gain(device, SMALL_MODEL))


@claim("DK33", at_most(1), scope="timing")
def int8_reads_slower(device: Device) -> Figure:
    """For the larger model, the early-launch step reads int8 weights at no higher rate than bf16 weights."""
    return unpaired_ratio(*(share(device, LARGE_MODEL, each) for each in (INT8 + EARLY, EARLY)))


HALF = Computation(
    "How long does reading take with int8 weights?",
    "decode_kernels.int8_floor_us",
    "{decode_kernels.int8_bytes} at {decode_kernels.read_rate}.",
    "Divide the bytes that a step with int8 weights reads by the rate of reading.",
    {"decode_kernels.bf16_floor_us": "your result is the time of reading the weights in bf16."},
)


def int8_bars(device: Device) -> Html:
    """The larger model's steps with both kinds of weights, above the floor of int8."""
    names = {each: heading for each, heading in INT8_HEADINGS.items() if _ran(device, LARGE_MODEL, each)}
    rungs = {heading: step_us(device, LARGE_MODEL, each) for each, heading in names.items()}
    floor = ("the floor with int8 weights: bytes / rate of reading", int8_floor(device, LARGE_MODEL))
    caption = "Time of one token with 8 billion weights in int8 and in bf16"
    return floor_bars(
        device,
        floor,
        rungs,
        caption,
        conditions="One text. Each step ran alone for seconds. All multiples are of the floor with int8 weights.",
    )


def _ran(device: Device, model: str, variant: str) -> bool:
    return "us" in device[int8_of(model)].data.get("variants", {}).get(variant, {})


def int8_table(device: Device, model: str) -> Html:
    """A model with both kinds of weights: bytes, time, share of the highest rate, energy, error."""
    caption = f"A token with {model} weights in int8 and in bf16"
    data = device[int8_of(model)].data
    if "left_out" in data:
        return table(caption, ["step", "reason"], [["all steps", str(data["left_out"])]], text_columns=2)
    rows: list[list[Cell]] = [[heading, *_cells(device, model, variant)] for variant, heading in INT8_HEADINGS.items()]
    head = ["step", "bytes", "time", "share of the highest rate", "energy per token", "error"]
    return table(caption, head, rows)


def _cells(device: Device, model: str, variant: str) -> list[Cell]:
    if not _ran(device, model, variant):
        found = device[int8_of(model)].data["variants"].get(variant, {})
        return [str(found.get("stopped", "not in this recording")), *[None] * 4]
    watts = entry(device, int8_of(model), "variants", variant, "joules")
    energy: Cell = figure_cell(joules(device, int8_of(model), variant)) if watts else None
    return [
        format_value(step_bytes(device, model, variant), "bytes"),
        figure_cell(step_us(device, model, variant)),
        figure_cell(share(device, model, variant)),
        energy,
        format_value(error(device, model, variant)),
    ]


FIGURES: Mapping[str, Measure] = {
    "int8_floor_us": lambda device: int8_floor(device, LARGE_MODEL),
    "bf16_floor_us": lambda device: bf16_floor(device, LARGE_MODEL),
    "int8_share": lambda device: share(device, LARGE_MODEL, INT8 + EARLY),
    "bf16_share": lambda device: share(device, LARGE_MODEL, EARLY),
    "int8_us": lambda device: step_us(device, LARGE_MODEL, INT8 + EARLY),
    "int8_watts": lambda device: watts(device, int8_of(LARGE_MODEL), INT8 + EARLY),
    "int8_bytes": lambda device: Figure(
        step_bytes(device, LARGE_MODEL, INT8 + EARLY), "bytes", origin=device[int8_of(LARGE_MODEL)].origin
    ),
    "bf16_bytes": lambda device: Figure(
        step_bytes(device, LARGE_MODEL, EARLY), "bytes", origin=device[int8_of(LARGE_MODEL)].origin
    ),
    "small_int8_gain": lambda device: gain(device, SMALL_MODEL),
}
