"""Data parallel: the ladder, from how many tokens a step hides its all-reduce, and what options change."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.communication import collectives, exposed_collectives_us
from kinetoscope.trace.events import Step
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
    derived,
    equals,
    format_value,
    listed,
    paired_difference,
    paired_ratio,
    percent_saved,
    unpaired_ratio,
)
from snippets.lab.finding.probed import difference, entry, rate, ratio, time
from snippets.lab.page import Computation, floor_bars, prediction as prediction, rank_bars, show as show
from snippets.several_gpus.findings.link import largest_bus, sent_share

RUNGS = {
    "parameter by parameter: after backward": "each_parameter",
    "one bucket: after backward": "one_bucket",
    "buckets in backward: by hand": "buckets_in_backward",
    "DistributedDataParallel: defaults": "ddp",
    "DistributedDataParallel: buckets as gradients": "ddp_views",
}
"""Rung -> experiment, in the order of the page."""
LADDER = ("each_parameter", "one_bucket", "buckets_in_backward")
"""Rungs that each take less time than the one before."""
WIDTH, BLOCKS, TOKENS = 2048, 16, 4096
PARAMETERS = 6 * BLOCKS
"""Two matrices, their biases, and two vectors of the norm, in each block."""
COUNTS, OPTIONS = "several_gpus/tokens", "several_gpus/ddp_options"
BF16_BYTES = 2
MIN_SHARE = 1e-3
"""Of an all-reduce: a step that hides more than the rest counts as this, because a logarithmic scale has no zero."""


def gradient_bytes(width: int, blocks: int) -> int:
    """The bytes of all gradients in bf16: eight numbers for each square of the width, and seven for each of it."""
    return BF16_BYTES * blocks * (8 * width**2 + 7 * width)


def step_us(device: Device, rung: str) -> Figure:
    """The time of a step on a rung, by the name of its experiment."""
    return device[f"several_gpus/{rung}"].time("iteration")


def over(device: Device, upper: str, lower: str) -> Figure:
    """The ratio of two rungs' times, in pairs of blocks."""
    return paired_ratio(device[f"several_gpus/{upper}"], device[f"several_gpus/{lower}"], "iteration")


def exposed_us(device: Device, rung: str) -> Figure:
    """What a step takes longer than a step without communication."""
    return paired_difference(device[f"several_gpus/{rung}"], device["several_gpus/alone"], "iteration")


def calls(device: Device, rung: str) -> Figure:
    """The collectives of a rank in one step of the trace."""
    return device[f"several_gpus/{rung}"].per_step(lambda step: len(collectives(step)))


def exposed_share(device: Device, rung: str) -> Figure:
    """The time in which a collective runs and no other kernel does, in percent of the time of all collectives."""
    return device[f"several_gpus/{rung}"].per_step(_exposed_percent, "%")


def _exposed_percent(step: Step) -> float:
    total = sum(kernel.duration_us for kernel in collectives(step))
    if not total:
        raise NotTimed("a step of the trace has no collective")
    return 100 * exposed_collectives_us(step) / total


@claim("SG14", equals(" > ".join(LADDER)), scope="timing")
def ladder_in_order(device: Device) -> Figure:
    """Parameter by parameter, one bucket, buckets in backward: a step of each rung takes less time than a step of the
    rung before."""
    times = {name: step_us(device, name) for name in LADDER}
    order = sorted(times, key=lambda name: -times[name].number)
    return derived(" > ".join(order), *times.values())


@claim("SG15", between(0.95, 1.05), scope="timing")
def thirty_lines(device: Device) -> Figure:
    """With buckets by hand, a step takes as long as with `DistributedDataParallel`, give or take 5 %."""
    return over(device, "buckets_in_backward", "ddp")


@claim("SG16", equals(f"each_parameter {PARAMETERS}, one_bucket 1"))
def calls_of_a_step(device: Device) -> Figure:
    """Parameter by parameter, a step of a rank has one all-reduce for each of the 96 parameters. With one bucket, it
    has one."""
    return listed({name: calls(device, name) for name in ("each_parameter", "one_bucket")})


@claim("SG17", at_least(95), scope="timing")
def one_bucket_is_exposed(device: Device) -> Figure:
    """With one bucket after backward, no other kernel runs during at least 95 % of the all-reduce."""
    return exposed_share(device, "one_bucket")


@claim("SG18", at_most(50), scope="timing")
def buckets_are_hidden(device: Device) -> Figure:
    """With buckets in backward, another kernel runs during at least half of the time of the all-reduces."""
    return exposed_share(device, "buckets_in_backward")


@claim("SG19", between(0.95, 1.05))
def views_save_the_gradients(device: Device) -> Figure:
    """With `gradient_as_bucket_view`, a rank holds fewer bytes before the optimizer's step, and the difference is the
    size of all gradients, give or take 5 %."""
    saved = held_bytes(device, "defaults").number - held_bytes(device, "gradient_as_bucket_view").number
    return Figure(saved / entry(device, OPTIONS, "bytes"), "x", origin=OPTIONS)


@claim("SG20", equals(True))
def parameters_are_not_divided(device: Device) -> Figure:
    """With `bucket_cap_mb=1` and with `bucket_cap_mb=25`, `DistributedDataParallel` makes equally many buckets."""
    one, more = (len(entry(device, OPTIONS, "variants", f"bucket_cap_mb={cap}", "buckets")) for cap in (1, 25))
    return Figure(one == more, origin=f"{OPTIONS}: {one} and {more} buckets")


@claim("SG21", at_least(1.05), scope="timing")
def one_large_bucket(device: Device) -> Figure:
    """With one bucket for all gradients, a step of `DistributedDataParallel` takes at least 5 % longer than with its
    defaults."""
    return option_ratio(device, "bucket_cap_mb=2000", "defaults")


@claim("SG22", at_least(1), scope="timing")
def large_first_bucket(device: Device) -> Figure:
    """A first bucket of 250 MiB makes a step no faster than the default first bucket."""
    return option_ratio(device, "large first bucket", "defaults")


@claim("SG23", at_most(0.9), scope="timing")
def no_sync_saves(device: Device) -> Figure:
    """Over four batches, a step with `no_sync` takes at least 10 % less time than a step with an all-reduce for each
    batch."""
    return ratio(device, OPTIONS, ("accumulation", "no_sync_us"), ("accumulation", "synced_us"))


def option_ratio(device: Device, upper: str, lower: str) -> Figure:
    """The ratio of steps with two options."""
    return ratio(device, OPTIONS, ("variants", upper, "us"), ("variants", lower, "us"))


def held_bytes(device: Device, variant: str) -> Figure:
    """What gradients and buckets hold when backward is done."""
    return Figure(entry(device, OPTIONS, "variants", variant, "held_bytes"), "bytes", origin=f"{OPTIONS}, {variant}")


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


def half_hidden_predicted(device: Device) -> Figure:
    """The tokens whose backward takes half as long as the all-reduce: 4 P T / C is half of 2 (n - 1) / n x 2 P / B."""
    flops, bus = matmul_rate(device), largest_bus(device)
    tokens = BF16_BYTES * sent_share("all_reduce", 2) * flops.number / (4 * bus.number) / 2
    return Figure(round(tokens), origin=f"{flops.origin}; {bus.origin}")


def half_hidden(device: Device) -> Figure:
    """The tokens from which on at least half of the all-reduce is hidden, interpolated between the measured counts."""
    places = counts(device)
    shares = [max(MIN_SHARE, exposed_part(device, count).number / 100) for count in places]
    found = crossing(places, shares, [0.5] * len(places))
    if found is None:
        raise NotTimed(
            f"{COUNTS} on {device.name}: half of the all-reduce is hidden at every number of tokens, or never"
        )
    return Figure(round(found), origin=f"{device[COUNTS].origin}, ddp less alone")


@claim("SG24", between(0.5, 1.5), scope="timing")
def hidden_as_predicted(device: Device) -> Figure:
    """The tokens from which on a step hides half of its all-reduce are within a factor of 0.5 to 1.5 of the predicted
    number."""
    return unpaired_ratio(half_hidden(device), half_hidden_predicted(device))


@claim("SG25", at_least(60), scope="timing")
def few_tokens_hide_nothing(device: Device) -> Figure:
    """With 256 tokens per rank, at least 60 % of the all-reduce is exposed."""
    return exposed_part(device, 256)


@claim("SG26", at_most(40), scope="timing")
def many_tokens_hide_it(device: Device) -> Figure:
    """With 8,192 tokens per rank, at most 40 % of the all-reduce is exposed."""
    return exposed_part(device, 8192)


HIDING = Computation(
    "For how many tokens does backward take half as long as the all-reduce?",
    "several_gpus.half_hidden_predicted",
    "backward multiplies at {several_gpus.matmul_rate}, and the all-reduce sends at {several_gpus.largest_bus}.",
    "Set 4 P T / C equal to half of 2 (n - 1) / n x 2 P / B, and solve for T. P cancels.",
    {
        "several_gpus.fully_hidden_predicted": "that is the whole all-reduce, not half of it.",
        "several_gpus.half_hidden_by_both": "that counts the forward, too, which runs before any gradient is ready.",
    },
)


def ladder_bars(device: Device) -> Html:
    """A step on each rung, above a step without communication."""
    rungs = {name: step_us(device, each) for name, each in RUNGS.items()}
    alone = ("without communication: each rank for itself", step_us(device, "alone"))
    conditions = "Two GPUs, without the profiler, slowest rank. One linear scale."
    return floor_bars(device, alone, rungs, "One training step, rung by rung", conditions=conditions)


def ladder_table(device: Device) -> Html:
    """Each rung: time, what it adds to a step without communication, and collectives in the trace."""
    rows: list[list[Cell]] = []
    for name, each in RUNGS.items():
        cells = (step_us(device, each), exposed_us(device, each), calls(device, each), exposed_share(device, each))
        rows.append([name.replace(": ", ", "), *map(figure_cell, cells)])
    head = ["rung", "a step", "added", "collectives of a rank", "of their time, exposed"]
    return table("The rungs in numbers, on two GPUs", head, rows)


def ranks_of_rungs(device: Device) -> Html:
    """The parts of each rank's step, with one bucket and with buckets in backward."""
    variants = {
        "one bucket after backward": "several_gpus/one_bucket",
        "buckets in backward": "several_gpus/buckets_in_backward",
    }
    return rank_bars(device, variants, "Where a step of each rank goes, in the trace")


def tokens_chart(device: Device) -> Html:
    """Steps of more and more tokens, as multiples of the step without communication."""
    lines: dict[str, dict[float, Figure]] = {
        text: {count: time(device, COUNTS, "counts", str(count), kind) for count in counts(device)}
        for text, kind in (
            ("without communication", "alone_us"),
            ("one bucket after backward", "one_bucket_us"),
            ("DistributedDataParallel", "ddp_us"),
        )
    }
    return line_chart(
        device,
        lines,
        "A step by the tokens of each rank, on two GPUs",
        axis="tokens of each rank",
        size_text=lambda size: f"{size:,.0f}",
        limits={"the all-reduce alone": all_reduce_us(device)},
    )


def tokens_table(device: Device) -> Html:
    """Steps by tokens: times, and how much of the all-reduce is exposed."""
    rows: list[list[Cell]] = []
    for count in counts(device):
        kinds = ("alone_us", "one_bucket_us", "ddp_us")
        times = [time(device, COUNTS, "counts", str(count), kind) for kind in kinds]
        cells = [*times, exposed_part(device, count, "one_bucket_us"), exposed_part(device, count)]
        rows.append([f"{count:,}", *map(figure_cell, cells)])
    head = ["tokens of a rank", "alone", "one bucket", "DDP", "one bucket: exposed", "DDP: exposed"]
    return table("Steps by tokens; exposed in percent of the all-reduce alone", head, rows)


def options_table(device: Device) -> Html:
    """Options of DistributedDataParallel: time, buckets, and the memory that gradients and buckets hold."""
    rows: list[list[Cell]] = []
    for name in entry(device, OPTIONS, "variants"):
        sent = entry(device, OPTIONS, "variants", name, "buckets")
        ends = [format_value(sent[index], "bytes") for index in (0, -1)]
        us = time(device, OPTIONS, "variants", name, "us")
        rows.append([name, figure_cell(us), f"{len(sent)}", *ends, figure_cell(held_bytes(device, name))])
    head = ["option", "a step", "buckets", "first bucket", "last bucket", "gradients and buckets"]
    return table("DistributedDataParallel with 2,048 tokens of each rank, on two GPUs", head, rows)


def accumulation_table(device: Device) -> Html:
    """A step of several batches, with an all-reduce for each and for the last alone."""
    data = entry(device, OPTIONS, "accumulation")
    batches = data["batches"]
    names = {"an all-reduce for each batch": "synced_us", "`no_sync` for all but the last": "no_sync_us"}
    rows: list[list[Cell]] = [
        [name.replace("`", ""), str(batches if kind == "synced_us" else 1), figure_cell(_accumulated(device, kind))]
        for name, kind in names.items()
    ]
    caption = f"A step of {batches} batches of {data['tokens']:,} tokens"
    return table(caption, ["", "times that the gradients are sent", "a step"], rows)


def _accumulated(device: Device, kind: str) -> Figure:
    return time(device, OPTIONS, "accumulation", kind)


FIGURES: Mapping[str, Measure] = {
    "gradient_bytes": lambda device: Figure(gradient_bytes(WIDTH, BLOCKS), "bytes", origin="the sizes of the model"),
    "parameter_tensors": lambda device: Figure(PARAMETERS, origin="the sizes of the model"),
    "alone_us": lambda device: step_us(device, "alone"),
    "each_parameter_added_us": lambda device: exposed_us(device, "each_parameter"),
    "one_bucket_added_us": lambda device: exposed_us(device, "one_bucket"),
    "buckets_added_us": lambda device: exposed_us(device, "buckets_in_backward"),
    "ddp_added_us": lambda device: exposed_us(device, "ddp"),
    "naive_over_ddp": lambda device: over(device, "each_parameter", "ddp"),
    "matmul_rate": matmul_rate,
    "gradients_us": all_reduce_us,
    "half_hidden": half_hidden,
    "half_hidden_predicted": half_hidden_predicted,
    "fully_hidden_predicted": lambda device: Figure(2 * half_hidden_predicted(device).number, origin="twice"),
    "half_hidden_by_both": lambda device: Figure(round(half_hidden_predicted(device).number * 2 / 3), origin="4 of 6"),
    "views_saved": lambda device: Figure(
        held_bytes(device, "defaults").number - held_bytes(device, "gradient_as_bucket_view").number,
        "bytes",
        origin=OPTIONS,
    ),
    "matrix_bytes": lambda device: Figure(BF16_BYTES * 4 * WIDTH**2, "bytes", origin="the sizes of the model"),
    "no_sync_saved": lambda device: percent_saved(no_sync_saves(device)),
}
