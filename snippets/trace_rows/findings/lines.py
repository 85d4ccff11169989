"""Rows by other means: the line of Python that launched a kernel, and a step by the clock."""

import statistics
from collections.abc import Sequence

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity
from snippets.lab.finding import Device, format_value
from snippets.lab.page import kernel_name_html, show as show

SHOWN = 4


def lines(device: Device) -> Html:
    """The longest kernels of a step with a line of Python, from a trace with stacks, each name once."""
    run = device["training_step/healthy_stacks"]
    facts = Facts(run.trace)
    longest: dict[str, GpuActivity] = {}
    for kernel in sorted(run.step.kernels, key=lambda kernel: -kernel.duration_us):
        if ".py(" in facts.place(kernel):
            longest.setdefault(kernel.name, kernel)
    rows: list[Sequence[Cell]] = [
        [kernel_name_html(kernel.name), facts.place(kernel), format_value(kernel.duration_us, "us")]
        for kernel in list(longest.values())[:SHOWN]
    ]
    return table(
        "The longest kernels, and the line that launched each kernel",
        ["kernel", "operator, module and line", "time"],
        rows,
        text_columns=2,
    )


def stopwatch(device: Device) -> Html:
    """The time of a step by the clock, medians: before, during and after profiles in the same process."""
    data = device["capture_faults/overhead"].data
    samples = {
        "before the first profile": data["before_us"],
        "with the profiler's defaults": data["samples_us"]["nothing"],
        "after the profiler has stopped": data["samples_us"]["without"],
    }
    rows: list[Sequence[Cell]] = [[when, format_value(statistics.median(us), "us")] for when, us in samples.items()]
    return table("A step of short operators in one process, timed by the wall clock", ["when", "time of a step"], rows)
