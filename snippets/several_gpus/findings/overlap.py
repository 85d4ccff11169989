"""Why hiding an all-reduce in backward saves less than its time: the parts of a traced step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.communication import collectives, exposed_collectives_us
from kinetoscope.trace.events import Step
from kinetoscope.trace.intervals import length_us, union_of
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, NotTimed, Run, Source, at_least, claim, derived, equals
from snippets.lab.page import show as show
from snippets.several_gpus.findings.data_parallel import PARAMETERS
from snippets.several_gpus.findings.hiding import BLOCKS, all_reduce_us
from snippets.several_gpus.findings.measured import products, share_during

AFTER, DURING = "several_gpus/one_bucket", "several_gpus/ddp_views"
"""All gradients after backward, and in buckets during backward: two versions that the profiler delays little."""
VERSIONS = {"without communication": "several_gpus/alone", "one bucket after backward": AFTER, "DDP with views": DURING}
PRODUCTS_OF_FORWARD = 1 / 3
"""Of a step's products: backward multiplies twice with each matrix."""
LEAST_SHARE = 0.1
"""Of a product's time: a product with less of a collective next to it does not count as running during it."""


def products_us(step: Step, *, is_backward: bool) -> float:
    """The time of the products of backward, or of forward."""
    found = products(step)
    first = round(len(found) * PRODUCTS_OF_FORWARD)
    return sum(kernel.duration_us for kernel in (found[first:] if is_backward else found[:first]))


def other_kernels_us(step: Step) -> float:
    """The time of the kernels that neither multiply nor communicate, and of copies."""
    others = {*step.kernels} - {*products(step), *collectives(step)}
    return math.fsum(each.duration_us for each in (*others, *step.memcpys))


PARTS: dict[str, Callable[[Step], float]] = {
    "matrix products of forward": lambda step: products_us(step, is_backward=False),
    "matrix products of backward": lambda step: products_us(step, is_backward=True),
    "other kernels and copies": other_kernels_us,
    "all-reduces while no other kernel runs": exposed_collectives_us,
}
"""Part of a step -> its time."""
PRODUCTS, OTHERS, EXPOSED = list(PARTS)[1:]


def part_us(device: Device, experiment: str, part: str) -> Figure:
    """A part of a step of rank 0 in a trace."""
    return device[experiment].per_step(PARTS[part], "us")


def more_us(device: Device, part: str, upper: str, lower: str) -> Figure:
    """How much longer a part takes in one version than in another."""
    a, b = part_us(device, upper, part), part_us(device, lower, part)
    spread = (a.bounds[0] - b.bounds[1], a.bounds[1] - b.bounds[0])
    return Figure(a.number - b.number, "us", spread, f"{a.origin}, less {b.origin}")


def _usual_us(run: Run) -> dict[str, float]:
    """Product's kernel -> its mean time in a run."""
    times: dict[str, list[float]] = {}
    for step in run.steps:
        for kernel in products(step):
            times.setdefault(kernel.name, []).append(kernel.duration_us)
    return {name: statistics.fmean(found) for name, found in times.items()}


def product_slowdown(device: Device) -> Figure:
    """The time of backward's products that run during an all-reduce, over the time of the same kernels without."""
    usual = _usual_us(device[AFTER])

    def ratio(step: Step) -> float:
        sent = union_of(collectives(step))
        slow = [each for each in products(step) if each.name in usual and share_during(each, sent) >= LEAST_SHARE]
        if not slow:
            raise NotTimed(f"{DURING} on {device.name}: no product of a step runs during an all-reduce")
        return sum(each.duration_us for each in slow) / sum(usual[each.name] for each in slow)

    return device[DURING].per_step(ratio, "x")


@claim("SG82", at_least(1.2), scope="timing")
def products_slow_down(device: Device) -> Figure:
    """In backward, a matrix product that runs during an all-reduce takes at least 1.2 times as long as the same kernel
    without an all-reduce."""
    return product_slowdown(device)


@claim(
    "SG83",
    at_least(1.8),
    scope="timing",
    source=Source("PyTorch, issue 143988", "2x as long", device="NVIDIA H100"),
)
def products_take_twice_as_long(device: Device) -> Figure:
    """In backward, a matrix product that runs during an all-reduce takes about twice as long as without an all-reduce.

    The all-reduce of a bucket ends before the product does. Then the waiting blocks of the product start, before the
    product's other blocks end.
    """
    return product_slowdown(device)


@claim("SG84", at_least(50), scope="timing")
def slower_products_cost_what_hiding_saves(device: Device) -> Figure:
    """The additional time of backward's products is at least half of the exposed time that DDP saves over one bucket
    after backward."""
    slower, saved = more_us(device, PRODUCTS, DURING, AFTER), more_us(device, EXPOSED, AFTER, DURING)
    if saved.bounds[0] <= 0:
        raise NotTimed(f"{DURING} on {device.name}: DDP saves no exposed time")
    low, high = 100 * slower.bounds[0] / saved.bounds[1], 100 * slower.bounds[1] / saved.bounds[0]
    return Figure(100 * slower.number / saved.number, "%", (low, high), f"{slower.origin}; {saved.origin}")


@claim("SG19", equals(PARAMETERS))
def views_save_copies(device: Device) -> Figure:
    """With `gradient_as_bucket_view=True`, a step of DDP makes one copy less for each of the 96 parameters."""
    copies = [device[f"several_gpus/{name}"].per_step(lambda step: len(step.memcpys)) for name in ("ddp", "ddp_views")]
    return derived(round(copies[0].number - copies[1].number), *copies)


def parts_table(device: Device) -> Html:
    """The parts of a step of rank 0, without communication, with one bucket after backward, and with DDP."""
    rows: list[list[Cell]] = []
    for part in PARTS:
        rows.append([part, *(figure_cell(part_us(device, each, part)) for each in VERSIONS.values())])
    caption = "The parts of a step of rank 0 in the trace, by version"
    return table(caption, ["part of the step", *VERSIONS], rows)


def copies_us(device: Device) -> Figure:
    """The copies of a step of DDP without views."""
    return device["several_gpus/ddp"].per_step(lambda step: length_us(union_of(step.memcpys)), "us")


def collectives_us(step: Step) -> float:
    """The time of all collectives of a step, waiting included."""
    return sum(each.duration_us for each in collectives(step))


def product_blocks(device: Device) -> Figure:
    """The blocks of the product that takes the most time."""

    def blocks(step: Step) -> int:
        longest = max(products(step), key=lambda kernel: kernel.duration_us)
        x, y, z = longest.grid or (0, 0, 0)
        return x * y * z

    return device[DURING].per_step(blocks)


def remaining_share(device: Device) -> Figure:
    """What a step of any number of tokens cannot hide, in percent of the all-reduce of all gradients.

    The kernels that divide and copy the gradients, and the all-reduce of the last matrix.
    """
    whole, dividing = all_reduce_us(device), more_us(device, OTHERS, DURING, VERSIONS["without communication"])
    last = 1 / (2 * BLOCKS)
    low, high = (100 * (bound / whole.number + last) for bound in dividing.bounds)
    origin = f"{dividing.origin}; {whole.origin}"
    return Figure(100 * (dividing.number / whole.number + last), "%", (low, high), origin)


def watts(device: Device) -> Figure:
    """The power of a GPU while the steps of DDP were timed."""
    run = device[DURING]
    found = run.point.iteration
    if found is None or not found.watts:
        raise NotTimed(f"{DURING} on {device.name} has no power")
    return Figure(found.watts, "W", origin=run.origin)


FIGURES: Mapping[str, Measure] = {
    "exposed_after_us": lambda device: part_us(device, AFTER, EXPOSED),
    "exposed_during_us": lambda device: part_us(device, DURING, EXPOSED),
    "slower_products_us": lambda device: more_us(device, PRODUCTS, DURING, AFTER),
    "product_slowdown": product_slowdown,
    "product_blocks": product_blocks,
    "all_reduces_us": lambda device: device[DURING].per_step(collectives_us, "us"),
    "one_all_reduce_us": lambda device: device[AFTER].per_step(collectives_us, "us"),
    "dividing_us": lambda device: more_us(device, OTHERS, DURING, VERSIONS["without communication"]),
    "joining_us": lambda device: more_us(device, OTHERS, AFTER, VERSIONS["without communication"]),
    "copies_us": copies_us,
    "remaining_share": remaining_share,
    "ladder_watts": watts,
    "power_limit": lambda device: Figure(device[DURING].environment.power_limit_w, "W", origin="the driver"),
}
