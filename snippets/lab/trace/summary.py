"""A trace in one screen: `python -m snippets.lab summary TRACE [--json]`."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from json import dumps
from operator import attrgetter

import msgspec
from msgspec import Struct

from snippets.lab.trace.events import GpuActivity, Trace, Triple
from snippets.lab.trace.kineto import no_collection, read_trace
from snippets.lab.trace.queries import busy_us, extent_us, kernel_time_us, require_kernels, require_steps, steps_agree
from snippets.lab.trace.text import printable

COLUMNS = 100
_OP_COLUMNS = 24


class KernelSummary(Struct, frozen=True):
    """The launches, over all active steps, of one kernel with one shape."""

    name: str
    calls: int
    total_us: float
    mean_us: float
    op: str | None  # the one that launched it most often
    grid: Triple | None
    block: Triple | None
    registers: int | None  # per thread
    shared_memory_bytes: int | None


class Summary(Struct, frozen=True):
    """Counts are those of a step (the low median where steps differ), times the mean over the active steps."""

    device: str | None
    steps: int
    steps_agree: bool
    kernels_per_step: int
    memcpy_per_step: int
    memset_per_step: int
    launches_per_step: int  # the calls that put work on the GPU, so not the queries and waits
    kernel_time_us_per_step: float
    gpu_busy_us_per_step: float
    gpu_idle_us_per_step: float
    unattributed: int  # GPU activities of no step
    kernels: tuple[KernelSummary, ...]


def summarize(trace: Trace) -> Summary:
    """Raises TraceError when there is no active step or no kernel to summarize."""
    require_steps(trace)
    require_kernels(trace)
    work = [step.activities for step in trace.steps]
    kinds = [Counter(map(attrgetter("kind"), activities)) for activities in work]
    calls = {call.correlation for call in trace.calls}
    busy = _mean(map(busy_us, work))
    return Summary(
        device=trace.device,
        steps=len(work),
        steps_agree=steps_agree(trace),
        kernels_per_step=_median(kind["kernel"] for kind in kinds),
        memcpy_per_step=_median(kind["memcpy"] for kind in kinds),
        memset_per_step=_median(kind["memset"] for kind in kinds),
        launches_per_step=_median(len(calls.intersection(map(attrgetter("correlation"), each))) for each in work),
        kernel_time_us_per_step=round(_mean(map(kernel_time_us, work)), 3),
        gpu_busy_us_per_step=round(busy, 3),
        gpu_idle_us_per_step=round(max(0.0, _mean(map(extent_us, work)) - busy), 3),
        unattributed=len(trace.unattributed),
        kernels=_kernels(trace),
    )


def _kernels(trace: Trace) -> tuple[KernelSummary, ...]:
    groups: dict[tuple[object, ...], list[GpuActivity]] = defaultdict(list)
    for step in trace.steps:
        for kernel in step.kernels:
            groups[_shape(kernel)].append(kernel)
    return tuple(sorted((_kernel(calls) for calls in groups.values()), key=_order))


def _kernel(calls: list[GpuActivity]) -> KernelSummary:
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
    )


_shape = attrgetter("name", "grid", "block", "registers", "shared_memory_bytes")


def _order(kernel: KernelSummary) -> tuple[float, str, str]:
    return -kernel.total_us, kernel.name, repr(_shape(kernel))


def _median(counts: Iterable[int]) -> int:
    """The low one, which a step really had; `statistics` would cost a tenth of the start-up."""
    ordered = sorted(counts)
    return ordered[(len(ordered) - 1) // 2]


def _mean(times: Iterable[float]) -> float:
    values = list(times)
    return sum(values) / len(values)


def as_json(summary: Summary) -> str:
    """In plain ASCII, so that no name can steer a terminal."""
    return dumps(msgspec.to_builtins(summary), indent=2)


def as_text(summary: Summary) -> str:
    """An aligned table of at most 100 columns; what does not print in a name is escaped."""
    agreement = "all steps agree" if summary.steps_agree else "steps DIFFER: counts are the low median of a step"
    lines = [
        f"device             {printable(summary.device or 'unknown')}",
        f"active steps       {summary.steps} ({agreement})",
        f"work per step      {summary.kernels_per_step} kernels, {summary.memcpy_per_step} memcpy, "
        f"{summary.memset_per_step} memset, put there by {summary.launches_per_step} calls",
        f"GPU time per step  {summary.kernel_time_us_per_step:,.3f} us in kernels; "
        f"busy {summary.gpu_busy_us_per_step:,.3f} us, idle between {summary.gpu_idle_us_per_step:,.3f} us",
    ]
    if summary.unattributed:
        lines.append(f"unattributed       {summary.unattributed} GPU activities belong to no step and are not counted")
    rows = [(str(k.calls), f"{k.total_us:,.3f}", f"{k.mean_us:,.3f}", k.op or "-", k.name) for k in summary.kernels]
    rows.insert(0, ("calls", "total us", "mean us", "op", "kernel"))
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    op_wide = min(_OP_COLUMNS, max(len(printable(row[3])) for row in rows))
    name_wide = max(16, COLUMNS - sum(wide) - op_wide - 8)
    lines.append("")
    for calls, total, mean, op, name in rows:
        numbers = f"{calls:>{wide[0]}}  {total:>{wide[1]}}  {mean:>{wide[2]}}"
        lines.append(f"{numbers}  {_shortened(op, op_wide):<{op_wide}}  {_shortened(name, name_wide)}")
    return "\n".join(lines)


def _shortened(name: str, columns: int) -> str:
    text = printable(name)
    if len(text) <= columns:
        return text
    tail = (columns - 3) // 2
    return f"{text[: columns - 3 - tail]}...{text[-tail:]}"


def print_summary(path: str | os.PathLike[str], json: bool = False) -> int:
    """Print the summary of the trace at `path`; TraceError is the caller's."""
    with no_collection():
        summary = summarize(read_trace(path))
    print(as_json(summary) if json else as_text(summary))
    return 0


if __name__ == "__main__":
    sys.exit(print_summary(sys.argv[1], "--json" in sys.argv[2:]))
