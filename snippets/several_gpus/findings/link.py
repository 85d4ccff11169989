"""The link between GPUs: the rate and the latency of collectives, and what reaches them."""

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
    Source,
    at_least,
    at_most,
    between,
    claim,
    crossing,
    percent,
    unpaired_ratio,
)
from snippets.lab.finding.probed import entry, rate, ratio, time
from snippets.lab.page import show as show
from snippets.several_gpus.findings.measured import changed

LINKS = {2: "several_gpus/link_2", 4: "several_gpus/link_4"}
"""GPUs -> the probe of their link."""
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Collective -> how often each number crosses the link, but for the rank that has it already."""
NAMES = {"all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter"}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SMALLEST, LARGEST = 4 * KIB, GIB
NVLINK_BYTES_PER_S = 450e9
"""Of one GPU's NVLinks in one direction, on Hopper, by its datasheet."""
FEW, MANY = "1", "1024"
"""Calls for the same bytes."""
CALL_BYTES = 64 * KIB
"""Of each of the many calls."""


def size_text(size: float) -> str:
    """Bytes in powers of two: `64 KiB`."""
    for unit, scale in (("GiB", GIB), ("MiB", MIB)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size / KIB:g} KiB"


def sent_share(collective: str, ranks: int) -> float:
    """What a rank sends, as a share of the whole array, if each rank sends as little as it can."""
    return PASSES[collective] * (ranks - 1) / ranks


def sizes(device: Device, ranks: int = 2) -> list[int]:
    """The sizes of the whole array, from small to large."""
    return sorted(map(int, entry(device, LINKS[ranks], "collectives", "all_reduce")))


def call_us(device: Device, collective: str, size: int, ranks: int = 2, kind: str = "us") -> Figure:
    """One call: in a CUDA graph of repeated calls, or with `launched_us` launched by Python."""
    return time(device, LINKS[ranks], "collectives", collective, str(size), kind)


def bus_bandwidth(device: Device, collective: str, size: int, ranks: int = 2) -> Figure:
    """The bytes that a rank sends, divided by the time of the call."""
    return rate(sent_share(collective, ranks) * size, call_us(device, collective, size, ranks), "bytes/s")


def largest_bus(device: Device, ranks: int = 2) -> Figure:
    """The bus bandwidth of the largest all-reduce."""
    return bus_bandwidth(device, "all_reduce", LARGEST, ranks)


def one_way(device: Device, ranks: int = 2) -> Figure:
    """The rate of a copy to a neighbor's memory, while no other rank copies."""
    link = LINKS[ranks]
    return rate(entry(device, link, "copies", "bytes"), time(device, link, "copies", "one_us"), "bytes/s")


def both_ways(device: Device, ranks: int = 2) -> Figure:
    """The rate of all ranks' copies to their neighbors, per rank."""
    link = LINKS[ranks]
    return rate(entry(device, link, "copies", "bytes"), time(device, link, "copies", "all_us"), "bytes/s")


def latency_us(device: Device, ranks: int = 2) -> Figure:
    """The time of the smallest all-reduce, in a CUDA graph."""
    return call_us(device, "all_reduce", SMALLEST, ranks)


def half_predicted(device: Device) -> Figure:
    """The bytes whose transfer takes as long as the latency: half of the time of such a call is transfer."""
    latency, bus = latency_us(device), largest_bus(device)
    value = latency.number * bus.number / 1e6 / sent_share("all_reduce", 2)
    return Figure(value, "bytes", origin=f"{latency.origin}; {bus.origin}")


def half_measured(device: Device) -> Figure:
    """The bytes from which on an all-reduce reaches half of the bus bandwidth of the largest, interpolated."""
    half = largest_bus(device).number / 2
    places = sizes(device)
    measured = [bus_bandwidth(device, "all_reduce", size) for size in places]
    found = [
        crossing(places, [half] * len(places), rates)
        for rates in ([each.number for each in measured], *zip(*(each.bounds for each in measured), strict=True))
    ]
    middle, slow, fast = found
    if middle is None or slow is None or fast is None:
        raise NotTimed(f"on {device.name} no all-reduce, or every, reaches half of the largest bus bandwidth")
    return Figure(middle, "bytes", (min(fast, slow), max(fast, slow)), measured[0].origin)


@claim("SG1", at_least(70), scope="timing")
def all_reduce_fills_the_link(device: Device) -> Figure:
    """On two GPUs, the bus bandwidth of an all-reduce of 1 GiB is at least 70 % of the rate of a copy to the other
    GPU."""
    return percent(unpaired_ratio(largest_bus(device), one_way(device)))


@claim(
    "SG2",
    between(84, 92),
    scope="timing",
    source=Source("Machine Learning Engineering, network", "396 GB/s, 88 % of 450 GB/s", "NVIDIA H200"),
)
def copy_of_the_datasheet(device: Device) -> Figure:
    """A copy to the other GPU reaches about 88 % of the 450 GB/s that the datasheet gives for one direction."""
    return percent(unpaired_ratio(one_way(device), Figure(NVLINK_BYTES_PER_S, "bytes/s", origin="the datasheet")))


@claim("SG3", at_least(0.9), scope="timing")
def directions_do_not_share(device: Device) -> Figure:
    """While both GPUs copy to each other, each copy has at least 90 % of the rate of one copy alone."""
    return unpaired_ratio(both_ways(device), one_way(device))


@claim("SG4", at_most(2), scope="timing")
def small_calls_take_the_latency(device: Device) -> Figure:
    """In a CUDA graph, an all-reduce of 64 KiB takes at most twice as long as an all-reduce of 4 KiB."""
    return unpaired_ratio(call_us(device, "all_reduce", 64 * KIB), latency_us(device))


@claim("SG5", at_least(1.5), scope="timing")
def python_launches_slower(device: Device) -> Figure:
    """An all-reduce of 4 KiB that Python launches takes at least 1.5 times as long as an all-reduce of 4 KiB in a CUDA
    graph."""
    launched = call_us(device, "all_reduce", SMALLEST, kind="launched_us")
    return unpaired_ratio(launched, latency_us(device))


@claim("SG6", between(1, 4), scope="timing")
def half_as_predicted(device: Device) -> Figure:
    """An all-reduce reaches half of its largest bus bandwidth at one to four times as many bytes as latency times bus
    bandwidth."""
    return unpaired_ratio(half_measured(device), half_predicted(device))


@claim("SG7", between(0.85, 1.2), scope="timing")
def two_halves(device: Device) -> Figure:
    """A reduce-scatter and an all-gather of 1 GiB together take 0.85 to 1.2 times as long as an all-reduce of 1 GiB.

    Our guess, not measured: the all-gather and the reduce-scatter also copy the rank's own part, which is half of the
    array on two GPUs and a quarter of the array on four GPUs.
    """
    return halves_over_whole(device, 2)


def halves_over_whole(device: Device, ranks: int) -> Figure:
    """The time of a reduce-scatter and of an all-gather, over the time of an all-reduce."""
    names = ("reduce_scatter", "all_gather", "all_reduce")
    scatter, gather, both = (call_us(device, name, LARGEST, ranks) for name in names)
    low, high = (a + b for a, b in zip(scatter.bounds, gather.bounds, strict=True))
    parts = Figure(scatter.number + gather.number, "us", (low, high), f"{scatter.origin}; {gather.origin}")
    return unpaired_ratio(parts, both)


@claim("SG8", at_least(1), scope="timing")
def four_keep_the_bus_bandwidth(device: Device) -> Figure:
    """The bus bandwidth of an all-reduce of 1 GiB is at least as high on four GPUs as on two GPUs."""
    return unpaired_ratio(largest_bus(device, 4), largest_bus(device, 2))


@claim("SG9", at_least(5), scope="timing")
def many_calls(device: Device) -> Figure:
    """If Python launches the calls, 1,024 all-reduces take at least five times as long as one all-reduce of the same
    64 MiB."""
    upper, lower = (("calls", "counts", count, "launched_us") for count in (MANY, FEW))
    return ratio(device, LINKS[2], upper, lower)


@claim("SG10", at_least(1.5), scope="timing")
def many_calls_in_a_graph(device: Device) -> Figure:
    """In a CUDA graph, 1,024 all-reduces take at least 1.5 times as long as one all-reduce of the same 64 MiB."""
    upper, lower = (("calls", "counts", count, "us") for count in (MANY, FEW))
    return ratio(device, LINKS[2], upper, lower)


def bus_chart(device: Device) -> Html:
    """Bus bandwidth by size on two GPUs, below the rate of a copy."""
    lines: dict[str, dict[float, Figure]] = {
        text: {size: bus_bandwidth(device, name, size) for size in sizes(device)} for name, text in NAMES.items()
    }
    return line_chart(
        device,
        lines,
        "Bus bandwidth of three collectives by size, on two GPUs",
        axis="bytes of the whole array",
        size_text=size_text,
        limits={"a copy to the other GPU": one_way(device)},
    )


def four_chart(device: Device) -> Html:
    """Bus bandwidth of an all-reduce by size, on two and on four GPUs."""
    lines: dict[str, dict[float, Figure]] = {
        f"{ranks} GPUs": {size: bus_bandwidth(device, "all_reduce", size, ranks) for size in sizes(device, ranks)}
        for ranks in LINKS
    }
    return line_chart(
        device,
        lines,
        "Bus bandwidth of an all-reduce by size, on two and on four GPUs",
        axis="bytes of the whole array",
        size_text=size_text,
    )


def call_table(device: Device, ranks: int = 2) -> Html:
    """Times of each collective by size, in a graph; of an all-reduce also launched by Python."""
    rows: list[list[Cell]] = []
    for size in sizes(device, ranks):
        times = [call_us(device, name, size, ranks) for name in NAMES]
        launched = call_us(device, "all_reduce", size, ranks, "launched_us")
        bus = bus_bandwidth(device, "all_reduce", size, ranks)
        rows.append([size_text(size), *map(figure_cell, [*times, launched, bus])])
    head = ["bytes of the array", *NAMES.values(), "all-reduce launched by Python", "bus bandwidth of the all-reduce"]
    return table(f"Time of one call on {ranks} GPUs, in a CUDA graph unless launched by Python", head, rows)


def calls_table(device: Device) -> Html:
    """The same bytes in more and more calls."""
    size = entry(device, LINKS[2], "calls", "bytes")
    rows: list[list[Cell]] = []
    for count in sorted(entry(device, LINKS[2], "calls", "counts"), key=int):
        graph, launched = (time(device, LINKS[2], "calls", "counts", count, kind) for kind in ("us", "launched_us"))
        rows.append([f"{int(count):,}", size_text(size / int(count)), figure_cell(graph), figure_cell(launched)])
    head = ["calls", "bytes of a call", "time in a CUDA graph", "time if Python launches"]
    return table(f"Time to all-reduce {size_text(size)} in one call and in many calls, on two GPUs", head, rows)


def given(device: Device) -> Html:
    """What the link's measurements give a reader to compute with."""
    rows: list[list[Cell]] = [
        ["rate of a copy to the other GPU, while the other GPU does not copy", figure_cell(one_way(device))],
        ["rate of each copy, while both GPUs copy to each other", figure_cell(both_ways(device))],
        ["largest bus bandwidth: an all-reduce of 1 GiB", figure_cell(largest_bus(device))],
        ["latency: time of an all-reduce of 4 KiB", figure_cell(latency_us(device))],
    ]
    return table("Given: the link between two GPUs", ["", "measured"], rows)


FIGURES: Mapping[str, Measure] = {
    "halves_on_two": lambda device: halves_over_whole(device, 2),
    "halves_on_four": lambda device: halves_over_whole(device, 4),
    "call_in_curve_us": lambda device: call_us(device, "all_reduce", CALL_BYTES),
    "call_in_long_graph_us": lambda device: changed(
        time(device, LINKS[2], "calls", "counts", MANY, "us"), 1 / int(MANY)
    ),
    "one_way": one_way,
    "both_ways": both_ways,
    "largest_bus": largest_bus,
    "latency_us": latency_us,
    "launched_call_us": lambda device: call_us(device, "all_reduce", SMALLEST, kind="launched_us"),
    "half_predicted": half_predicted,
    "half_measured": half_measured,
    "smallest_bytes": lambda device: Figure(size_text(SMALLEST), origin=LINKS[2]),
    "call_bytes": lambda device: Figure(size_text(entry(device, LINKS[2], "calls", "bytes")), origin=LINKS[2]),
    "one_call_us": lambda device: time(device, LINKS[2], "calls", "counts", FEW, "launched_us"),
    "many_calls_us": lambda device: time(device, LINKS[2], "calls", "counts", MANY, "launched_us"),
}
