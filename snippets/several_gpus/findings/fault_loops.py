"""The loops with faults, and what they do: before and after a fix, on each rank, and under profilers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean

from kinetoscope.trace.communication import collective_kind, collectives, exposed_communication_us
from kinetoscope.trace.events import Step
from snippets.lab.finding import Device, Figure, compare_ranks, derived, on_ranks, unpaired_ratio
from snippets.lab.finding.fault import STRAGGLERS, Fault
from snippets.lab.finding.probed import time

CHAPTER = "several_gpus"
PROFILED = f"{CHAPTER}/profiled_ranks"
"""The probe of profilers on some ranks."""


def _fault(name: str, title: str, before: str, after: str, rule: str = "") -> Fault:
    return Fault(name, title, (f"{CHAPTER}/{before}", f"{CHAPTER}/{after}"), rule)


FAULTS = {
    fault.name: fault
    for fault in (
        _fault("uneven", "A rank with more sequences", "uneven_before", "uneven_after", STRAGGLERS),
        _fault("late", "A late CPU, and a long step", "late_before", "late_after", STRAGGLERS),
        _fault("late_small", "A late CPU, and a short step", "late_small_before", "item_after", STRAGGLERS),
        _fault("one_bucket", "One bucket for all gradients", "one_bucket_before", "ddp_after", "exposed-communication"),
        _fault("afterwards", "All-reduces after backward", "afterwards_before", "ddp_after", "exposed-communication"),
        _fault("unused", "A search for unused parameters", "unused_before", "ddp_after"),
        _fault(
            "one_queue", "One hardware queue for all streams", "one_queue_before", "fsdp_after", "exposed-communication"
        ),
        _fault(
            "root_only",
            "FSDP that shards only the whole model",
            "root_only_before",
            "fsdp_after",
            "exposed-communication",
        ),
        _fault(
            "no_sync",
            "All-reduces in each micro-batch",
            "no_sync_before",
            "no_sync_after",
            "exposed-communication",
        ),
        _fault("item", "A rank that reads its loss", "item_before", "item_after", "sync-in-step"),
    )
}

LOOPS: Mapping[str, Mapping[str, str]] = {
    name: dict(zip(("before", "after"), fault.loops, strict=True)) for name, fault in FAULTS.items()
} | {
    "no_sync": {
        "without no_sync": f"{CHAPTER}/no_sync_before",
        "no_sync around backward alone": f"{CHAPTER}/no_sync_backward",
        "no_sync around forward and backward": f"{CHAPTER}/no_sync_after",
    }
}
"""Name of a fault -> label of a loop -> its experiment."""


APART = "one_queue"
"""The fault whose loops have processes of their own, so that their times are no pairs."""


def speedup(device: Device, name: str) -> Figure:
    """How many times as long a step takes before a fix as after it."""
    fault = FAULTS[name]
    return unpaired_ratio(*_times_of(device, fault)) if name == APART else fault.speedup(device)


def saved(device: Device, name: str) -> Figure:
    """What a fix saves of a step."""
    fault = FAULTS[name]
    if name != APART:
        return fault.saved(device)
    before, after = _times_of(device, fault)
    return derived(before.number - after.number, before, after, unit="us")


def _times_of(device: Device, fault: Fault) -> tuple[Figure, Figure]:
    before, after = (device[loop].time("iteration") for loop in fault.loops)
    return before, after


# -- what each rank does in a step


def nccl_us(step: Step) -> float:
    """The time of a step's communication kernels, which wait and transfer."""
    return math.fsum(kernel.duration_us for kernel in collectives(step))


def nccl_of(device: Device, loop: str, rank: int) -> Figure:
    """The time of a rank's communication kernels in a step of a loop."""
    return on_ranks(device[f"{CHAPTER}/{loop}"])[rank].per_step(nccl_us, "us")


def count(device: Device, loop: str, of: Callable[[Step], int]) -> Figure:
    """A count in a step; inconclusive if the ranks' counts differ."""
    first, *others = (rank.per_step(of) for rank in on_ranks(device[f"{CHAPTER}/{loop}"]))
    agree = all(other.conclusive and other.value == first.value for other in others)
    return replace(first, conclusive=first.conclusive and agree)


def calls(device: Device, loop: str, kind: str) -> Figure:
    """How many collectives of a kind each rank runs in a step."""
    return count(device, loop, lambda step: sum(collective_kind(each) == kind for each in collectives(step)))


def ranks_mean(device: Device, loop: str, of: Callable[[Step], float]) -> Figure:
    """A time in a step, a mean of the ranks."""
    figures = [rank.per_step(of, "us") for rank in on_ranks(device[f"{CHAPTER}/{loop}"])]
    return derived(fmean(figure.number for figure in figures), *figures, unit="us")


def exposed_us(device: Device, loop: str) -> Figure:
    """The time in a step in which a rank only communicates, a mean of the ranks."""
    return ranks_mean(device, loop, exposed_communication_us)


def hidden_share(device: Device, loop: str) -> Figure:
    """The share of a step's communication that runs beside other kernels, in percent."""
    exposed, whole = exposed_us(device, loop), ranks_mean(device, loop, nccl_us)
    return derived(100 * (1 - exposed.number / whole.number), exposed, whole, unit="%")


def late_rank(device: Device, name: str) -> Figure:
    """The late rank that the report names before the fix: `rank 0`; `none` if no rank is late."""
    run = device[FAULTS[name].loops[0]]
    late = compare_ranks(run).straggler
    return Figure(f"rank {late.rank}" if late else "none", origin=f"{run.origin}, the report of its ranks")


# -- the probe of profilers


def profiled(device: Device, which: str) -> Figure:
    """The time of a step of the slowest rank, with a profiler on none, on `rank 0`, or on all."""
    return time(device, PROFILED, which, "us")


def profiled_nccl(device: Device, which: str, rank: int) -> Figure:
    """The NCCL time of a profiled rank in a step."""
    return time(device, PROFILED, which, "nccl_us", str(rank))
