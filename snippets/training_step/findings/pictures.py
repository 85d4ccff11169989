"""A step of a training loop, small enough to draw: phases and waits on the CPU, runs of kernels on the GPU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from kinetoscope.html import Html
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.queries import busy_us
from snippets.lab.finding import Device
from snippets.lab.page import timeline

PHASES = ("to the GPU", "forward", "loss", "backward", "clip", "optimizer")
"""The annotations of the loop, in order."""
MIN_GAP_US = 20.0
"""A shorter pause between two kernels is not drawn."""
MIN_SHARE = 0.02
"""Calls and annotations of at least this share of a step are drawn."""
MIN_RUN_SHARE = 0.005
"""A run of kernels that takes less of a step stays as it is, so that blocks of short kernels count each of them."""
MIN_FILLED = 0.95
"""Share of a run in which the GPU works. A run with more pauses stays as it is, so that it does not look full."""
replace = msgspec.structs.replace


def phase_spans(step: Step) -> tuple[CpuOp, ...]:
    """The annotations of the phases of a step."""
    return tuple(op for op in step.ops if op.is_annotation and op.name in PHASES)


def phase_of(spans: Sequence[CpuOp], activity: GpuActivity) -> str:
    """The phase in which an activity was launched, on any thread; `other` between two phases."""
    us = activity.launch.start_us if activity.launch else activity.start_us
    for op in spans:
        if op.start_us <= us < op.end_us:
            return op.name
    return "other"


def reduced(step: Step) -> Step:
    """The step with annotations and long calls, and for each run of GPU work of one phase one activity."""
    least = MIN_SHARE * (step.end_us - step.start_us)
    calls = tuple(call for call in step.calls if call.duration_us >= least)
    drawn: dict[CpuOp | None, CpuOp] = {}
    for op in step.ops:
        if op.is_annotation and (op.name in PHASES or op.duration_us >= least):
            drawn[op] = replace(op, parent=drawn.get(op.parent))
    return replace(step, ops=tuple(drawn.values()), calls=calls, activities=tuple(_merged(step)))


def _merged(step: Step) -> list[GpuActivity]:
    """One activity for each long run of the same phase on a stream; copies stay alone."""
    spans = phase_spans(step)
    least = MIN_RUN_SHARE * (step.end_us - step.start_us)
    runs: list[list[GpuActivity]] = []
    last: dict[tuple[int, int], list[GpuActivity]] = {}
    for activity in step.activities:
        stream = activity.device, activity.stream
        run = last.get(stream)
        if run is None or not _continues(spans, run[-1], activity):
            run = last[stream] = []
            runs.append(run)
        run.append(activity)
    merged = [[_as_one(spans, run)] if _length_us(run) >= least and _is_full(run) else run for run in runs]
    return sorted(itertools.chain(*merged), key=lambda activity: activity.start_us)


def _length_us(run: Sequence[GpuActivity]) -> float:
    return max(activity.end_us for activity in run) - run[0].start_us


def _is_full(run: Sequence[GpuActivity]) -> bool:
    return len(run) > 1 and busy_us(run) >= MIN_FILLED * _length_us(run)


def _as_one(spans: Sequence[CpuOp], run: Sequence[GpuActivity]) -> GpuActivity:
    duration_us = round(_length_us(run), 3)
    name = f"{phase_of(spans, run[0])}: {len(run)} kernels"
    return replace(run[0], name=name, kind="kernel", duration_us=duration_us, grid=None, block=None, registers=None)


def _continues(spans: Sequence[CpuOp], before: GpuActivity, activity: GpuActivity) -> bool:
    if "memcpy" in (before.kind, activity.kind) or activity.start_us - before.end_us > MIN_GAP_US:
        return False
    return phase_of(spans, before) == phase_of(spans, activity)


def phases_timeline(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """The middle steps of loops on one time scale: their phases, and the GPU's work for each."""
    return timeline(device, variants, caption, reduce=reduced)
