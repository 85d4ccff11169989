"""The page's hints, on its own traces: lengths of steps, GPU annotations, launches of tiny kernels."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping

from kinetoscope.diagnosis.waste import MAX_LAUNCH_GAP_US
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import recorded_step_us, step_us
from snippets.lab.finding import Device, Figure, Measure, TraceError, percent
from snippets.training_step.findings.loops import FAULTS, busy_share
from snippets.training_step.findings.probes import printed_rows

HEALTHY = "training_step/healthy"
TINY = "training_step/tiny_before"
ITEM_BEFORE, ITEM_AFTER = FAULTS["item"].loops


def ceiling_share(device: Device, fault: str) -> Figure:
    """The ceiling of a fault's rule as a share of the recorded step."""
    run, most = device[FAULTS[fault].loops[0]], FAULTS[fault].ceiling(device)
    return percent(Figure(most.number / recorded_step_us(run.trace.steps), "x", origin=most.origin))


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


def launch_us(step: Step) -> float:
    """The median length of the calls that launched the step's kernels."""
    return statistics.median(kernel.launch.duration_us for kernel in step.kernels if kernel.launch)


def long_gaps_percent(step: Step) -> float:
    """Of the time between a step's activities, the part in gaps too long for the rules that count launches."""
    gaps_us = [max(0.0, after.start_us - before.end_us) for before, after in itertools.pairwise(step.activities)]
    return 100 * math.fsum(us for us in gaps_us if us > MAX_LAUNCH_GAP_US) / math.fsum(gaps_us)


def _calls(device: Device, pattern: str) -> Figure:
    run = device["training_step/ten_lines"]
    rows = printed_rows(run.data["printed"])
    calls = [int(row["# of Calls"]) for row in rows if re.search(pattern, row["Name"])]
    if len(calls) != 1:
        raise TraceError(f"{len(calls)} rows of the printed table match {pattern!r}, not one")
    return Figure(calls[0], origin=run.origin)


FIGURES: Mapping[str, Measure] = {
    "step_row": lambda device: device[HEALTHY].per_step(step_us, "us"),
    "item_recorded_before": lambda device: device[ITEM_BEFORE].per_step(step_us, "us"),
    "item_recorded_after": lambda device: device[ITEM_AFTER].per_step(step_us, "us"),
    "item_mended_busy": lambda device: busy_share(device[ITEM_AFTER]),
    "tiny_kernels": lambda device: device[TINY].per_step(lambda step: len(step.kernels)),
    "tiny_kernel": lambda device: device[TINY].per_step(
        lambda step: statistics.fmean(kernel.duration_us for kernel in step.kernels), "us"
    ),
    "tiny_launch": lambda device: device[TINY].per_step(launch_us, "us"),
    "tiny_long_gaps": lambda device: device[TINY].per_step(long_gaps_percent, "%"),
    "attention_kernel_calls": lambda device: _calls(device, r"^(?!aten::).*(bprop|bwd|backward)"),
    "attention_operator_calls": lambda device: _calls(device, r"^aten::.*attention_backward$"),
}
