"""Rows of a trace itself: each event of some names, and where a viewer shows it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import Span, Trace
from snippets.lab.finding import Device, format_value
from snippets.lab.page import show as show

HEAD = ["row", "where", "events", "shortest", "longest"]
_NUMBER = re.compile(r"(?<=^ProfilerStep)#\d+$")
"""Of a step, which the profiler's table leaves out, too."""


def events(trace: Trace) -> Iterator[tuple[str, Span]]:
    """Every event of a trace with the place where it is, those of the CPU first."""
    for op in trace.cpu_ops:
        yield "CPU, annotation" if op.is_annotation else "CPU, operator", op
    for call in trace.calls:
        yield "CPU, CUDA call", call
    for span in trace.overheads:
        yield "profiler, overhead", span
    for span in trace.gpu_annotations:
        yield "GPU, annotation", span
    for activity in trace.activities:
        yield f"GPU, stream {activity.stream}", activity


def events_of(device: Device, experiment: str, patterns: Sequence[str], caption: str) -> Html:
    """The events of a recorded trace whose names match one of the patterns, a row for each name and place."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pattern in patterns:
        for place, event in events(device[experiment].trace):
            if fnmatchcase(event.name, pattern):
                found[_NUMBER.sub("*", event.name), place].append(event.duration_us)
    rows: list[Sequence[Cell]] = [
        [code(name, 44), place, len(times), *(format_value(us, "us") for us in (min(times), max(times)))]
        for (name, place), times in found.items()
    ]
    return table(caption, HEAD, rows, text_columns=2)


annotations = partial(
    events_of,
    experiment="trace_rows/two_streams",
    patterns=("ProfilerStep*", "two_streams", "*tensor_kernel_scan*"),
    caption="Three steps with work on two streams",
)
closing_wait = partial(
    events_of,
    experiment="mlp/eager",
    patterns=("ProfilerStep*", "cudaDeviceSynchronize"),
    caption="Three steps, and the profiler's cudaDeviceSynchronize",
)
fills = partial(
    events_of,
    experiment="trace_rows/item",
    patterns=("cudaMemsetAsync", "Memset*", "*reduce_kernel*"),
    caption="Three sums, each with a Memset before the kernel",
)
replays = partial(
    events_of,
    experiment="trace_rows/graph",
    patterns=("aten::*", "cudaGraphLaunch", "Memset*", "nvjet*", "*GeluCUDA*"),
    caption="Three replays of a CUDA graph",
)
requests = partial(
    events_of,
    experiment="matmul_add/unscheduled",
    patterns=("Activity Buffer Request", "ProfilerStep*"),
    caption="A profile of five steps without a schedule",
)
