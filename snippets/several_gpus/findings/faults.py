"""Faults of training on several GPUs: claims about rules, ceilings and mends, and what readers predict."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kinetoscope.trace.communication import collectives
from snippets.lab.experiment import find
from snippets.lab.finding import (
    Claim,
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    derived,
    equals,
    paired_ratio,
    unpaired_ratio,
)
from snippets.lab.finding.fault import STRAGGLERS
from snippets.lab.page import Computation, prediction as prediction, show as show
from snippets.several_gpus.findings.fault_loops import (
    APART,
    CHAPTER,
    FAULTS,
    calls,
    count,
    exposed_us,
    hidden_share,
    late_rank,
    nccl_of,
    profiled,
    profiled_nccl,
    speedup,
)
from snippets.several_gpus.findings.link import largest_bus

SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
"""The operator in which DDP looks for unused parameters."""


def found(identity: str, name: str, loop: str) -> Claim:
    """The claim that the fault's rule finds the loop before the mend, and only then."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].found_in(device)

    who = "The report of the ranks" if FAULTS[name].rule == STRAGGLERS else f"The rule {FAULTS[name].rule}"
    measure.__doc__ = f"{who} finds {loop}, and nothing once it is mended."
    return claim(identity, equals("before"))(measure)


def within_ceiling(identity: str, name: str, mend: str) -> Claim:
    """The claim that the mend saves no more than the fault's rule says."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].unused(device)

    said = f"{mend} saves no more than the ceiling of the rule {FAULTS[name].rule}: the rest is at least zero."
    measure.__doc__ = said
    return claim(identity, at_least(0), scope="timing")(measure)


def faster(identity: str, name: str, factor: float, mend: str) -> Claim:
    """The claim that the mend makes a step so many times as fast."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].speedup(device)

    measure.__doc__ = f"{mend} makes a step at least {factor} times as fast."
    return claim(identity, at_least(factor), scope="timing")(measure)


uneven_found = found("SF1", "uneven", "the loop whose rank 0 has more sequences")
uneven_ceiling = within_ceiling("SF2", "uneven", "Sharing the sequences equally")
uneven_speedup = faster("SF3", "uneven", 1.1, "Sharing the sequences equally")


@claim("SF4", equals("rank 0"))
def uneven_rank(device: Device) -> Figure:
    """The report of the ranks names rank 0, which has more sequences than the others, as late."""
    return late_rank(device, "uneven")


@claim("SF5", at_most(0.5), scope="timing")
def shortest_call(device: Device) -> Figure:
    """The rank with more sequences has the shorter NCCL time: at most half the time of the rank that waits for it."""
    return unpaired_ratio(nccl_of(device, "uneven_before", 0), nccl_of(device, "uneven_before", 1))


@claim("SF6", between(0.35, 0.65), scope="timing")
def uneven_saved_share(device: Device) -> Figure:
    """Sharing the sequences of two ranks equally saves about half of the ceiling, as the other rank gets the rest."""
    return unpaired_ratio(FAULTS["uneven"].saved(device), FAULTS["uneven"].ceiling(device))


@claim("SF7", between(0.98, 1.05), scope="timing")
def late_speedup(device: Device) -> Figure:
    """While the GPU has work, a CPU that is late in each step costs at most 5 % of the step."""
    return FAULTS["late"].speedup(device)


@claim("SF8", equals("neither"))
def late_found(device: Device) -> Figure:
    """The report of the ranks names no late rank while the GPU has work, with the late CPU or without."""
    return FAULTS["late"].found_in(device)


late_small_found = found("SF9", "late_small", "the late CPU of a short step")
late_small_speedup = faster("SF10", "late_small", 1.5, "A CPU that is on time")


@claim("SF11", equals("rank 1"))
def late_small_rank(device: Device) -> Figure:
    """In the short step, the report of the ranks names rank 1, whose CPU is late, as late."""
    return late_rank(device, "late_small")


one_bucket_found = found("SF12", "one_bucket", "the step with one bucket")
one_bucket_ceiling = within_ceiling("SF13", "one_bucket", "Reducing buckets in backward")
one_bucket_speedup = faster("SF14", "one_bucket", 1.03, "Reducing buckets in backward")


@claim("SF15", equals(1))
def one_bucket_calls(device: Device) -> Figure:
    """With one bucket, a step has one all-reduce."""
    return calls(device, "one_bucket_before", "allreduce")


@claim("SF16", at_least(4))
def ddp_calls(device: Device) -> Figure:
    """With buckets of the default size, a step has at least four all-reduces."""
    return calls(device, "ddp_after", "allreduce")


afterwards_found = found("SF17", "afterwards", "the step that reduces its gradients after backward")
afterwards_ceiling = within_ceiling("SF18", "afterwards", "Reducing gradients in backward")
afterwards_speedup = faster("SF19", "afterwards", 1.03, "Reducing gradients in backward")


@claim("SF20", at_most(10), scope="timing")
def afterwards_hidden(device: Device) -> Figure:
    """Of the communication after backward, other kernels hide at most 10 %."""
    return hidden_share(device, "afterwards_before")


@claim("SF21", equals(1))
def searches(device: Device) -> Figure:
    """With find_unused_parameters=True, each step has one search_unused_parameters."""
    return count(device, "unused_before", lambda step: sum(op.name == SEARCH for op in step.ops))


@claim("SF22", equals(1))
def reduced_flags(device: Device) -> Figure:
    """find_unused_parameters=True adds one all-reduce: of integers, which tell the parameters that some rank used."""
    return count(device, "unused_before", lambda step: sum("bf16" not in each.name for each in collectives(step)))


unused_speedup = faster("SF23", "unused", 1.0, "Leaving find_unused_parameters out")


@claim("SF24", at_least(1.02), scope="timing")
def one_queue_speedup(device: Device) -> Figure:
    """Without CUDA_DEVICE_MAX_CONNECTIONS=1, a step with FSDP is at least 1.02 times as fast."""
    return speedup(device, APART)


@claim("SF25", at_least(1.1), scope="timing")
def one_queue_exposed(device: Device) -> Figure:
    """With CUDA_DEVICE_MAX_CONNECTIONS=1, at least 1.1 times as much time passes in which only communication runs."""
    return unpaired_ratio(exposed_us(device, "one_queue_before"), exposed_us(device, "fsdp_after"))


root_only_found = found("SF26", "root_only", "the model that is sharded as one")
root_only_ceiling = within_ceiling("SF27", "root_only", "Sharding each block")
root_only_speedup = faster("SF28", "root_only", 1.03, "Sharding each block")


def _times(count: float, other: float) -> float:
    """How many times one count is another: a whole number where it is one."""
    times = count / other if other else math.inf
    return int(times) if times.is_integer() else times


@claim("SF29", equals(1))
def root_only_gathers(device: Device) -> Figure:
    """FSDP around the whole model alone gathers all weights in one all-gather."""
    return calls(device, "root_only_before", "allgather")


@claim("SF30", equals(2))
def gathers_per_block(device: Device) -> Figure:
    """FSDP around each block gathers the block's weights twice: for forward and for backward."""
    gathers = calls(device, "fsdp_after", "allgather")
    (loop,) = find(f"{CHAPTER}/fsdp_after")
    return derived(_times(gathers.number, int(loop.parameters["blocks"])), gathers)


@claim("SF31", equals(4))
def no_sync_calls(device: Device) -> Figure:
    """Without no_sync, a step of four micro-batches has four times the all-reduces of a step with it."""
    before, after = calls(device, "no_sync_before", "allreduce"), calls(device, "no_sync_after", "allreduce")
    return derived(_times(before.number, after.number), before, after)


@claim("SF32", equals(1))
def no_sync_too_late(device: Device) -> Figure:
    """no_sync around backward alone has as many all-reduces as no no_sync at all."""
    late, before = calls(device, "no_sync_backward", "allreduce"), calls(device, "no_sync_before", "allreduce")
    return derived(_times(late.number, before.number), late, before)


no_sync_speedup = faster(
    "SF33", "no_sync", 1.02, "no_sync around forward and backward of all micro-batches but the last"
)


@claim("SF34", between(0.97, 1.03), scope="timing")
def no_sync_backward_speedup(device: Device) -> Figure:
    """no_sync around backward alone saves nothing: the step takes the same time within 3 %."""
    before, late = (device[f"{CHAPTER}/no_sync_{state}"] for state in ("before", "backward"))
    return paired_ratio(before, late, "iteration")


item_found = found("SF35", "item", "the rank that reads its loss in each step")
item_speedup = faster("SF36", "item", 1.02, "Reading the loss every hundredth step")
item_ceiling = within_ceiling("SF37", "item", "Reading the loss every hundredth step")


@claim("SF38", at_least(1.1), scope="timing")
def one_profiler_costs(device: Device) -> Figure:
    """A profiler on rank 0 alone makes the small step of all ranks at least 1.1 times as long."""
    return unpaired_ratio(profiled(device, "rank 0"), profiled(device, "none"))


@claim("SF39", at_most(0.9), scope="timing")
def one_profiler_hides(device: Device) -> Figure:
    """Profiled alone, rank 0 sees at most nine tenths of the NCCL time that it sees if all ranks are profiled."""
    return unpaired_ratio(profiled_nccl(device, "rank 0", 0), profiled_nccl(device, "all", 0))


# -- what the page lets readers compute


def _sequences(device: Device) -> Figure:
    (loop,) = find(f"{CHAPTER}/uneven_before")
    batch, ranks = int(loop.parameters["batch"]), loop.gpus
    most = batch + batch // 2
    return Figure(most / (batch + batch // 2 / ranks), "x", origin="the numbers of sequences")


def _bucket_bytes(device: Device) -> Figure:
    (loop,) = find(f"{CHAPTER}/one_bucket_before")
    width, blocks = (int(loop.parameters[name]) for name in ("width", "blocks"))
    return Figure(2 * blocks * (8 * width**2 + 7 * width), "bytes", origin="the sizes of the weights")


SHARED = Computation(
    "How many sequences has the longest part before the mend, divided by the number after it?",
    "several_gpus.uneven_sequences",
    "Twelve over ten.",
    "Add up the sequences of both ranks, and give each rank half.",
    {1.5: "Twelve over eight is how much longer rank 0 works than rank 1. After the mend, rank 1 works longer, too."},
)

BUCKET = Computation(
    "How long does an all-reduce of all gradients take?",
    "several_gpus.bucket_us",
    "{several_gpus.one_bucket_bytes} at {several_gpus.largest_bus}.",
    "Divide the bytes that a rank sends by the bus bandwidth.",
    {"several_gpus.half_bucket_us": "Each half of the gradients crosses the link twice: to be added, and as a sum."},
)


def _bucket_us(device: Device) -> Figure:
    size, bus = _bucket_bytes(device), largest_bus(device)
    return derived(1e6 * size.number / bus.number, size, bus, unit="us")


FIGURES: Mapping[str, Measure] = {
    "bucket_us": _bucket_us,
    "half_bucket_us": lambda device: derived(_bucket_us(device).number / 2, _bucket_us(device), unit="us"),
    "uneven_sequences": _sequences,
    "uneven_nccl_0": lambda device: nccl_of(device, "uneven_before", 0),
    "uneven_nccl_1": lambda device: nccl_of(device, "uneven_before", 1),
    "uneven_saved": FAULTS["uneven"].saved,
    "uneven_ceiling_us": FAULTS["uneven"].ceiling,
    "late_lost": FAULTS["late"].lost,
    "late_small_lost": FAULTS["late_small"].lost,
    "one_bucket_bytes": _bucket_bytes,
    "one_bucket_exposed": lambda device: exposed_us(device, "one_bucket_before"),
    "fsdp_hidden": lambda device: hidden_share(device, "fsdp_after"),
    "one_queue_hidden": lambda device: hidden_share(device, "one_queue_before"),
}
