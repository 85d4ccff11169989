"""Options of DistributedDataParallel: buckets, gradients as views of them, and `no_sync`."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    claim,
    equals,
    format_value,
)
from snippets.lab.finding.probed import entry, ratio, time
from snippets.lab.page import show as show
from snippets.several_gpus.findings.data_parallel import BF16_BYTES, BLOCKS, WIDTH

OPTIONS = "several_gpus/ddp_options"
MODEL = f"{BLOCKS} blocks of width {WIDTH}"


@claim("SG20", equals(True))
def parameters_are_not_divided(device: Device) -> Figure:
    """With `bucket_cap_mb=1` and with `bucket_cap_mb=25`, `DistributedDataParallel` makes equally many buckets."""
    one, more = (len(entry(device, OPTIONS, "variants", f"bucket_cap_mb={cap}", "buckets")) for cap in (1, 25))
    return Figure(one == more, origin=f"{OPTIONS}: {one} and {more} buckets")


@claim("SG21", at_least(1.05), scope="timing")
def one_large_bucket(device: Device) -> Figure:
    """A step of `DistributedDataParallel` takes at least 5 % longer with one bucket for all gradients than with default
    buckets."""
    return option_ratio(device, "bucket_cap_mb=2000", "defaults")


@claim("SG22", at_most(1), scope="timing")
def larger_buckets(device: Device) -> Figure:
    """With `bucket_cap_mb=250`, a step takes no longer than with `bucket_cap_mb=25`."""
    return option_ratio(device, "bucket_cap_mb=250", "bucket_cap_mb=25")


@claim("SG23", at_most(0.9), scope="timing")
def no_sync_saves(device: Device) -> Figure:
    """A step of four batches takes at least 10 % less time with `no_sync` than with an all-reduce of all gradients for
    each batch."""
    return ratio(device, OPTIONS, ("accumulation", "no_sync_us"), ("accumulation", "synced_us"))


def option_ratio(device: Device, upper: str, lower: str) -> Figure:
    """The ratio of steps with two options."""
    return ratio(device, OPTIONS, ("variants", upper, "us"), ("variants", lower, "us"))


def options_table(device: Device) -> Html:
    """Options of DistributedDataParallel: time and buckets."""
    rows: list[list[Cell]] = []
    for name in sorted(entry(device, OPTIONS, "variants"), key=_option_order):
        sent = entry(device, OPTIONS, "variants", name, "buckets")
        ends = [format_value(sent[index], "bytes") for index in (0, -1)]
        us = time(device, OPTIONS, "variants", name, "us")
        rows.append([name, figure_cell(us), f"{len(sent)}", *ends])
    head = ["option", "time of a step", "buckets", "first bucket", "last bucket"]
    caption = f"Options of DistributedDataParallel: steps of {MODEL} with 2,048 tokens on each of two GPUs"
    return table(caption, head, rows)


def _option_order(name: str) -> tuple[bool, int, str]:
    """Limits of buckets from small to large, and then the other options by name."""
    option, _, limit = name.partition("=")
    return not limit, int(limit or 0), option


def accumulation_table(device: Device) -> Html:
    """A step of several batches, with an all-reduce for each and for the last alone."""
    data = entry(device, OPTIONS, "accumulation")
    batches = data["batches"]
    names = {"without no_sync": "synced_us", "no_sync for all batches but the last": "no_sync_us"}
    rows: list[list[Cell]] = [
        [name, str(batches if kind == "synced_us" else 1), figure_cell(_accumulated(device, kind))]
        for name, kind in names.items()
    ]
    caption = f"A step of {MODEL} with {batches} batches of {data['tokens']:,} tokens"
    return table(caption, ["", "transfers of all gradients", "time of a step"], rows)


def _accumulated(device: Device, kind: str) -> Figure:
    return time(device, OPTIONS, "accumulation", kind)


FIGURES: Mapping[str, Measure] = {
    "matrix_bytes": lambda device: Figure(BF16_BYTES * 4 * WIDTH**2, "bytes", origin="the sizes of the model"),
}
