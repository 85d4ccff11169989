"""Data parallel: the ladder."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.communication import collectives, exposed_collectives_us
from kinetoscope.trace.events import Step
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
    derived,
    equals,
    listed,
    paired_difference,
    paired_ratio,
    point_difference,
)
from snippets.lab.page import floor_bars, rank_bars, show as show

RUNGS = {
    "an all-reduce for each parameter: after backward": "each_parameter",
    "one bucket: after backward": "one_bucket",
    "our buckets: during backward": "buckets_in_backward",
    "DistributedDataParallel: defaults": "ddp",
    "DistributedDataParallel: gradients as views of buckets": "ddp_views",
}
"""Rung -> experiment, in the order of the page."""
LADDER = ("each_parameter", "one_bucket", "buckets_in_backward")
"""Rungs that each take less time than the one before."""
WIDTH, BLOCKS, TOKENS = 2048, 16, 4096
PARAMETERS = 6 * BLOCKS
"""Two matrices, their biases, and two vectors of the norm, in each block."""
BF16_BYTES = 2


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


def _gpu_us(step: Step) -> float:
    """From the start of a step's first work on the GPU to the end of its last."""
    return max(each.end_us for each in step.activities) - min(each.start_us for each in step.activities)


def _exposed_percent(step: Step) -> float:
    total = sum(kernel.duration_us for kernel in collectives(step))
    if not total:
        raise NotTimed("a step of the trace has no collective")
    return 100 * exposed_collectives_us(step) / total


@claim("SG14", equals(" > ".join(LADDER)), scope="timing")
def ladder_in_order(device: Device) -> Figure:
    """A step takes the most time with an all-reduce for each parameter, less time with one bucket, and the least time
    with buckets in backward.

    Hiding the all-reduces saves exposed time, but the products next to the all-reduces take longer by about the same
    time.
    """
    times = {name: step_us(device, name) for name in LADDER}
    order = sorted(times, key=lambda name: -times[name].number)
    return derived(" > ".join(order), *times.values())


@claim("SG15", between(0.95, 1.05), scope="timing")
def thirty_lines(device: Device) -> Figure:
    """A step with our buckets in backward takes within 5 % of the time of a step with `DistributedDataParallel`."""
    return over(device, "buckets_in_backward", "ddp")


@claim("SG16", equals(f"each_parameter {PARAMETERS}, one_bucket 1"))
def calls_of_a_step(device: Device) -> Figure:
    """In a step of a rank, the version without buckets calls an all-reduce for each of the 96 parameters, and the
    version with one bucket calls one all-reduce."""
    return listed({name: calls(device, name) for name in ("each_parameter", "one_bucket")})


@claim("SG17", at_least(95), scope="timing")
def one_bucket_is_exposed(device: Device) -> Figure:
    """With one bucket after backward, no other kernel runs during at least 95 % of the all-reduce."""
    return exposed_share(device, "one_bucket")


@claim("SG18", at_most(50), scope="timing")
def buckets_are_hidden(device: Device) -> Figure:
    """With DDP and views of the buckets, the all-reduces are exposed for at most half of their time."""
    return exposed_share(device, "ddp_views")


def ladder_bars(device: Device) -> Html:
    """A step on each rung, above a step without communication."""
    rungs = {name: step_us(device, each) for name, each in RUNGS.items()}
    alone = ("without communication: ranks do not exchange gradients", step_us(device, "alone"))
    conditions = f"Two GPUs, {TOKENS:,} tokens on each GPU, without the profiler, slowest rank. One linear scale."
    caption = "One training step without communication, and in five versions"
    return floor_bars(device, alone, rungs, caption, conditions=conditions)


def ladder_table(device: Device) -> Html:
    """Each rung: time, what it adds to a step without communication, and collectives in the trace."""
    rows: list[list[Cell]] = []
    for name, each in RUNGS.items():
        cells = (step_us(device, each), exposed_us(device, each), calls(device, each), exposed_share(device, each))
        rows.append([name.replace(": ", ", "), *map(figure_cell, cells)])
    head = ["version", "time of a step", "added time", "collectives of a rank", "exposed share of their time"]
    return table("Training steps of the five versions on two GPUs", head, rows)


def ranks_of_rungs(device: Device) -> Html:
    """The parts of each rank's step, with one bucket, with our buckets in backward and with DDP's."""
    variants = {
        "one bucket after backward": "several_gpus/one_bucket",
        "our buckets during backward": "several_gpus/buckets_in_backward",
        "DDP, gradients as views of buckets": "several_gpus/ddp_views",
    }
    return rank_bars(device, variants, "A step of each rank, with one bucket and with buckets during backward")


FIGURES: Mapping[str, Measure] = {
    "gradient_bytes": lambda device: Figure(gradient_bytes(WIDTH, BLOCKS), "bytes", origin="the sizes of the model"),
    "ladder_tokens": lambda device: Figure(TOKENS, origin="the sizes of the model"),
    "parameter_tensors": lambda device: Figure(PARAMETERS, origin="the sizes of the model"),
    "each_parameter_added_us": lambda device: exposed_us(device, "each_parameter"),
    "one_bucket_added_us": lambda device: exposed_us(device, "one_bucket"),
    "buckets_added_us": lambda device: exposed_us(device, "buckets_in_backward"),
    "views_added_us": lambda device: exposed_us(device, "ddp_views"),
    "buckets_step_us": lambda device: step_us(device, "buckets_in_backward"),
    "traced_buckets_us": lambda device: device["several_gpus/buckets_in_backward"].per_step(_gpu_us, "us"),
    "ddp_more_peak_bytes": lambda device: point_difference(
        device["several_gpus/ddp"], device["several_gpus/one_bucket"], "peak_memory_bytes"
    ),
    "views_more_peak_bytes": lambda device: point_difference(
        device["several_gpus/ddp_views"], device["several_gpus/one_bucket"], "peak_memory_bytes"
    ),
}
