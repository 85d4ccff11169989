"""The page's hints, on its own traces: lengths of steps, GPU annotations, launches of tiny kernels."""

from __future__ import annotations

import itertools
import math
import re
import statistics

from kinetoscope.diagnosis.waste import MAX_LAUNCH_GAP_US
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import busy_us, recorded_step_us, step_us
from snippets.lab.finding import Device, Figure, TraceError
from snippets.lab.finding.measure import percent
from snippets.training_step.findings.loops import FAULTS, busy_share, ceiling
from snippets.training_step.findings.probes import printed_rows

HEALTHY = "training_step/healthy"
TINY = "training_step/tiny_before"
ITEM_BEFORE, ITEM_AFTER = FAULTS["item"].loops


def ceiling_share(device: Device, fault: str) -> Figure:
    """The ceiling of a fault's rule as a share of the recorded step."""
    run, most = device[FAULTS[fault].loops[0]], ceiling(device, fault)
    return percent(Figure(most.number / recorded_step_us(run.trace.steps), "x", origin=most.origin))


def step_row(device: Device) -> Figure:
    """How long `ProfilerStep#` is in the healthy loop, which ends when the CPU has launched the iteration."""
    return device[HEALTHY].per_step(step_us, "us")


def kernel_distance(device: Device) -> Figure:
    """From the first kernel of a healthy step to the first kernel of the next."""
    run = device[HEALTHY]
    starts = [step.kernels[0].start_us for step in run.whole.steps]
    us = statistics.median(after - before for before, after in itertools.pairwise(starts))
    return Figure(us, "us", origin=f"{run.origin}, in its trace")


def backward_annotation(device: Device) -> Figure:
    """How long backward's annotation is in the GPU lane.

    Raises `TraceError` if there is none.
    """
    run = device[HEALTHY]
    lengths = [span.duration_us for span in run.whole.trace.gpu_annotations if span.name == "backward"]
    if not lengths:
        raise TraceError(f"{run.id} on {device.name} has no annotation 'backward' in the GPU lane")
    return Figure(statistics.median(lengths), "us", origin=f"{run.origin}, in its trace")


def item_recorded_before(device: Device) -> Figure:
    """How long a recorded step is that reads three values."""
    return device[ITEM_BEFORE].per_step(step_us, "us")


def item_recorded_after(device: Device) -> Figure:
    """How long a recorded step is once it is mended."""
    return device[ITEM_AFTER].per_step(step_us, "us")


def item_mended_busy(device: Device) -> Figure:
    """The share of an iteration without the profiler that the mended loop's kernels fill."""
    return busy_share(device[ITEM_AFTER])


def tiny_kernels(device: Device) -> Figure:
    """Kernels of a step of the loop of tiny kernels."""
    return device[TINY].per_step(lambda step: len(step.kernels))


def tiny_kernel(device: Device) -> Figure:
    """The time in which the GPU works on a step of the loop of tiny kernels, for each kernel."""
    return device[TINY].per_step(lambda step: busy_us(step.activities) / len(step.kernels), "us")


def launch_us(step: Step) -> float:
    """The median length of the calls that launched the step's kernels."""
    return statistics.median(kernel.launch.duration_us for kernel in step.kernels if kernel.launch)


def tiny_launch(device: Device) -> Figure:
    """The time of a call that launches a kernel in the loop of tiny kernels, with the profiler."""
    return device[TINY].per_step(launch_us, "us")


def long_gaps_percent(step: Step) -> float:
    """Of the time between a step's activities, the part in gaps too long for the rules that count launches."""
    gaps_us = [max(0.0, after.start_us - before.end_us) for before, after in itertools.pairwise(step.activities)]
    return 100 * math.fsum(us for us in gaps_us if us > MAX_LAUNCH_GAP_US) / math.fsum(gaps_us)


def tiny_long_gaps(device: Device) -> Figure:
    """The part of such gaps in the loop of tiny kernels."""
    return device[TINY].per_step(long_gaps_percent, "%")


def _calls(device: Device, pattern: str) -> Figure:
    run = device["training_step/ten_lines"]
    rows = printed_rows(run.data["printed"])
    calls = [int(row["# of Calls"]) for row in rows if re.search(pattern, row["Name"])]
    if len(calls) != 1:
        raise TraceError(f"{len(calls)} rows of the printed table match {pattern!r}, not one")
    return Figure(calls[0], origin=run.origin)


def attention_kernel_calls(device: Device) -> Figure:
    """Calls of the kernel of attention's backward, as printed."""
    return _calls(device, r"^(?!aten::).*(bprop|bwd|backward)")


def attention_operator_calls(device: Device) -> Figure:
    """Calls of the operator of attention's backward, as printed."""
    return _calls(device, r"^aten::.*attention_backward$")
