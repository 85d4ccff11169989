"""The page's hints, on its own traces: lengths of steps, GPU annotations, launches of tiny kernels."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Mapping

from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import recorded_step_us, step_us
from snippets.lab.finding import Device, Figure, Measure, TraceError, percent
from snippets.training_step.findings.loops import FAULTS, busy_share
from snippets.training_step.findings.probes import printed_rows

HEALTHY = "training_step/healthy"
TINY = "training_step/tiny_before"
ITEM_AFTER = FAULTS["item"].loops[1]


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


def _calls(device: Device, pattern: str) -> Figure:
    run = device["training_step/ten_lines"]
    rows = printed_rows(run.data["printed"])
    calls = [int(row["# of Calls"]) for row in rows if re.search(pattern, row["Name"])]
    if len(calls) != 1:
        raise TraceError(f"{len(calls)} rows of the printed table match {pattern!r}, not one")
    return Figure(calls[0], origin=run.origin)


FIGURES: Mapping[str, Measure] = {
    "step_row": lambda device: device[HEALTHY].per_step(step_us, "us"),
    "item_mended_busy": lambda device: busy_share(device[ITEM_AFTER]),
    "tiny_kernel": lambda device: device[TINY].per_step(
        lambda step: statistics.fmean(kernel.duration_us for kernel in step.kernels), "us"
    ),
    "tiny_launch": lambda device: device[TINY].per_step(launch_us, "us"),
    "attention_kernel_calls": lambda device: _calls(device, r"^(?!aten::).*(bprop|bwd|backward)"),
    "attention_operator_calls": lambda device: _calls(device, r"^aten::.*attention_backward$"),
}
