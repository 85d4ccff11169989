"""The number of tokens at which a step begins to hide its all-reduce: predicted from two rates, and measured."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.line_charts import line_chart
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    at_most,
    between,
    claim,
    crossing,
    unpaired_ratio,
)
from snippets.lab.finding.probed import difference, entry, rate, ratio, time
from snippets.lab.page import Computation, prediction as prediction, show as show
from snippets.several_gpus.findings.data_parallel import BF16_BYTES, gradient_bytes
from snippets.several_gpus.findings.link import largest_bus, sent_share

COUNTS = "several_gpus/tokens"
WIDTH, BLOCKS = 4096, 4
"""Of the model of the sweep."""
MIN_SHARE = 1e-3
"""Of an all-reduce: a step that hides more than the rest counts as this, because a logarithmic scale has no zero."""


def counts(device: Device) -> list[int]:
    """The tokens of a step and rank, from few to many."""
    return sorted(map(int, entry(device, COUNTS, "counts")))


def matmul_rate(device: Device) -> Figure:
    """The rate of an up projection of the most tokens."""
    return rate(entry(device, COUNTS, "matmul", "flops"), time(device, COUNTS, "matmul", "us"), "flop/s")


def all_reduce_us(device: Device) -> Figure:
    """An all-reduce of as many bytes as all gradients, alone."""
    return time(device, COUNTS, "all_reduce_us")


def exposed_part(device: Device, count: int, rung: str = "ddp_us") -> Figure:
    """What a step takes longer than a step without communication, in percent of the all-reduce alone."""
    keys = ("counts", str(count))
    longer = difference(device, COUNTS, (*keys, rung), (*keys, "alone_us"))
    alone = all_reduce_us(device).number
    low, high = (100 * bound / alone for bound in longer.bounds)
    return Figure(100 * longer.number / alone, "%", (low, high), longer.origin)


def end_of_spread(figure: Figure, end: int) -> Figure:
    """The lower end of a figure's spread, or its upper end."""
    return Figure(figure.bounds[end], figure.unit, origin=figure.origin)


def half_hidden_predicted(device: Device) -> Figure:
    """The tokens whose backward takes half as long as the all-reduce: 4 P T / C is half of 2 (n - 1) / n x 2 P / B."""
    flops, bus = matmul_rate(device), largest_bus(device)
    tokens = BF16_BYTES * sent_share("all_reduce", 2) * flops.number / (4 * bus.number) / 2
    return Figure(round(tokens), origin=f"{flops.origin}; {bus.origin}")


def half_hidden(device: Device) -> Figure:
    """The tokens from which on at least half of the all-reduce is hidden, interpolated between the measured counts.

    If the highest values of the spread never fall to half, its upper end is the largest count.
    """
    places = counts(device)
    parts = [exposed_part(device, count) for count in places]
    found, low, high = (
        crossing(places, [max(MIN_SHARE, share / 100) for share in shares], [0.5] * len(places))
        for shares in ([part.number for part in parts], *zip(*(part.bounds for part in parts), strict=True))
    )
    if found is None:
        raise NotTimed(
            f"{COUNTS} on {device.name}: half of the all-reduce is hidden at every number of tokens, or never"
        )
    spread = (round(places[0] if low is None else low), round(places[-1] if high is None else high))
    return Figure(round(found), spread=spread, origin=f"{device[COUNTS].origin}, ddp less alone")


@claim("SG24", between(0.8, 4), scope="timing")
def hidden_as_predicted(device: Device) -> Figure:
    """The number of tokens that a step needs to hide half of its all-reduce is 0.8 to 4 times the predicted
    number.

    The formulas assume that products take no longer during an all-reduce, and that no kernel divides or copies the
    gradients.
    """
    return unpaired_ratio(half_hidden(device), half_hidden_predicted(device))


@claim("SG25", at_least(60), scope="timing")
def few_tokens_hide_nothing(device: Device) -> Figure:
    """With 256 tokens on each rank, DDP makes a step longer by at least 60 % of the time of the all-reduce alone."""
    return exposed_part(device, 256)


@claim("SG26", at_most(1), scope="timing")
def many_tokens_hide_it(device: Device) -> Figure:
    """With 8,192 tokens on each rank, a step takes no longer with DDP than with one bucket after backward."""
    # not the time that DDP adds: power limits these steps, and their spread is about as large as the all-reduce
    return ratio(device, COUNTS, ("counts", "8192", "ddp_us"), ("counts", "8192", "one_bucket_us"))


HIDING = Computation(
    "For how many tokens does backward take half as long as the all-reduce?",
    "several_gpus.half_hidden_predicted",
    "C is {several_gpus.matmul_rate}, and B is {several_gpus.largest_bus}.",
    "Set 4 P T / C equal to half of 2 (n - 1) / n x 2 P / B, and solve for T. P cancels.",
    {
        "several_gpus.fully_hidden_predicted": "with your result, backward takes as long as the whole all-reduce.",
        "several_gpus.half_hidden_by_both": "your result counts the forward, but no gradient is ready in the forward.",
    },
)


def tokens_chart(device: Device) -> Html:
    """What steps of more and more tokens take longer than without communication, over the all-reduce alone."""
    lines: dict[str, dict[float, Figure]] = {
        text: {count: exposed_part(device, count, kind) for count in counts(device)}
        for text, kind in (("one bucket after backward", "one_bucket_us"), ("DistributedDataParallel", "ddp_us"))
    }
    return line_chart(
        device,
        lines,
        "Added time in percent of the all-reduce alone, by the tokens of each rank, on two GPUs",
        axis="tokens of each rank",
        size_text=lambda size: f"{size:,.0f}",
        limits={"half of the all-reduce alone": Figure(50, "%")},
    )


def tokens_table(device: Device) -> Html:
    """Steps by tokens: times, and the added time over the all-reduce."""
    rows: list[list[Cell]] = []
    for count in counts(device):
        kinds = ("alone_us", "one_bucket_us", "ddp_us")
        times = [time(device, COUNTS, "counts", str(count), kind) for kind in kinds]
        cells = [*times, exposed_part(device, count, "one_bucket_us"), exposed_part(device, count)]
        rows.append([f"{count:,}", *map(figure_cell, cells)])
    head = [
        "tokens of a rank",
        "no communication",
        "one bucket",
        "DDP",
        "one bucket: added share",
        "DDP: added share",
    ]
    return table(
        "Time of a step by tokens; added share: added time over the time of the all-reduce alone",
        head,
        rows,
    )


FIGURES: Mapping[str, Measure] = {
    "matmul_rate": matmul_rate,
    "gradients_us": all_reduce_us,
    "sweep_bytes": lambda device: Figure(gradient_bytes(WIDTH, BLOCKS), "bytes", origin="the sizes of the model"),
    "ddp_share_of_many": lambda device: exposed_part(device, 8192),
    "ddp_least_share_of_many": lambda device: end_of_spread(exposed_part(device, 8192), 0),
    "ddp_most_share_of_many": lambda device: end_of_spread(exposed_part(device, 8192), -1),
    "one_bucket_share_of_many": lambda device: exposed_part(device, 8192, "one_bucket_us"),
    "half_hidden": half_hidden,
    "half_hidden_predicted": half_hidden_predicted,
    "fully_hidden_predicted": lambda device: Figure(2 * half_hidden_predicted(device).number, origin="twice"),
    "half_hidden_by_both": lambda device: Figure(round(half_hidden_predicted(device).number * 2 / 3), origin="4 of 6"),
}
