"""The GPU's work: several streams, copies, fills."""

import math
from collections.abc import Sequence
from functools import partial

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import CpuOp, Step
from kinetoscope.trace.queries import busy_us
from snippets.lab.finding import Device, Figure, Run, at_least, claim, equals, format_value
from snippets.lab.page import show as show, timeline
from snippets.trace_rows.findings.averages import rows_of


def summed_to_busy(run: Run) -> Figure:
    """How often a step counts the time in which its GPU works, when it adds up its kernels."""
    return run.per_step(
        lambda step: math.fsum(kernel.duration_us for kernel in step.kernels) / busy_us(step.activities), "x"
    )


@claim("R2", at_least(1.5), scope="timing")
def overlapping(device: Device) -> Figure:
    """In a step with kernels on two streams, the kernels' durations add up to at least 1.5 times the time in which the
    GPU works."""
    return summed_to_busy(device["trace_rows/two_streams"])


@claim("R3", equals(2))
def streams_annotated(device: Device) -> Figure:
    """In each step, an annotation around work on two streams appears twice on the GPU, once for each stream."""
    run = device["trace_rows/two_streams"]
    spans = [span for span in run.whole.trace.gpu_annotations if span.name == run.label]
    return Figure(len(spans) // len(run.whole.steps), origin=f"{run.origin}, annotations on the GPU a step")


@claim("R8", equals(5))
def five_copies(device: Device) -> Figure:
    """Five methods that copy a tensor end in five calls of `aten::copy_`."""
    return device["trace_rows/copies"].per_step(lambda step: sum(op.name == "aten::copy_" for op in step.ops))


@claim("R21", equals("3 of 3 and 0 of 3"))
def copying_to(device: Device) -> Figure:
    """`aten::to` copies if the device or the type differs, and copies nothing if both are already right."""
    found = [device[f"trace_rows/{name}"].per_step(_copying_to) for name in ("copies", "train")]
    return Figure(" and ".join(figure.text for figure in found), origin="trace_rows/copies and trace_rows/train")


def _copying_to(step: Step) -> str:
    """How many of a step's calls of `aten::to` have a copy below them."""
    calls = [op for op in step.ops if op.name == "aten::to"]
    above = {id(op) for copy in step.ops if copy.name == "aten::copy_" for op in copy.chain}
    return f"{sum(id(call) in above for call in calls)} of {len(calls)}"


def host_copy_us(step: Step, memory: str) -> float:
    """Time of the copy from one kind of host memory: Pageable or Pinned."""
    return next(copy.duration_us for copy in step.memcpys if memory in copy.name)


@claim("R9", at_least(1.5), scope="timing")
def pageable_to_pinned(device: Device) -> Figure:
    """A copy from pageable memory takes at least 1.5 times as long as a copy from pinned memory."""
    return device["trace_rows/copies"].per_step(
        lambda step: host_copy_us(step, "Pageable") / host_copy_us(step, "Pinned"), "x"
    )


@claim("R10", equals("aten::sum"))
def fills(device: Device) -> Figure:
    """Before a long sum, `aten::sum` itself launches a Memset of a few bytes."""
    return device["trace_rows/item"].per_step(lambda step: ", ".join(_owner(fill.op) for fill in step.memsets))


def _owner(op: CpuOp | None) -> str:
    return op.name if op else "none"


FIGURES = {
    "summed_factor": lambda device: summed_to_busy(device["trace_rows/two_streams"]),
    "pageable_factor": lambda device: pageable_to_pinned(device),
}


copy_rows = partial(
    rows_of,
    experiment="trace_rows/copies",
    patterns=("aten::to", "aten::_to_copy", "aten::contiguous", "aten::clone", "aten::copy_"),
    caption="Five copies in each step, all by aten::copy_",
)
both_streams = partial(
    timeline, variants={"two streams": "trace_rows/two_streams"}, caption="Two cumulative sums on two streams"
)


def host_copies(device: Device) -> Html:
    """The copies from the host in a step, by their names in the trace."""
    copies = [copy for copy in device["trace_rows/copies"].step.memcpys if "HtoD" in copy.name]
    rows: list[Sequence[Cell]] = [
        [code(copy.name, 60), format_value(copy.duration_us, "us"), format_value(copy.moved_bytes or 0, "bytes")]
        for copy in copies
    ]
    return table("One matrix, copied from pageable and from pinned memory", ["row", "time", "size"], rows)
