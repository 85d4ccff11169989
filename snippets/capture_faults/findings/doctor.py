"""The output of the command `doctor` for recorded traces, and for a trace that lost its first kernels."""

from collections.abc import Sequence

from msgspec.structs import replace

from kinetoscope.doctor.trace_checks import check_dropped, check_trace
from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Trace
from snippets.lab.finding import Device
from snippets.lab.page import show as show

HEAD = ["trace", "warning", "what doctor saw", "cure"]
LOST = 12
"""Kernels that are removed from the start of a trace."""
EXAMINED = {
    "the first steps of a process": "trace_rows/first",
    "a replayed CUDA graph": "trace_rows/graph",
    "no schedule": "matmul_add/unscheduled",
    "a training step": "trace_rows/train",
}
"""A trace in words -> its experiment."""


def doctor(device: Device) -> Html:
    """`doctor`'s warnings about some traces, with their fixes."""
    rows: list[Sequence[Cell]] = []
    for words, experiment in EXAMINED.items():
        checks = [check for check in check_trace(device[experiment].trace) if check.status != "ok"]
        rows += [[words, check.name, check.seen, check.cure] for check in checks]
        if not checks:
            rows.append([words, "nothing", None, None])
    return table("Warnings of doctor about some traces", HEAD, rows, text_columns=4)


def without_first_kernels(trace: Trace, count: int) -> Trace:
    """The trace as if the profiler had lost its first kernels."""
    kernels = [activity for activity in trace.activities if activity.kind == "kernel"]
    lost = {id(kernel) for kernel in kernels[:count]}
    return replace(trace, activities=tuple(each for each in trace.activities if id(each) not in lost))


def doctor_of_lost(device: Device) -> Html:
    """`doctor`'s check of launches without a kernel, before and after the first kernels are removed."""
    trace = device["trace_rows/train"].trace
    rows: list[Sequence[Cell]] = []
    for words, shown in (("as recorded", trace), ("without its first kernels", without_first_kernels(trace, LOST))):
        if check := check_dropped(shown):
            rows.append([words, check.status, check.seen, check.cure or None])
    head = ["a training step", "status", *HEAD[2:]]
    return table("Output of doctor about lost kernels", head, rows, text_columns=4)
