"""Decoding for more and more readers at once: the knee, predicted from the rates of this GPU."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decoder.findings.probed import entry, time
from snippets.decoder.findings.reading import BF16_BYTES, SMALL, ceiling, floor_of, read_rate
from snippets.lab.charts.bar_charts import timing_bars
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, at_most, between, claim, unpaired_ratio
from snippets.lab.finding.part import timing_of_samples
from snippets.lab.page import Computation, prediction as prediction, show as show

BATCHES = "decoder/batches"


def sizes(device: Device) -> list[str]:
    """The batches that fitted, from small to large."""
    return [batch for batch in sorted(device[BATCHES].data, key=int) if "us" in device[BATCHES].data[batch]]


def step_us(device: Device, batch: str) -> Figure:
    """A decode step of so many sequences."""
    return time(device, BATCHES, batch, "us")


def products_us(device: Device, batch: str) -> Figure:
    """The products of such a step alone."""
    return time(device, BATCHES, batch, "products_us")


def predicted_knee(device: Device) -> Figure:
    """The batch at which multiplying takes as long as reading the weights: each weight is two bytes, and two FLOPs for
    each sequence."""
    flops, read = ceiling(device, "matmul"), read_rate(device)
    return Figure(round(flops.number / read.number * BF16_BYTES / 2), origin="rate of a product / rate of reading")


def knee_of(device: Device, products: str) -> Figure:
    """The batch at which two lines meet: the time of some products at one sequence, and the line through zero and their
    time at the largest batch."""
    last = sizes(device)[-1]
    flat, steep = (time(device, BATCHES, batch, products) for batch in ("1", last))
    low, high = (int(last) * flat.bounds[i] / steep.bounds[1 - i] for i in (0, 1))
    return Figure(int(last) * flat.number / steep.number, "", (low, high), f"{flat.origin}; {steep.origin}")


def measured_knee(device: Device) -> Figure:
    """The knee of large products: the head and a layer of the larger model."""
    return knee_of(device, "large_products_us")


@claim("DE33", between(0.75, 1.25), scope="timing")
def knee_as_predicted(device: Device) -> Figure:
    """The batch size at which large products become compute-bound is within 25 % of its prediction from this GPU's
    rates."""
    predicted, measured = predicted_knee(device), measured_knee(device)
    low, high = (bound / predicted.number for bound in measured.bounds)
    return Figure(measured.number / predicted.number, "x", (low, high), measured.origin)


@claim("DE77", at_least(1.2), scope="timing")
def small_products_knee(device: Device) -> Figure:
    """The smaller model's products become compute-bound at a batch size that is at least 1.2 times as large as for the
    larger model's large products."""
    return unpaired_ratio(knee_of(device, "products_us"), measured_knee(device))


@claim("DE34", at_most(1.25), scope="timing")
def eight_readers(device: Device) -> Figure:
    """A decode step for eight texts takes at most a quarter longer than a step for one text."""
    return unpaired_ratio(step_us(device, "8"), step_us(device, "1"))


@claim("DE35", at_least(50), scope="timing")
def tokens_of_many(device: Device) -> Figure:
    """With 256 texts, the GPU decodes at least 50 times as many tokens per second as with one text."""
    if "256" not in sizes(device):
        raise NotTimed(f"{BATCHES} on {device.name} stopped before 256 sequences")
    ratio = unpaired_ratio(step_us(device, "1"), step_us(device, "256"))
    low, high = ratio.bounds
    return Figure(256 * ratio.number, "x", (256 * low, 256 * high), ratio.origin)


KNEE = Computation(
    "For how many texts does multiplying take as long as reading the weights?",
    "decoder.predicted_knee",
    "{decoder.matmul_rate} over {decoder.read_rate}, with two FLOPs for each weight of two bytes.",
    "Divide the rate of a product by the rate of reading. A weight has two bytes, and needs two FLOPs for each text.",
    {
        "decoder.half_knee": "your result leaves out that each weight has two bytes.",
        "decoder.double_knee": "your result leaves out that each weight needs two FLOPs for each text.",
    },
)


def products_bars(device: Device) -> Html:
    """Large products, the products of a decode step, and the whole step, by batch."""
    groups = {
        f"{int(batch):,} text{'s' * (batch != '1')}": {
            "large": timing_of_samples(entry(device, BATCHES, batch, "large_products_us")),
            "products": timing_of_samples(entry(device, BATCHES, batch, "products_us")),
            "whole step": timing_of_samples(entry(device, BATCHES, batch, "us")),
        }
        for batch in sizes(device)
    }
    return timing_bars(
        device,
        groups,
        "Time of large products, of a step's products and of a whole step, by number of texts",
        axis="time",
    )


def batch_table(device: Device) -> Html:
    """Decode steps by batch: time, floors, tokens a second."""
    rows: list[list[Cell]] = []
    for batch in sorted(device[BATCHES].data, key=int):
        data = device[BATCHES].data[batch]
        if "us" not in data:
            rows.append([f"{int(batch):,}", str(data["stopped"]), *[None] * 4])
            continue
        step, products = step_us(device, batch), products_us(device, batch)
        reading = floor_of(device, data["bytes"])
        arithmetic = Figure(1e6 * data["flops"] / ceiling(device, "matmul").number, "us")
        tokens_per_s = f"{1e6 * int(batch) / step.number:,.0f}"
        times = [step, products, reading, arithmetic]
        rows.append([f"{int(batch):,}", *(figure_cell(each) for each in times), tokens_per_s])
    head = [
        "texts",
        "time of a step",
        "time of its products",
        "time of reading alone",
        "time of multiplying alone",
        "tokens/s, all texts",
    ]
    return table("A decode step after 256 earlier tokens, by number of texts", head, rows)


FIGURES: Mapping[str, Measure] = {
    "predicted_knee": predicted_knee,
    "half_knee": lambda device: Figure(predicted_knee(device).number / 2, origin="half"),
    "double_knee": lambda device: Figure(predicted_knee(device).number * 2, origin="twice"),
    "small_knee": lambda device: Figure(round(knee_of(device, "products_us").number), origin=f"{BATCHES}, products"),
    "knee": lambda device: Figure(round(measured_knee(device).number), origin=measured_knee(device).origin),
    "weights_read": lambda device: Figure(BF16_BYTES * SMALL.read_weights, "bytes", origin="the sizes of the model"),
}
