"""What faults of training on several GPUs cost, and why: kernels that run during a transfer take longer."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.communication import collective_kind, collectives
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.experiment import find
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    claim,
    compare_ranks,
    derived,
    on_ranks,
    unpaired_ratio,
)
from snippets.lab.page import show as show
from snippets.several_gpus.findings.fault_loops import (
    CHAPTER,
    FAULTS,
    exposed_us,
    profiled,
    profiled_nccl,
    ranks_mean,
    saved,
)
from snippets.several_gpus.findings.hiding import matmul_rate
from snippets.several_gpus.findings.link import largest_bus, sent_share
from snippets.several_gpus.findings.measured import products

HIDING = ("one_bucket", "afterwards", "one_queue", "root_only")
"""The faults whose fix lets communication run during own work."""
MICRO_BATCHES = 4
"""Of a step of the loops with `no_sync`."""


@claim("SF42", at_least(0), scope="timing")
def late_small_ceiling(device: Device) -> Figure:
    """In a short step, removing the delay of a late CPU saves no more time than the ceiling of the rule `stragglers`.
    The figure is the ceiling minus the saved time.

    The ceiling contains only the time in which the GPU of rank 1 is idle although no launch is late. After a sleep, the
    launches of the CPU also take longer, so the fix saves more time.
    """
    return FAULTS["late_small"].unused(device)


def products_us(device: Device, loop: str) -> Figure:
    """The time of a step's matrix products, a mean of the ranks."""
    return ranks_mean(device, loop, lambda step: kernel_time_us(products(step)))


@claim("SF43", at_least(1.01), scope="timing")
def products_beside_buckets(device: Device) -> Figure:
    """The same matrix products take at least 1 % longer if all-reduces run during backward than if one all-reduce runs
    after backward."""
    return unpaired_ratio(products_us(device, "ddp_after"), products_us(device, "one_bucket_before"))


@claim("SF44", at_least(1.01), scope="timing")
def products_beside_shards(device: Device) -> Figure:
    """The same matrix products take at least 1 % longer if you shard each block than if you shard only the whole
    model."""
    return unpaired_ratio(products_us(device, "fsdp_after"), products_us(device, "root_only_before"))


def last_reduce_us(device: Device, loop: str) -> Figure:
    """The last all-reduce of gradients in a step, on rank 0."""

    def last(step: Step) -> float:
        return _gradient_reduces(step)[-1].duration_us

    return on_ranks(device[f"{CHAPTER}/{loop}"])[0].per_step(last, "us")


def _gradient_reduces(step: Step) -> list[GpuActivity]:
    """The all-reduces of a step but those of integers, in the order of their starts."""
    found = [each for each in collectives(step) if collective_kind(each) == "allreduce" and "_u32_" not in each.name]
    return sorted(found, key=lambda each: each.start_us)


@claim("SF45", at_least(5), scope="timing")
def last_bucket(device: Device) -> Figure:
    """With `find_unused_parameters=True`, the last all-reduce of gradients in a step takes at least five times as long
    as without the flag."""
    return unpaired_ratio(last_reduce_us(device, "unused_before"), last_reduce_us(device, "ddp_after"))


def balance(device: Device) -> Html:
    """Exposed communication and matrix products of a step, before and after each fix that hides communication, and what
    the fix saves: an estimate from both, and measured."""
    rows: list[list[Cell]] = []
    for name in HIDING:
        loops = [loop.partition("/")[2] for loop in FAULTS[name].loops]
        pairs = [[of(device, loop) for loop in loops] for of in (exposed_us, products_us)]
        figures = [each for pair in pairs for each in pair]
        (exposed, exposed_after), (products, products_after) = pairs
        less = exposed.number - exposed_after.number - (products_after.number - products.number)
        cells = map(figure_cell, [*figures, derived(less, *figures, unit="us"), saved(device, name)])
        rows.append([FAULTS[name].title, *cells])
    head = ["fault", *(f"{what}, {state} the fix" for what in ("exposed", "products") for state in ("before", "after"))]
    head += ["estimate", "saved time"]
    return table(
        "Exposed communication, and the sum of the products' durations, in a step of the trace, mean of the ranks",
        head,
        rows,
    )


def launching_us(device: Device, loop: str) -> Figure:
    """The time in a step in which the GPU of rank 1 waits for launches, in the profiled steps."""
    run = device[f"{CHAPTER}/{loop}"]
    (part,) = (part for part in compare_ranks(run).parts if part.rank == 1)
    return Figure(part.launching_us, "us", origin=f"{run.origin}, the report of its ranks")


def traced_us(device: Device, loop: str) -> Figure:
    """The time of a step in the trace, on the rank with the longest steps."""
    run = device[f"{CHAPTER}/{loop}"]
    return Figure(max(part.step_us for part in compare_ranks(run).parts), "us", origin=f"{run.origin}, its trace")


def tokens(device: Device) -> Figure:
    """The tokens of a rank in a step of the loops with DDP."""
    (loop,) = find(f"{CHAPTER}/ddp_after")
    return Figure(int(loop.parameters["batch"]) * int(loop.parameters["seq"]), origin="the sizes of the loop")


def reduce_share(device: Device) -> Figure:
    """The all-reduce of all gradients over backward, in percent: 2 (n - 1) / n x 2 P / B over 4 P T / C."""
    count, flops, bus = tokens(device), matmul_rate(device), largest_bus(device)
    share = sent_share("all_reduce", 2) * flops.number / (2 * bus.number * count.number)
    return derived(100 * share, flops, bus, unit="%")


def micro_share(device: Device) -> Figure:
    """The same for a micro-batch, of which a step has four."""
    whole = reduce_share(device)
    return derived(MICRO_BATCHES * whole.number, whole, unit="%")


def uneven_ceiling_us(device: Device) -> Figure:
    """The ceiling of the rule `stragglers` in the loop whose rank 0 has more sequences; none if it names no rank."""
    run = device[FAULTS["uneven"].loops[0]]
    late = compare_ranks(run).straggler
    saving_us = late.saving_us if late is not None else 0.0
    return Figure(saving_us, "us", origin=f"{run.origin}, the report of its ranks")


def newly_hidden_us(device: Device) -> Figure:
    """How much less communication a step exposes if its all-reduces start during backward."""
    before, after = (exposed_us(device, loop) for loop in ("afterwards_before", "ddp_after"))
    return derived(before.number - after.number, before, after, unit="us")


def shared_out_us(device: Device) -> Figure:
    """What the report expects of sharing out the additional work of the late rank over both ranks."""
    run = device[FAULTS["uneven"].loops[0]]
    late = compare_ranks(run).straggler
    most = min(late.saving_us, late.excess_us) if late is not None else 0.0
    return Figure(most / run.environment.gpus, "us", origin=f"{run.origin}, the report of its ranks")


FIGURES: Mapping[str, Measure] = {
    "fault_tokens": tokens,
    "fault_reduce_share": reduce_share,
    "fault_micro_share": micro_share,
    "uneven_late_ceiling": uneven_ceiling_us,
    "uneven_shared_out": shared_out_us,
    "afterwards_newly_hidden": newly_hidden_us,
    "afterwards_saved": lambda device: saved(device, "afterwards"),
    "late_small_launching": lambda device: launching_us(device, "late_small_before"),
    "one_queue_saved": lambda device: saved(device, "one_queue"),
    "profiled_none": lambda device: profiled(device, "none"),
    "profiled_one": lambda device: profiled(device, "rank 0"),
    "profiled_each": lambda device: profiled(device, "all"),
    "profiled_each_nccl": lambda device: profiled_nccl(device, "all", 1),
    "on_time_traced": lambda device: traced_us(device, "item_after"),
    "on_time_untraced": lambda device: device[f"{CHAPTER}/item_after"].time("iteration"),
    "on_time_launching": lambda device: launching_us(device, "item_after"),
    "unused_last_reduce": lambda device: last_reduce_us(device, "unused_before"),
    "default_last_reduce": lambda device: last_reduce_us(device, "ddp_after"),
}
