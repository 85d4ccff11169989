"""Collectives that no other GPU work hides."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import TENSORBOARD
from kinetoscope.trace.communication import (
    collective_kind,
    collectives,
    communication,
    computing_times,
    exposed_communication_us,
    is_collective,
)
from kinetoscope.trace.events import GpuActivity, Step, Trace
from kinetoscope.trace.intervals import length_us, union_of

MIN_SHARE = 0.10
DDP_FORWARD = "DistributedDataParallel.forward"
"""The annotation of DDP's forward."""


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Time in which a GPU runs only collectives, a mean over GPUs and steps."""
    found = [each for step in facts.steps for each in communication(step)]
    if not any(map(is_collective, found)) and (facts.trace.world_size or 1) < 2:
        return []  # copies between the GPUs of one process are not of a group of ranks
    if not found:
        return []
    devices = len({each.device for each in found})
    computing = computing_times(facts.activities)
    alone_us = math.fsum(exposed_communication_us(step, computing) for step in facts.steps)
    exposed_us = round(alone_us / len(facts.steps) / devices, 3)
    if exposed_us < MIN_SHARE * facts.long_run_us:
        return []
    sums: Counter[str] = Counter()
    for kernel in found:
        sums[_name(kernel)] += round(1000 * kernel.duration_us)
    [(longest, _)] = sums.most_common(1)
    total_us = round(length_us(union_of(found)) / len(facts.steps), 3)
    share = share_text(exposed_us, facts.mean_step_for(exposed_us))
    title = (
        f"Collectives that no other work hides take {duration_text(exposed_us)} per step "
        f"({share}), of {duration_text(total_us)} in all; the longest are {longest}"
    )
    where = facts.place(next(kernel for kernel in found if _name(kernel) == longest))
    measured = (Measured("communication per step", total_us, "us"), Measured("of it exposed", exposed_us, "us"))
    place, events, doubt = where or longest, facts.evidence(found), _doubt(facts.trace)
    advice = _advice(facts.steps)
    return [Finding(RULE, title, place, events, total_us, exposed_us, advice, measured=measured, doubt=doubt)]


def _advice(steps: Sequence[Step]) -> str:
    """The advice if each of several backwards in a step all-reduces the same gradients; else empty."""
    counts = {_equal_backwards(step) for step in steps}
    if len(counts) > 1 or 0 in counts:
        return ""
    return (
        f"DDP all-reduces the same gradients in each of {counts.pop()} backwards of a step. If the loop accumulates "
        "gradients, run forward and backward of all micro-batches but the last under model.no_sync(). "
        f"{RULE.advice}"
    )


def _equal_backwards(step: Step) -> int:
    """The number of DDP's forwards in a step, if several and after each the same all-reduces start; else 0."""
    starts = [op.start_us for op in step.ops if op.is_annotation and op.name == DDP_FORWARD]
    sizes: list[list[int | None]] = [[] for _ in starts]
    for kernel in collectives(step):
        if collective_kind(kernel) != "allreduce" or kernel.launch is None:
            continue
        if (last := bisect_right(starts, kernel.launch.start_us)) > 0:
            sizes[last - 1].append(kernel.collective.elements_in if kernel.collective is not None else None)
    return len(sizes) if len(sizes) > 1 and all(each and each == sizes[0] for each in sizes) else 0


def _doubt(trace: Trace) -> str:
    """That one rank alone may be waiting for another; empty if the trace has all ranks, or its job is one rank."""
    size = trace.world_size or 1
    if size < 2 or len(trace.processes) >= size:
        return ""
    rank = "One rank" if trace.rank is None else f"Rank {trace.rank}"
    return f"{rank} of {size:,}: this may be waiting for another rank; give all ranks."


def _name(activity: GpuActivity) -> str:
    """`allreduce` if the profiler recorded it, else the name of the kernel or copy."""
    return activity.collective.name if activity.collective is not None else activity.name


RULE = Rule(
    name="exposed-communication",
    title="Collectives that no other work hides",
    looks_for="Kernels of NCCL, RCCL or an inference engine, or copies between GPUs, run while no other kernel of "
    "the step runs on the same GPU. Part of a collective's time may be waiting for the slowest rank. Only the traces "
    "of all ranks tell how much of the time is waiting.",
    threshold=f"Such time is at least {MIN_SHARE:.0%} of a step, or of the step's GPU work if the CPU runs ahead "
    "(means over steps and GPUs).",
    source=f"{TENSORBOARD} (communication above 10 % of a step)",
    advice="Overlap communication with computing: DDP with larger or smaller buckets (bucket_cap_mb), FSDP "
    "prefetching, or async_op=True and a later wait(). Send less: use bf16 gradients, or accumulate gradients over "
    "several steps.",
    find=find,
    needs=(no_gpu_work,),
    confidence="high",
    mistaken="Part of the time is waiting for a late rank. Then the network isn't slow, and overlapping doesn't "
    "help. Only the traces of all ranks tell whether a rank is late.",
)
