"""Faults of training on several GPUs: claims about rules, ceilings and fixes, and what readers predict."""

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
    """The claim that the fault's rule finds the loop before the fix, and only then."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].found_in(device)

    who = f"The rule `{FAULTS[name].rule}`"
    measure.__doc__ = f"{who} finds its fault in {loop}, but not in the fixed loop."
    return claim(identity, equals("before"))(measure)


def within_ceiling(identity: str, name: str, fix: str) -> Claim:
    """The claim that the fix saves no more than the fault's rule says."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].unused(device)

    measure.__doc__ = (
        f"{fix} saves no more time than the ceiling of the rule `{FAULTS[name].rule}`. "
        "The figure is the ceiling minus the saved time."
    )
    return claim(identity, at_least(0), scope="timing")(measure)


def faster(identity: str, name: str, factor: float, fix: str, step: str = "a step") -> Claim:
    """The claim that the fix makes a step so many times as fast."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].speedup(device)

    measure.__doc__ = f"{fix} makes {step} at least {factor} times as fast."
    return claim(identity, at_least(factor), scope="timing")(measure)


uneven_found = found("SF1", "uneven", "the loop whose rank 0 has more sequences")
uneven_ceiling = within_ceiling("SF2", "uneven", "Giving each rank the same number of sequences")
uneven_speedup = faster("SF3", "uneven", 1.1, "Giving each rank the same number of sequences")


@claim("SF4", equals("rank 0"))
def uneven_rank(device: Device) -> Figure:
    """The rule `stragglers` names rank 0, which has more sequences than rank 1, as late."""
    return late_rank(device, "uneven")


@claim("SF5", at_most(0.5), scope="timing")
def shortest_call(device: Device) -> Figure:
    """NCCL kernels on the rank with more sequences take at most half as long as NCCL kernels on the rank that waits."""
    return unpaired_ratio(nccl_of(device, "uneven_before", 0), nccl_of(device, "uneven_before", 1))


@claim("SF6", between(0.35, 0.65), scope="timing")
def uneven_saved_share(device: Device) -> Figure:
    """Giving two ranks the same number of sequences saves 0.35 to 0.65 of the ceiling of the rule `stragglers`."""
    return unpaired_ratio(FAULTS["uneven"].saved(device), FAULTS["uneven"].ceiling(device))


@claim("SF7", at_most(1.05), scope="timing")
def late_speedup(device: Device) -> Figure:
    """In a long step, a late CPU of one rank makes the step at most 5 % longer."""
    return FAULTS["late"].speedup(device)


@claim("SF8", equals("neither"))
def late_found(device: Device) -> Figure:
    """In a long step, the rule `stragglers` names no late rank, with the late CPU or without."""
    return FAULTS["late"].found_in(device)


late_small_found = found("SF9", "late_small", "the loop with a late CPU and a short step")
late_small_speedup = faster("SF10", "late_small", 1.5, "Removing the delay of a late CPU", "a short step")


@claim("SF11", equals("rank 1"))
def late_small_rank(device: Device) -> Figure:
    """In a short step, the rule `stragglers` names rank 1, whose CPU is late, as late."""
    return late_rank(device, "late_small")


one_bucket_found = found("SF12", "one_bucket", "the loop with one bucket for all gradients")
one_bucket_ceiling = within_ceiling("SF13", "one_bucket", "Using DDP's default buckets instead of one bucket")
one_bucket_speedup = faster("SF14", "one_bucket", 1.03, "Using DDP's default buckets instead of one bucket")


@claim("SF15", equals(1))
def one_bucket_calls(device: Device) -> Figure:
    """A step with one bucket for all gradients has one all-reduce."""
    return calls(device, "one_bucket_before", "allreduce")


@claim("SF16", at_least(4))
def ddp_calls(device: Device) -> Figure:
    """A step with DDP's default buckets has at least four all-reduces."""
    return calls(device, "ddp_after", "allreduce")


afterwards_found = found("SF17", "afterwards", "the loop with all-reduces after backward")
afterwards_ceiling = within_ceiling("SF18", "afterwards", "Starting the all-reduces during backward")
afterwards_speedup = faster("SF19", "afterwards", 1.03, "Starting the all-reduces during backward")


@claim("SF20", at_most(10), scope="timing")
def afterwards_hidden(device: Device) -> Figure:
    """If the all-reduces start after backward, other kernels run during at most 10 % of the communication."""
    return hidden_share(device, "afterwards_before")


@claim("SF21", equals(1))
def searches(device: Device) -> Figure:
    """With `find_unused_parameters=True`, each step has one `search_unused_parameters`."""
    return count(device, "unused_before", lambda step: sum(op.name == SEARCH for op in step.ops))


@claim("SF22", equals(1))
def reduced_flags(device: Device) -> Figure:
    """`find_unused_parameters=True` adds one all-reduce of integers to a step."""
    return count(device, "unused_before", lambda step: sum("bf16" not in each.name for each in collectives(step)))


@claim("SF23", at_least(0.98), scope="timing")
def unused_speedup(device: Device) -> Figure:
    """A step takes at least 0.98 times as long with `find_unused_parameters=True` as without the flag."""
    return FAULTS["unused"].speedup(device)


@claim("SF24", at_least(1.02), scope="timing")
def one_queue_speedup(device: Device) -> Figure:
    """Unsetting `CUDA_DEVICE_MAX_CONNECTIONS=1` makes a step with FSDP at least 1.02 times as fast."""
    return speedup(device, APART)


@claim("SF25", at_least(1.1), scope="timing")
def one_queue_exposed(device: Device) -> Figure:
    """With `CUDA_DEVICE_MAX_CONNECTIONS=1`, communication is exposed for at least 1.1 times as long as without the
    variable."""
    return unpaired_ratio(exposed_us(device, "one_queue_before"), exposed_us(device, "fsdp_after"))


root_only_found = found("SF26", "root_only", "the loop that shards only the whole model")
root_only_ceiling = within_ceiling("SF27", "root_only", "Sharding each block instead of only the whole model")
root_only_speedup = faster("SF28", "root_only", 0.97, "Sharding each block instead of only the whole model")


def _times(count: float, other: float) -> float:
    """How many times one count is another: a whole number where it is one."""
    times = count / other if other else math.inf
    return int(times) if times.is_integer() else times


@claim("SF29", equals(1))
def root_only_gathers(device: Device) -> Figure:
    """If you shard only the whole model, FSDP gathers all weights in one all-gather in each step."""
    return calls(device, "root_only_before", "allgather")


@claim("SF30", equals(2))
def gathers_per_block(device: Device) -> Figure:
    """If you shard each block, FSDP runs two all-gathers for each block in a step."""
    gathers = calls(device, "fsdp_after", "allgather")
    (loop,) = find(f"{CHAPTER}/fsdp_after")
    return derived(_times(gathers.number, int(loop.parameters["blocks"])), gathers)


@claim("SF31", equals(4))
def no_sync_calls(device: Device) -> Figure:
    """A step of four micro-batches has four times as many all-reduces without `no_sync` as with `no_sync`."""
    before, after = calls(device, "no_sync_before", "allreduce"), calls(device, "no_sync_after", "allreduce")
    return derived(_times(before.number, after.number), before, after)


@claim("SF32", equals(1))
def no_sync_too_late(device: Device) -> Figure:
    """With `no_sync` around backward alone, a step has as many all-reduces as without `no_sync`."""
    late, before = calls(device, "no_sync_backward", "allreduce"), calls(device, "no_sync_before", "allreduce")
    return derived(_times(late.number, before.number), late, before)


NO_SYNC = "`no_sync` around forward and backward of all micro-batches but the last"
no_sync_speedup = faster("SF33", "no_sync", 1.02, NO_SYNC)
no_sync_found = found("SF40", "no_sync", "the loop without `no_sync`")
no_sync_ceiling = within_ceiling("SF41", "no_sync", NO_SYNC)


@claim("SF34", between(0.97, 1.03), scope="timing")
def no_sync_backward_speedup(device: Device) -> Figure:
    """With `no_sync` around backward alone, a step takes within 3 % of its time without `no_sync`."""
    before, late = (device[f"{CHAPTER}/no_sync_{state}"] for state in ("before", "backward"))
    return paired_ratio(before, late, "iteration")


item_found = found("SF35", "item", "the loop whose rank 0 reads its loss in each step")
item_speedup = faster("SF36", "item", 1.02, "Reading the loss only every hundredth step")
item_ceiling = within_ceiling("SF37", "item", "Reading the loss only every hundredth step")


@claim("SF38", at_least(1.1), scope="timing")
def one_profiler_costs(device: Device) -> Figure:
    """With a profiler on rank 0 alone, a small step takes at least 1.1 times as long as without a profiler."""
    return unpaired_ratio(profiled(device, "rank 0"), profiled(device, "none"))


@claim("SF39", at_most(0.9), scope="timing")
def one_profiler_hides(device: Device) -> Figure:
    """NCCL kernels of rank 0 take at most 90 % as long with a profiler on rank 0 alone as with a profiler on each
    rank."""
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
    "How many sequences does rank 0 have before the fix, divided by the number after the fix?",
    "several_gpus.uneven_sequences",
    "Twelve sequences over ten sequences.",
    "Add up the sequences of both ranks, and give each rank half.",
    {1.5: "your result compares rank 0 with rank 1, but after the fix rank 1 has more sequences."},
)

BUCKET = Computation(
    "How long does an all-reduce of all gradients take?",
    "several_gpus.bucket_us",
    "The gradients have {several_gpus.one_bucket_bytes}, and the bus bandwidth is {several_gpus.largest_bus}.",
    "Divide the bytes that a rank sends by the bus bandwidth.",
    {"several_gpus.half_bucket_us": "each half of the gradients crosses the link twice: before the sum, and after it."},
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
    "one_bucket_bytes": _bucket_bytes,
    "one_bucket_exposed": lambda device: exposed_us(device, "one_bucket_before"),
}
