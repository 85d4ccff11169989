"""The same tokens of the same weights, rung by rung with less for the CPU to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.queries import busy_us, copies, count_launches
from snippets.decoder.findings.generating import busy_share, generate_us, host_reads, launches
from snippets.decoder.findings.probed import rate, time
from snippets.decoder.findings.reading import CONTEXT, SMALL, floor_us, read_rate
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    derived,
    equals,
    format_value,
    paired_ratio,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import Computation, floor_bars, prediction as prediction, show as show, timeline

READ_BYTES = SMALL.read_bytes(1, CONTEXT)
RUNGS = {
    "plain loop": "decoder/eager",
    "static-cache loop": "decoder/static",
    "eager graph": "decoder/graph",
    "compiled step": "decoder/compiled",
    "reduce-overhead step": "decoder/reduce_overhead",
    "compiled-layers graph": "decoder/layers",
    "joined-projections graph": "decoder/joined",
    "max-autotune graph": "decoder/max_autotune",
}
"""Rung -> experiment, in the order of the page."""
GENERATE = "generate"
LAUNCHED = ("eager", "static", "compiled")
"""Rungs whose kernels the CPU launches one by one."""
LADDER = ("generate", "eager", "graph", "layers", "joined")
"""Rungs that each take less time than the one before."""


def token_us(device: Device, rung: str) -> Figure:
    """The time of a token on a rung, by the name of its experiment, or of `generate`."""
    return generate_us(device) if rung == "generate" else device[f"decoder/{rung}"].time("iteration")


def over(device: Device, upper: str, lower: str) -> Figure:
    """The ratio of two rungs' times: in pairs of blocks if both were timed in turns. Rungs that wait for the CPU are
    timed apart from those that wait for the GPU."""
    above, below = device[f"decoder/{upper}"], device[f"decoder/{lower}"]
    if (upper in LAUNCHED) == (lower in LAUNCHED):
        return paired_ratio(above, below, "iteration")
    return unpaired_ratio(above.time("iteration"), below.time("iteration"))


def read_share(device: Device, rung: str) -> Figure:
    """The rate at which a rung reads the bytes that a token needs, in percent of the rate of reading alone."""
    return percent(unpaired_ratio(floor_us(device), token_us(device, rung)))


def gpu_share(device: Device, rung: str) -> Figure:
    """The GPU's work on a token in the trace, in percent of its time without the profiler."""
    run = device[f"decoder/{rung}"]
    return percent(unpaired_ratio(run.per_step(lambda step: busy_us(step.activities), "us"), run.time("iteration")))


@claim("DE10", at_most(1), scope="timing")
def own_loop(device: Device) -> Figure:
    """A token takes no more time in this book's plain token loop than in `generate`."""
    return unpaired_ratio(token_us(device, "eager"), token_us(device, "generate"))


@claim("DE11", between(0.75, 1.25), scope="timing")
def static_alone(device: Device) -> Figure:
    """If the CPU launches each kernel, a static cache in place of a growing cache changes a token's time by at most a
    quarter."""
    return over(device, "static", "eager")


@claim("DE12", at_most(50), scope="timing")
def own_loop_waits(device: Device) -> Figure:
    """In this book's plain token loop, the GPU works at most half of the time."""
    return gpu_share(device, "eager")


@claim("DE13", equals(1))
def one_launch(device: Device) -> Figure:
    """A CUDA graph that we record ourselves computes a token with one launch."""
    return device["decoder/graph"].per_step(lambda step: sum("Graph" in call.name for call in step.calls))


@claim("DE14", at_least(3), scope="timing")
def graph_gain(device: Device) -> Figure:
    """With a static cache, a token with separate launches takes at least three times as long as a token replayed as a
    CUDA graph."""
    return over(device, "static", "graph")


@claim("DE15", at_least(1.5), scope="timing")
def compiled_without_graph(device: Device) -> Figure:
    """A token takes at least 1.5 times as long with `torch.compile` in its default mode as with eager kernels in a CUDA
    graph."""
    return over(device, "compiled", "graph")


@claim("DE16", at_most(1), scope="timing")
def reduce_overhead_over_graph(device: Device) -> Figure:
    """A token takes no longer with `mode="reduce-overhead"` than with eager kernels in a CUDA graph."""
    return over(device, "reduce_overhead", "graph")


@claim("DE17", at_most(0.9), scope="timing")
def compiled_layers(device: Device) -> Figure:
    """In a CUDA graph, compiled layers in place of eager layers shorten a token's time by at least a tenth."""
    return over(device, "layers", "graph")


@claim("DE18", at_most(0.9), scope="timing")
def joined_projections(device: Device) -> Figure:
    """In a CUDA graph with compiled layers, joined projections shorten a token's time by at least a tenth."""
    return over(device, "joined", "layers")


@claim("DE19", between(0.8, 1.2), scope="timing")
def autotuned(device: Device) -> Figure:
    """In a CUDA graph with joined projections, max-autotune changes a token's time by at most a fifth."""
    return over(device, "max_autotune", "joined")


@claim("DE20", equals(" > ".join(LADDER)), scope="timing")
def ladder_in_order(device: Device) -> Figure:
    """A token takes less time in each of these loops than in the loop listed before it: `generate`, plain loop, CUDA
    graph, compiled layers, joined projections."""
    times = {name: token_us(device, name) for name in LADDER}
    order = sorted(times, key=lambda name: -times[name].number)
    return derived(" > ".join(order), *times.values())


@claim("DE21", at_least(85), scope="timing")
def last_rung_is_busy(device: Device) -> Figure:
    """In a CUDA graph with joined projections, the GPU works at least 85 % of a token's time."""
    return gpu_share(device, "joined")


@claim("DE22", at_most(2 / 3))
def fewer_kernels(device: Device) -> Figure:
    """A token with compiled layers runs at most two thirds of the kernels of a token with eager layers."""
    few, many = (device[f"decoder/{name}"].per_step(lambda step: len(step.kernels)) for name in ("layers", "graph"))
    return derived(few.number / many.number, few, many, unit="x")


@claim("DE23", at_most(75), scope="timing")
def far_from_the_floor(device: Device) -> Figure:
    """In a CUDA graph with joined projections, the GPU reads 1.1 billion weights at no more than three quarters of its
    highest rate of reading."""
    return read_share(device, "joined")


def launch_cost(device: Device) -> Figure:
    """What a kernel of one number costs in a row of launches."""
    return time(device, "decoder/boundary", "1", "stream_us")


def launching_us(device: Device) -> Figure:
    """Kernels of a token of the plain loop, times the cost of a launch."""
    kernels, cost = device["decoder/eager"].per_step(lambda step: len(step.kernels)), launch_cost(device)
    return Figure(kernels.number * cost.number, "us", origin=f"{kernels.origin}; {cost.origin}")


LAUNCHING = Computation(
    "How long do the launches of a token take?",
    "decoder.launching_us",
    "{decoder.eager.kernels_per_step} launches, each of {decoder.launch_cost}.",
    "Multiply the kernels of a token by the cost of a launch.",
    {"decoder.floor_us": "your result is the time of reading."},
)


def ladder_bars(device: Device) -> Html:
    """A token on each rung, from the floor up."""
    rungs = {GENERATE: generate_us(device)} | {name: device[each].time("iteration") for name, each in RUNGS.items()}
    caption = "Time of one token with 1.1 billion weights, by loop"
    floor = ("the floor: bytes / rate of reading", floor_us(device))
    return floor_bars(device, floor, rungs, caption, conditions=CONDITIONS)


CONDITIONS = "One text, without the profiler. The scale is linear."


def first_bars(device: Device) -> Html:
    """A token of `generate`, from the floor up."""
    floor = ("the floor: bytes / rate of reading", floor_us(device))
    rungs = {GENERATE: generate_us(device)}
    return floor_bars(device, floor, rungs, "Time of one token in generate, and its floor", conditions=CONDITIONS)


def plain_bars(device: Device) -> Html:
    """A token of the plain loop, over its launches alone."""
    launching = ("launches alone: kernels x cost of a launch", launching_us(device))
    rungs = {"plain loop": token_us(device, "eager")}
    return floor_bars(
        device, launching, rungs, "Time of one token in the plain loop, and of its launches", conditions=CONDITIONS
    )


def ladder_table(device: Device) -> Html:
    """The rungs side by side: launches, copies to the CPU, kernels, the GPU's share, rate, tokens per second."""
    first = [launches(device), host_reads(device), None, busy_share(device)]
    rows: list[list[Cell]] = [_row(device, GENERATE, generate_us(device), first)]
    for name, experiment in RUNGS.items():
        run = device[experiment]
        counts = [
            run.per_step(count_launches),
            run.per_step(lambda step: len(copies(step, "DtoH"))),
            run.per_step(lambda step: len(step.kernels)),
            gpu_share(device, experiment.partition("/")[2]),
        ]
        rows.append(_row(device, name, run.time("iteration"), counts))
    head = [
        "loop",
        "launches",
        "copies to the CPU",
        "kernels",
        "GPU busy",
        "time of a token",
        "tokens/s",
        "rate of reading",
        "share of the highest rate",
    ]
    return table("Launches, kernels and time of one token, by loop", head, rows)


def _row(device: Device, name: str, token: Figure, counts: Sequence[Figure | None]) -> list[Cell]:
    reads = rate(READ_BYTES, token, "bytes/s")
    share = percent(unpaired_ratio(reads, read_rate(device)))
    numbers: list[Cell] = [figure_cell(each) if each else None for each in counts]
    tokens_per_s = f"{1e6 / token.number:,.0f}"
    return [name, *numbers, figure_cell(token), tokens_per_s, format_value(reads.number, "bytes/s"), figure_cell(share)]


def two_traces(device: Device, first: str, second: str, caption: str) -> Html:
    """A token of two rungs on one time scale."""
    return timeline(device, {first: f"decoder/{first}", second: f"decoder/{second}"}, caption)


def _per_second(token: Figure) -> Figure:
    return Figure(round(1e6 / token.number), origin=f"a second / {token.origin}")


FIGURES: Mapping[str, Measure] = {
    "eager_us": lambda device: token_us(device, "eager"),
    "graph_us": lambda device: token_us(device, "graph"),
    "reduce_overhead_us": lambda device: token_us(device, "reduce_overhead"),
    "reduce_overhead_speedup": lambda device: unpaired_ratio(
        token_us(device, "generate"), token_us(device, "reduce_overhead")
    ),
    "layers_us": lambda device: token_us(device, "layers"),
    "joined_us": lambda device: token_us(device, "joined"),
    "joined_kernels": lambda device: device["decoder/joined"].per_step(lambda step: len(step.kernels)),
    "eager_busy": lambda device: gpu_share(device, "eager"),
    "joined_busy": lambda device: gpu_share(device, "joined"),
    "joined_read_share": lambda device: read_share(device, "joined"),
    "generate_read_share": lambda device: read_share(device, "generate"),
    "launch_cost": launch_cost,
    "launching_us": launching_us,
    "compiled_over_graph": lambda device: over(device, "compiled", "graph"),
    "layers_over_graph": lambda device: over(device, "layers", "graph"),
    "joined_over_layers": lambda device: over(device, "joined", "layers"),
    "autotuned_over_joined": lambda device: over(device, "max_autotune", "joined"),
    "joined_over_floor": lambda device: unpaired_ratio(token_us(device, "joined"), floor_us(device)),
    "generate_over_joined": lambda device: unpaired_ratio(token_us(device, "generate"), token_us(device, "joined")),
    "eager_over_floor": lambda device: unpaired_ratio(token_us(device, "eager"), floor_us(device)),
    "joined_tokens_per_s": lambda device: _per_second(token_us(device, "joined")),
    "generate_tokens_per_s": lambda device: _per_second(generate_us(device)),
    "floor_tokens_per_s": lambda device: _per_second(floor_us(device)),
}
