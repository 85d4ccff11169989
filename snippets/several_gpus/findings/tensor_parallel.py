"""Tensor parallel layers: the ratio of transfer to compute, and what overlap gains."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.communication import collectives
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.charts.line_charts import line_chart
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    equals,
    on_ranks,
    unpaired_ratio,
)
from snippets.lab.finding.probed import difference, entry, rate, ratio, time
from snippets.lab.page import Computation, prediction as prediction, rank_bars, show as show, timeline
from snippets.several_gpus.findings.measured import changed, parameter, products, sent_bytes, without_operators
from snippets.several_gpus.findings.sharded import bus_rate, product_rate

BOOK, LARGE = "768x3072", "4096x14336"
"""Width and hidden width of this book's MLP, and of a Llama of 8 billion weights."""
HEADINGS = {
    "reduced": "all-reduce",
    "sequence": "sequence parallel",
    "overlapped": "sequence parallel, overlapped",
}


def rows_on(gpus: int) -> str:
    """The probe of rows on so many GPUs."""
    return f"several_gpus/tensor_rows_on_{gpus}"


def predicted_ratio(device: Device, gpus: int, width: str) -> Figure:
    """An all-reduce over the products of a split MLP: 2 (n - 1) C / (3 F B)."""
    probe, hidden = rows_on(gpus), int(width.split("x")[1])
    flops, sent = product_rate(device, probe), bus_rate(device, probe)
    value = 2 * (gpus - 1) * flops.number / (3 * hidden * sent.number)
    return Figure(value, "x", origin=f"{flops.origin}; {sent.origin}")


def measured_ratio(device: Device, gpus: int, width: str, rows: str = "8192") -> Figure:
    """What the all-reduce adds to a split MLP, over the time of its products."""
    keys = ("widths", width, rows)
    whole = ratio(device, rows_on(gpus), (*keys, "reduced", "us"), (*keys, "alone", "us"))
    return changed(whole, plus=-1)


def reached_bus(device: Device, gpus: int, width: str, rows: str) -> Figure:
    """The bus bandwidth of the all-reduce, from the time that it adds to a split MLP."""
    keys = ("widths", width, rows)
    added = difference(device, rows_on(gpus), (*keys, "reduced", "us"), (*keys, "alone", "us"))
    dim = int(width.split("x")[0])
    return rate(4 * int(rows) * dim * (1 - 1 / gpus), added, "bytes/s")


def reached_rate(device: Device, gpus: int, width: str, rows: str) -> Figure:
    """FLOP/s of a split MLP that sends nothing."""
    dim, hidden = map(int, width.split("x"))
    alone = time(device, rows_on(gpus), "widths", width, rows, "alone", "us")
    return rate(6 * int(rows) * dim * hidden / gpus, alone, "flop/s")


def as_predicted(device: Device, gpus: int, width: str) -> Figure:
    """The measured ratio over the predicted."""
    return unpaired_ratio(measured_ratio(device, gpus, width), predicted_ratio(device, gpus, width))


def even_width(device: Device) -> Figure:
    """The hidden width at which an MLP's all-reduce takes as long as its products on two GPUs, by the formula."""
    flops, sent = product_rate(device, rows_on(2)), bus_rate(device, rows_on(2))
    return Figure(round(2 * flops.number / (3 * sent.number)), origin=f"{flops.origin}; {sent.origin}")


@claim("SG51", between(0.7, 1.4), scope="timing")
def large_as_predicted(device: Device) -> Figure:
    """For an MLP of hidden width 14,336 on two GPUs with 8,192 rows, the ratio of all-reduce to products is 0.7 to 1.4
    times the predicted ratio."""
    return as_predicted(device, 2, LARGE)


@claim("SG52", between(0.6, 1.67), scope="timing")
def ratio_ignores_rows(device: Device) -> Figure:
    """For an MLP of hidden width 14,336 on two GPUs, the ratio of all-reduce to products with 8,192 rows is 0.6 to 1.67
    times the ratio with 2,048 rows."""
    return unpaired_ratio(measured_ratio(device, 2, LARGE, "8192"), measured_ratio(device, 2, LARGE, "2048"))


@claim("SG53", at_most(0.3), scope="timing")
def large_on_two(device: Device) -> Figure:
    """On two GPUs with 8,192 rows, the all-reduce of an MLP of hidden width 14,336 takes at most 0.3 times as long as
    the MLP's products."""
    return measured_ratio(device, 2, LARGE)


@claim("SG54", at_least(1), scope="timing")
def book_on_four(device: Device) -> Figure:
    """On four GPUs with 8,192 rows, the all-reduce of this book's MLP takes at least as long as the
    MLP's products."""
    return measured_ratio(device, 4, BOOK)


def way_over(device: Device, gpus: int, width: str, rows: str, upper: str, lower: str) -> Figure:
    """The ratio of two ways to split an MLP."""
    keys = ("widths", width, rows)
    return ratio(device, rows_on(gpus), (*keys, upper, "us"), (*keys, lower, "us"))


@claim("SG55", between(0.85, 1.2), scope="timing")
def sequence_over_reduced(device: Device) -> Figure:
    """On two GPUs with 8,192 rows, an MLP of hidden width 14,336 takes 0.85 to 1.2 times as long with sequence parallel
    as with an all-reduce."""
    return way_over(device, 2, LARGE, "8192", "sequence", "reduced")


@claim("SG56", between(0.99, 1.01))
def same_bytes(device: Device) -> Figure:
    """In sequence parallel, a reduce-scatter and an all-gather together send as many bytes as an all-reduce."""
    runs = (device[f"several_gpus/tensor_{variant}"] for variant in ("sequence", "reduced"))
    return unpaired_ratio(*(run.per_step(sent_bytes, "bytes") for run in runs))


@claim("SG57", equals(1))
def one_sum_for_an_mlp(device: Device) -> Figure:
    """An MLP that is split by columns and then by rows needs one all-reduce in a forward."""
    run = device["several_gpus/tensor_reduced"]
    sums = run.per_step(lambda step: len(collectives(step)))
    return changed(sums, 1 / parameter(run, "layers"))


@claim("SG58", at_most(1), scope="timing")
def overlap_gains(device: Device) -> Figure:
    """On two GPUs with 8,192 rows, an MLP of hidden width 14,336 takes no longer with overlapped sequence parallel than
    with plain sequence parallel."""
    return way_over(device, 2, LARGE, "8192", "overlapped", "sequence")


@claim("SG59", at_least(1), scope="timing")
def overlap_of_few_rows(device: Device) -> Figure:
    """On two GPUs with 128 rows, an MLP of hidden width 14,336 takes at least as long with overlapped sequence parallel
    as with plain sequence parallel."""
    return way_over(device, 2, LARGE, "128", "overlapped", "sequence")


ADDING = Computation(
    "By the formula, the all-reduce of the larger MLP takes how many times its products' time on two GPUs?",
    "several_gpus.tensor_ratio_large_2",
    "The formula is 2 (n - 1) C / (3 F B), with C = {several_gpus.product_rate}, B = {several_gpus.bus_rate} and "
    "F = 14,336.",
    "Divide 2 (n - 1) C by 3 F B, with C in FLOP/s and B in bytes/s.",
    {
        "several_gpus.tensor_ratio_book_2": "your result is the ratio of this book's MLP, with F = 3,072.",
        "several_gpus.tensor_ratio_one_pass": "an all-reduce sends each number twice, so the formula begins with a 2.",
        "several_gpus.tensor_ratio_two_products": "your result counts two products, but a gated MLP has three.",
    },
)


def product_count(device: Device, variant: str) -> Figure:
    """The products in a step of a stack of split MLPs."""
    return device[f"several_gpus/tensor_{variant}"].per_step(lambda step: len(products(step)))


def ratio_table(device: Device) -> Html:
    """The predicted and the measured ratios, by rows."""
    counts = sorted(entry(device, rows_on(2), "widths", LARGE), key=int)
    rows: list[list[Cell]] = []
    for gpus in (2, 4):
        if not device[rows_on(gpus)].is_recorded:
            continue
        for width in (LARGE, BOOK):
            found = [figure_cell(measured_ratio(device, gpus, width, each)) for each in counts]
            dim, hidden = map(int, width.split("x"))
            name = f"width {dim:,}, hidden width {hidden:,}, on {gpus} GPUs"
            rows.append([name, figure_cell(predicted_ratio(device, gpus, width)), *found])
    head = ["MLP", "predicted", *(f"{int(each):,} rows" for each in counts)]
    return table("Time that an all-reduce adds to a split MLP over the time of the MLP's products", head, rows)


def way_lines(device: Device) -> Html:
    """The ways to split the larger MLP on two GPUs over its products alone, by rows; a way that did not run is left
    out."""
    points = entry(device, rows_on(2), "widths", LARGE)
    counts = sorted(points, key=int)
    ran = [way for way in HEADINGS if all("us" in points[each].get(way, {}) for each in counts)]
    lines = {
        HEADINGS[way]: {float(each): way_over(device, 2, LARGE, each, way, "alone") for each in counts} for way in ran
    }
    return line_chart(
        device,
        lines,
        "Time of an MLP of hidden width 14,336 on two GPUs over the time of its products alone",
        axis="rows",
        size_text=lambda rows: f"{rows:,.0f}",
        limits={"predicted with an all-reduce": changed(predicted_ratio(device, 2, LARGE), plus=1)},
    )


def products_us(device: Device, variant: str, rank: int) -> Figure:
    """The time of all products in a rank's step of a stack of split MLPs."""
    run = on_ranks(device[f"several_gpus/tensor_{variant}"])[rank]
    return run.per_step(lambda step: kernel_time_us(products(step)), "us")


def others_us(device: Device, variant: str) -> Figure:
    """The time of the kernels that neither multiply nor communicate, in a step of the first rank."""
    run = device[f"several_gpus/tensor_{variant}"]
    return run.per_step(lambda step: kernel_time_us({*step.kernels} - {*products(step), *collectives(step)}), "us")


def shown_ways() -> dict[str, str]:
    """Heading -> the loop of a way."""
    return {HEADINGS[name]: f"several_gpus/tensor_{name}" for name in ("reduced", "sequence", "overlapped")}


def ranks(device: Device) -> Html:
    """What both GPUs do in a step of each way."""
    return rank_bars(device, shown_ways(), "A step of each rank: four MLP blocks that are split over two GPUs")


def lanes(device: Device) -> Html:
    """The three ways on one GPU."""
    caption = "A step of four MLP blocks that are split over two GPUs, on one of the GPUs"
    return timeline(device, shown_ways(), caption, reduce=without_operators)


FIGURES: Mapping[str, Measure] = {
    "tensor_even_width": even_width,
    "tensor_measured_book_2": lambda device: measured_ratio(device, 2, BOOK),
    "tensor_measured_book_4": lambda device: measured_ratio(device, 4, BOOK),
    "tensor_ratio_large_2": lambda device: predicted_ratio(device, 2, LARGE),
    "tensor_ratio_book_2": lambda device: predicted_ratio(device, 2, BOOK),
    "tensor_ratio_one_pass": lambda device: changed(predicted_ratio(device, 2, LARGE), 1 / 2),
    "tensor_ratio_two_products": lambda device: changed(predicted_ratio(device, 2, LARGE), 3 / 2),
    "tensor_measured_large_2": lambda device: measured_ratio(device, 2, LARGE),
    "tensor_bus_large_2048": lambda device: reached_bus(device, 2, LARGE, "2048"),
    "tensor_bus_large_8192": lambda device: reached_bus(device, 2, LARGE, "8192"),
    "tensor_rate_book_128": lambda device: reached_rate(device, 2, BOOK, "128"),
    "tensor_rate_book_8192": lambda device: reached_rate(device, 2, BOOK, "8192"),
    "tensor_overlap_128": lambda device: way_over(device, 2, LARGE, "128", "overlapped", "sequence"),
    "tensor_overlap_8192": lambda device: way_over(device, 2, LARGE, "8192", "overlapped", "sequence"),
    "tensor_products_sequence": lambda device: product_count(device, "sequence"),
    "tensor_products_overlapped": lambda device: product_count(device, "overlapped"),
    "tensor_reduced_products_0": lambda device: products_us(device, "reduced", 0),
    "tensor_reduced_products_1": lambda device: products_us(device, "reduced", 1),
    "tensor_sequence_products_0": lambda device: products_us(device, "sequence", 0),
    "tensor_reduced_others": lambda device: others_us(device, "reduced"),
    "tensor_sequence_others": lambda device: others_us(device, "sequence"),
}
