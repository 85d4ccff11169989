"""The command `summary`: print a trace's steps and kernels on one screen."""

from __future__ import annotations

import argparse
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import Struct

from snippets.lab.trace.events import GpuActivity, Trace, Triple
from snippets.lab.trace.kineto import no_collection, read_trace
from snippets.lab.trace.queries import (
    busy_us,
    extent_us,
    kernel_time_us,
    overlaps_us,
    require_kernels,
    require_steps,
    steps_agree,
)
from snippets.lab.trace.text import printable

HELP = "kernels, launches and busy time of a Kineto trace, plain or gzip"
DESCRIPTION = """\
Print what one step of a PyTorch trace did: kernels, copies, launches, busy and idle time of the GPU, and every kernel
by its total time. Counts are per step, times the mean over the active steps.

  python -m snippets.lab summary trace.json.gz --json
"""
COLUMNS = 100
_OP_COLUMNS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `summary`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler")
    parser.add_argument("--json", action="store_true", help="print JSON")


def command(arguments: argparse.Namespace) -> int:
    """Print the summary of a trace."""
    return print_summary(arguments.trace, arguments.json)


class KernelSummary(Struct, frozen=True):
    """All launches of one kernel with one shape, over the active steps."""

    name: str
    calls: int
    total_us: float
    mean_us: float
    op: str | None  # the op that launched it most often
    grid: Triple | None
    block: Triple | None
    registers: int | None  # per thread
    shared_memory_bytes: int | None
    overlap_us: float = 0.0  # of the total, while the kernel before on its stream was still running


class Summary(Struct, frozen=True):
    """Counts are per step (the low median if steps differ); times are means over the active steps."""

    device: str | None
    steps: int
    steps_agree: bool
    kernels_per_step: int
    memcpy_per_step: int
    memset_per_step: int
    launches_per_step: int  # calls that start GPU work; no queries or waits
    kernel_time_us_per_step: float  # a sum: overlapping kernels count twice
    overlap_us_per_step: float  # of that sum, while the kernel before on the same stream was still running
    gpu_busy_us_per_step: float
    gpu_idle_us_per_step: float
    unattributed: int  # GPU activities outside all steps
    kernels: tuple[KernelSummary, ...]


def summarize(trace: Trace) -> Summary:
    """Summarize a trace. Raises `TraceError` without an active step or without a kernel."""
    require_steps(trace)
    require_kernels(trace)
    by_step = [step.activities for step in trace.steps]
    kinds = [Counter(map(attrgetter("kind"), activities)) for activities in by_step]
    calls = {call.correlation for call in trace.calls}
    busy = _mean(map(busy_us, by_step))
    return Summary(
        device=trace.device,
        steps=len(by_step),
        steps_agree=steps_agree(trace),
        kernels_per_step=_median(kind["kernel"] for kind in kinds),
        memcpy_per_step=_median(kind["memcpy"] for kind in kinds),
        memset_per_step=_median(kind["memset"] for kind in kinds),
        launches_per_step=_median(len(calls.intersection(map(attrgetter("correlation"), each))) for each in by_step),
        kernel_time_us_per_step=round(_mean(map(kernel_time_us, by_step)), 3),
        overlap_us_per_step=round(_mean(math.fsum(overlaps_us(step)) for step in trace.steps), 3),
        gpu_busy_us_per_step=round(busy, 3),
        gpu_idle_us_per_step=round(max(0.0, _mean(map(extent_us, by_step)) - busy), 3),
        unattributed=len(trace.unattributed),
        kernels=_kernels(trace),
    )


def _kernels(trace: Trace) -> tuple[KernelSummary, ...]:
    groups: dict[tuple[object, ...], list[GpuActivity]] = defaultdict(list)
    overlaps: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for step in trace.steps:
        for activity, us in zip(step.activities, overlaps_us(step), strict=True):
            if activity.kind == "kernel":
                groups[_shape(activity)].append(activity)
                overlaps[_shape(activity)].append(us)
    return tuple(sorted((_kernel(calls, overlaps[shape]) for shape, calls in groups.items()), key=_order))


def _kernel(calls: list[GpuActivity], overlaps: list[float]) -> KernelSummary:
    ops = Counter(None if call.op is None else call.op.name for call in calls)
    total_us = kernel_time_us(calls)
    first = calls[0]
    return KernelSummary(
        name=first.name,
        calls=len(calls),
        total_us=total_us,
        mean_us=round(total_us / len(calls), 3),
        op=min(ops, key=lambda name: (-ops[name], name or "")),
        grid=first.grid,
        block=first.block,
        registers=first.registers,
        shared_memory_bytes=first.shared_memory_bytes,
        overlap_us=round(math.fsum(overlaps), 3),
    )


_shape = attrgetter("name", "grid", "block", "registers", "shared_memory_bytes")


def _order(kernel: KernelSummary) -> tuple[float, str, str]:
    return -kernel.total_us, kernel.name, repr(_shape(kernel))


def _median(counts: Iterable[int]) -> int:
    """The low median, a count of a real step; importing `statistics` would add a tenth to the start-up."""
    ordered = sorted(counts)
    return ordered[(len(ordered) - 1) // 2]


def _mean(times: Iterable[float]) -> float:
    listed = list(times)
    return sum(listed) / len(listed)


def summary_json(summary: Summary) -> str:
    """A summary as JSON in ASCII: a name cannot contain terminal control sequences."""
    return dumps(msgspec.to_builtins(summary), indent=2)


def summary_text(summary: Summary) -> str:
    """An aligned table of at most 100 columns, with unprintable characters in names escaped."""
    agreement = "all steps agree" if summary.steps_agree else "steps DIFFER: counts are the low median of a step"
    lines = [
        f"device             {printable(summary.device or 'unknown')}",
        f"active steps       {summary.steps} ({agreement})",
        f"work per step      {summary.kernels_per_step} kernels, {summary.memcpy_per_step} memcpy, "
        f"{summary.memset_per_step} memset, put there by {summary.launches_per_step} calls",
        f"GPU time per step  busy {summary.gpu_busy_us_per_step:,.3f} us, "
        f"idle between {summary.gpu_idle_us_per_step:,.3f} us; "
        f"kernels add up to {summary.kernel_time_us_per_step:,.3f} us",
    ]
    overlaps = summary.overlap_us_per_step > 0
    if overlaps:
        lines.append(
            f"overlap per step   {summary.overlap_us_per_step:,.3f} us in which the kernel before on a stream still ran"
        )
    if summary.unattributed:
        lines.append(f"unattributed       {summary.unattributed} GPU activities belong to no step and are not counted")
    return "\n".join([*lines, "", *_kernel_lines(summary.kernels, overlaps)])


def _kernel_lines(kernels: Sequence[KernelSummary], overlaps: bool) -> Iterator[str]:
    """The table of kernels; a column of overlaps if there are any."""
    numbers = [[str(k.calls), f"{k.total_us:,.3f}", f"{k.mean_us:,.3f}", f"{k.overlap_us:,.3f}"] for k in kernels]
    numbers.insert(0, ["calls", "total us", "mean us", "overlap us"])
    names = [("op", "kernel"), *((k.op or "-", k.name) for k in kernels)]
    widths = [max(map(len, column)) for column in zip(*numbers, strict=True)][: 3 + overlaps]
    op_width = min(_OP_COLUMNS, max(len(printable(op)) for op, _ in names))
    name_width = max(16, COLUMNS - sum(widths) - op_width - 2 * len(widths) - 2)
    for cells, (op, name) in zip(numbers, names, strict=True):
        aligned = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        yield f"{aligned}  {_shortened(op, op_width):<{op_width}}  {_shortened(name, name_width)}"


def _shortened(name: str, columns: int) -> str:
    text = printable(name)
    if len(text) <= columns:
        return text
    tail = (columns - 3) // 2
    return f"{text[: columns - 3 - tail]}...{text[-tail:]}"


def print_summary(path: str | os.PathLike[str], as_json: bool = False) -> int:
    """Print the summary of the trace at `path`. Raises `TraceError`."""
    with no_collection():
        summary = summarize(read_trace(path))
    print(summary_json(summary) if as_json else summary_text(summary))
    return 0
