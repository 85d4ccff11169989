"""The command `summary`: print a trace's steps and kernels on one screen."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kinetoscope.trace.averages import STEPS
from kinetoscope.trace.documents import Rows, add_top, document_text
from kinetoscope.trace.kineto import no_collection, read_trace
from kinetoscope.trace.marks import PROFILER_STEP
from kinetoscope.trace.summaries import KernelSummary, OperatorSummary, Summary, summary_document
from kinetoscope.trace.text import printable, wrapped
from kinetoscope.trace.totals import summarize

DESCRIPTION = """\
Print what one step of a PyTorch trace did: kernels, copies, launches, busy and idle time of the GPU, and every kernel
by its total time. Counts are per step, times the mean over the active steps. Without ProfilerStep annotations, a step
is what repeats: an annotation, annotated parts in turn, a step of an optimizer, a CUDA graph replay, a batch of a
DataLoader, else the whole trace.

  %(prog)s trace.json.gz
  %(prog)s trace.json.gz --json
  %(prog)s trace.json.gz --json --top 20
"""
COLUMNS = 100
_OP_COLUMNS = 24
_MOST_OPERATORS = 12
_MOST_ROWS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `summary`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_top(parser, "all")


def command(arguments: argparse.Namespace) -> int:
    """Print the summary of a trace."""
    return print_summary(arguments.trace, arguments.json, arguments.top)


def summary_text(summary: Summary) -> str:
    """An aligned table of at most 100 columns, with unprintable characters in names escaped."""
    agreement = " (all steps agree)" if summary.steps_agree else " (steps DIFFER: counts are the low median of a step)"
    lines = [
        f"device             {printable(summary.device or 'unknown')}",
        f"active steps       {summary.steps}{'' if summary.operators else agreement}",
        *(
            [f"steps from         {_shortened(summary.steps_from, COLUMNS - 19)}"]
            if summary.steps_from != PROFILER_STEP
            else []
        ),
        *([] if summary.operators else _gpu_lines(summary)),
    ]
    lines += _kind_lines(summary)
    overlaps = summary.overlap_us_per_step > 0
    lines += _more_lines(summary)
    if summary.kernels:
        lines += ["", *_kernel_lines(summary.kernels, overlaps)]
    if summary.operators:
        lines += ["", *_operator_lines(summary.operators)]
    return "\n".join(lines)


def _gpu_lines(summary: Summary) -> Iterator[str]:
    yield (
        f"work per step      {summary.kernels_per_step} kernels, {summary.memcpy_per_step} memcpy, "
        f"{summary.memset_per_step} memset, put there by {summary.launches_per_step} calls"
    )
    yield (
        f"GPU time per step  busy {summary.gpu_busy_us_per_step:,.3f} us, "
        f"idle between {summary.gpu_idle_us_per_step:,.3f} us; "
        f"kernels add up to {summary.kernel_time_us_per_step:,.3f} us"
    )


def _kind_lines(summary: Summary) -> Iterator[str]:
    for kind in summary.kinds_of_step:
        text = f"{kind.count} of {kind.step_us:,.3f} us, GPU busy {kind.gpu_busy_us_per_step:,.3f} us"
        name = f": {_shortened(kind.name, COLUMNS - 21 - len(text))}" if kind.name else ""
        yield f"{'kind of step':<19}{text}{name}"


def _more_lines(summary: Summary) -> Iterator[str]:
    """Lines for values that are shown only if they are not zero."""
    waits = f", {summary.syncs_per_step} calls wait for the GPU" if summary.syncs_per_step else ""
    yield f"CPU time per step  {summary.step_us:,.3f} us (median){waits}"
    if summary.overlap_us_per_step > 0:
        yield (
            f"overlap per step   {summary.overlap_us_per_step:,.3f} us in which the kernel before on a stream still ran"
        )
    if summary.h2d_us_per_step or summary.d2h_us_per_step:
        yield (
            f"copies per step    host to device {summary.h2d_us_per_step:,.3f} us, "
            f"device to host {summary.d2h_us_per_step:,.3f} us"
        )
    if summary.collectives_us_per_step:
        yield (
            f"collectives        {summary.collectives_us_per_step:,.3f} us per step, "
            f"{summary.exposed_collectives_us_per_step:,.3f} us of it while no other kernel ran"
        )
    for wait in summary.stream_waits[:_MOST_ROWS]:
        stream = "" if wait.stream is None else f" of stream {wait.stream}"
        event = "" if wait.waited_stream is None else f" for an event of stream {wait.waited_stream}"
        yield f"{'waits':<18} {_shortened(wait.kind, 40)}{stream}{event}: {wait.calls:,} in {wait.total_us:,.3f} us"
    for counter in summary.counters[:_MOST_ROWS]:
        name = _shortened(f"{counter.process}: {counter.name}", 40)
        yield f"{'counter':<18} {name}: mean {counter.mean:,.6g}, at most {counter.maximum:,.6g}"
    for each in summary.devices:
        yield (
            f"{'GPU ' + str(each.device):<18} {each.kernels_per_step} kernels, "
            f"busy {each.gpu_busy_us_per_step:,.3f} us per step ({_shortened(each.name or 'unknown', 40)})"
        )
    if summary.unattributed:
        yield f"unattributed       {summary.unattributed} GPU activities belong to no step and are not counted:"
        for group in summary.uncounted:
            yield f"{'':19}{group.activities} {group.reason}, kernels of {group.kernel_time_us:,.3f} us"
    for note in summary.notes:
        yield from wrapped(note, COLUMNS, f"{'note':<19}", " " * 19)


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


def _operator_lines(operators: Sequence[OperatorSummary]) -> Iterator[str]:
    """The CPU's time by operator, over the whole trace."""
    shown = operators[:_MOST_OPERATORS]
    yield "the CPU's time by operator, annotation and CUDA call, over the whole trace"
    rows = [["calls", "self us", "total us"]]
    rows += [[str(each.calls), f"{each.self_cpu_us:,.3f}", f"{each.cpu_us:,.3f}"] for each in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    names = ["name", *(_row_name(each.name) for each in shown)]
    for cells, name in zip(rows, names, strict=True):
        aligned = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{aligned}  {_shortened(name, COLUMNS - sum(widths) - 6)}"
    if len(operators) > len(shown):
        yield f"and {len(operators) - len(shown):,} more"


def _row_name(name: str) -> str:
    return f"{name} (outside of operators)" if name == STEPS else name


def _shortened(name: str, columns: int) -> str:
    text = printable(name)
    if len(text) <= columns:
        return text
    tail = (columns - 3) // 2
    return f"{text[: columns - 3 - tail]}...{text[-tail:]}"


def print_summary(path: str | os.PathLike[str], as_json: bool = False, rows: Rows = "all") -> int:
    """Print the summary of the trace at `path`; JSON with `rows` of each list, or all. Raises `TraceError`."""
    with no_collection():
        summary = summarize(read_trace(path))
    text = document_text(summary_document(summary, Path(path).name), rows) if as_json else summary_text(summary)
    print(text)
    return 0
