"""Published times and rates of links and collectives, next to ours."""

from __future__ import annotations

from html import escape

from kinetoscope.html import Cell, Html, table
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotRecorded,
    NotTimed,
    Source,
    between,
    claim,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import show as show
from snippets.several_gpus.findings.link import MIB, call_us, copy_of_the_datasheet, largest_bus, one_way

PUBLISHED_BUS = 363.3e9
"""Bytes per second of an all-reduce of 8 GiB on four H200, without NVLink multicast."""
ADDRESSES = {
    "Machine Learning Engineering, network": "https://github.com/stas00/ml-engineering/tree/master/network",
    "marin, issue 6736": "https://github.com/marin-community/marin/issues/6736",
}
"""Source -> its address."""


@claim(
    "SG80",
    between(90, 110),
    scope="timing",
    source=Source("Machine Learning Engineering, network", "363 GB/s", "NVIDIA H200", only_there=True),
)
def bus_as_published(device: Device) -> Figure:
    """On four GPUs, the bus bandwidth of an all-reduce of 1 GiB is within 10 % of the published value for 8 GiB."""
    published = Figure(PUBLISHED_BUS, "bytes/s", origin="Machine Learning Engineering")
    return percent(unpaired_ratio(largest_bus(device, 4), published))


@claim(
    "SG81",
    between(20, 25),
    scope="timing",
    source=Source("marin, issue 6736", "20 to 25 µs", "NVIDIA H100", only_there=True),
)
def small_call_as_published(device: Device) -> Figure:
    """An all-reduce of 1 MiB takes 20 to 25 µs. The source measured eight GPUs, and we measure four GPUs."""
    return call_us(device, "all_reduce", MIB, 4)


def four_bus(device: Device) -> Figure:
    """The bus bandwidth of the largest all-reduce on four GPUs."""
    return largest_bus(device, 4)


ROWS = (
    ("rate of a copy to another GPU", copy_of_the_datasheet, "two H200", one_way, "two GPUs"),
    ("bus bandwidth of an all-reduce", bus_as_published, "four H200, 8 GiB", four_bus, "four GPUs, 1 GiB"),
    (
        "time of an all-reduce",
        small_call_as_published,
        "eight H100, up to 1 MiB",
        small_call_as_published,
        "four GPUs, 1 MiB",
    ),
)
"""What, the claim with the source, the source's GPUs, our measure, and our GPUs."""


def published_table(device: Device) -> Html:
    """What others published and what we measured, each with the number of GPUs."""
    rows: list[list[Cell]] = []
    for name, said, theirs, measure, ours in ROWS:
        source = said.source
        assert source is not None
        link = Html(f'<a href="{ADDRESSES[source.who]}">{escape(source.who)}</a>')
        rows.append([name, link, _with(source.value, theirs), _with(_measured(device, measure), ours)])
    return table(
        "Published times and rates, and ours", ["", "source", "published", "measured here"], rows, text_columns=2
    )


def _with(value: str, gpus: str) -> Html:
    """A value above its GPUs in small type."""
    return Html(f"{escape(value)}<small>{escape(gpus)}</small>")


def _measured(device: Device, measure: Measure) -> str:
    """A measured value; without four GPUs there may be none."""
    try:
        return measure(device).text
    except (NotRecorded, NotTimed):
        return "not measured"
