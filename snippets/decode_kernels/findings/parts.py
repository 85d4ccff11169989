"""Each part of a step alone: its bytes, its time, its rate; and a roofline of the step."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import (
    EARLY,
    PART_NAMES,
    part_flops,
    parts_of,
    tokens_of,
)
from snippets.decode_kernels.findings.rungs import LARGE_MODEL, SMALL_MODEL, steady_us
from snippets.decode_kernels.findings.waits import added
from snippets.decoder.findings.limits import boundary_us
from snippets.decoder.findings.probed import entry, rate, time
from snippets.decoder.findings.reading import CEILINGS, CONTEXT, SMALL, floor_of, read_rate
from snippets.lab.charts.curve_charts import roofline_of
from snippets.lab.charts.curves import RooflinePoint
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    format_value,
    percent,
    timing_of_samples,
    unpaired_ratio,
)
from snippets.lab.page import show as show
from snippets.lab.recording.schema import Ceiling, Timing

SMALL_PRODUCTS = ("qkv", "out")
"""The parts of a layer with the fewest weights."""


def part_us(device: Device, model: str, part: str, batch: int = 1) -> Figure:
    """The time of a part of all layers alone."""
    return time(device, parts_of(model, batch), part, "us")


def bytes_of(device: Device, model: str, part: str, batch: int = 1) -> int:
    """The bytes that a part reads in all layers."""
    return int(entry(device, parts_of(model, batch), part, "bytes"))


def part_share(device: Device, model: str, part: str, batch: int = 1) -> Figure:
    """The rate at which a part alone reads, in percent of the rate of reading alone."""
    reading = floor_of(device, bytes_of(device, model, part, batch))
    return percent(unpaired_ratio(reading, part_us(device, model, part, batch)))


def sum_of_parts(device: Device, model: str) -> Figure:
    """The times of all parts alone, added."""
    return added(*(part_us(device, model, part) for part in PART_NAMES))


@claim("DK22", between(0.85, 1.15), scope="timing")
def parts_make_the_step(device: Device) -> Figure:
    """For the larger model, the times of all parts alone add up to the time of the early-launch step, within 15 %."""
    return unpaired_ratio(sum_of_parts(device, LARGE_MODEL), steady_us(device, LARGE_MODEL, EARLY))


@claim("DK23", at_least(90), scope="timing")
def large_part_reads(device: Device) -> Figure:
    """Alone, the larger model's kernels of gate and up read at 90 % or more of the highest rate of reading."""
    return part_share(device, LARGE_MODEL, "gate_up")


@claim("DK24", at_most(50), scope="timing")
def attention_reads_slowly(device: Device) -> Figure:
    """Alone, the smaller model's attention for one text reads at half or less of the highest rate of reading."""
    return part_share(device, SMALL_MODEL, "attend")


@claim("DK25", at_least(1.1), scope="timing")
def more_bytes_read_faster(device: Device) -> Figure:
    """For the smaller model, the kernels of gate and up alone read at least 1.1 times as fast as the kernels of the
    output projection alone."""
    return unpaired_ratio(*(part_share(device, SMALL_MODEL, part) for part in ("gate_up", "out")))


@claim("DK26", at_least(99))
def bytes_of_products(device: Device) -> Figure:
    """For one text after 528 earlier tokens, at least 99 % of the bytes that a step reads are weights of the layers'
    products and of the output head."""
    reading = {part: bytes_of(device, SMALL_MODEL, part) for part in PART_NAMES}
    share = 100 * (1 - reading["attend"] / sum(reading.values()))
    return Figure(share, "%", origin=device[parts_of(SMALL_MODEL)].origin)


def part_table(device: Device, model: str, batch: int = 1) -> Html:
    """The parts of a step alone: kernels, bytes, time, rate, share of the highest rate."""
    texts = "one text" if batch == 1 else f"{batch} texts"
    rows: list[list[Cell]] = []
    for part, name in PART_NAMES.items():
        us, moved = part_us(device, model, part, batch), bytes_of(device, model, part, batch)
        kernels = int(entry(device, parts_of(model, batch), part, "launches"))
        reads = rate(moved, us, "bytes/s")
        cells: list[Cell] = [f"{kernels}", format_value(moved, "bytes"), figure_cell(us)]
        share = figure_cell(part_share(device, model, part, batch))
        rows.append([name, *cells, format_value(reads.number, "bytes/s"), share])
    head = ["part of the step", "kernels", "bytes, all layers", "time, all layers"]
    head += ["rate of reading", "share of the highest rate"]
    return table(f"Each part of a step alone, with {model} weights and {texts}", head, rows)


def part_roofline(device: Device) -> Html:
    """The parts of the smaller model's step alone, and the step."""
    flops = part_flops(SMALL, 1, CONTEXT)
    points = {
        name: RooflinePoint(flops[part], bytes_of(device, SMALL_MODEL, part), _samples(device, part))
        for part, name in PART_NAMES.items()
    }
    timing = device[tokens_of(EARLY)].timing("iteration")
    points["the step"] = RooflinePoint(sum(flops.values()), SMALL.read_bytes(1, CONTEXT), timing)
    return roofline_of(
        device,
        points,
        "The parts of a decode step and the early-launch step, with 1.1 billion weights",
        ceilings=roofs(device),
    )


def _samples(device: Device, part: str) -> Timing:
    return timing_of_samples(entry(device, parts_of(SMALL_MODEL), part, "us"))


def roofs(device: Device) -> list[Ceiling]:
    """The rates of reading alone and of a large product, which the chapter decoder recorded."""
    data = device[CEILINGS].data
    samples = {name: timing_of_samples(data["samples_us"][name]) for name in ("sum", "matvec", "matmul")}
    reading = [Ceiling(f"reading, {name}", data["bytes"][name], 0, samples[name]) for name in ("sum", "matvec")]
    return [*reading, Ceiling("matmul 8192x8192x8192", 0, data["flops"], samples["matmul"])]


def boundary_bytes(device: Device) -> Figure:
    """The bytes that the GPU could read during one boundary."""
    rate_of, each = read_rate(device), boundary_us(device)
    return Figure(round(rate_of.number * each.number / 1e6), "bytes", origin=f"{rate_of.origin}; {each.origin}")


FIGURES: Mapping[str, Measure] = {
    "gate_up_share": lambda device: part_share(device, SMALL_MODEL, "gate_up"),
    "out_share": lambda device: part_share(device, SMALL_MODEL, "out"),
    "attend_bytes": lambda device: Figure(
        bytes_of(device, SMALL_MODEL, "attend"), "bytes", origin=device[parts_of(SMALL_MODEL)].origin
    ),
    "out_bytes_of_a_kernel": lambda device: Figure(2 * SMALL.dim * SMALL.dim, "bytes", origin="the sizes of the model"),
}
