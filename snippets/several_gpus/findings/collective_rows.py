"""The rows of one all-reduce in a trace: several rows, one transfer."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.communication import collectives
from kinetoscope.trace.events import Span, Step
from snippets.lab.finding import Device, Figure, Run, claim, equals, format_value
from snippets.lab.page import show as show

RUNG = "several_gpus/each_parameter"
OPERATORS = {
    "c10d::allreduce_": "the operator, on the CPU",
    "record_param_comms": "an operator that only notes the arguments, on the CPU",
    "nccl:all_reduce": "an annotation around the launch, on the CPU",
}
"""Row of the CPU -> what it is."""
MIRROR = "nccl:all_reduce"


def all_reduce_rows(device: Device) -> Html:
    """The rows of the all-reduces of one step of rank 0, with their number and total time."""
    run = device[RUNG]
    body: list[list[Cell]] = [
        [code(name), text, f"{len(spans)}", format_value(math.fsum(span.duration_us for span in spans), "us")]
        for name, text, spans in _rows(run, run.step)
    ]
    caption = "The all-reduces of one step of rank 0, one all-reduce for each parameter"
    return table(caption, ["row", "what it is", "number", "total time"], body, text_columns=2)


def _rows(run: Run, step: Step) -> Iterator[tuple[str, str, list[Span]]]:
    for name, text in OPERATORS.items():
        yield name, text, [op for op in step.ops if op.name == name]
    kernels: list[Span] = [*collectives(step)]
    begin, end = step.start_us, max([step.end_us, *(kernel.end_us for kernel in kernels)])
    spans = run.whole.trace.gpu_annotations
    mirrors: list[Span] = [span for span in spans if span.name == MIRROR and begin <= span.start_us < end]
    yield MIRROR, "the annotation's mirror, on the GPU", mirrors
    yield "ncclDevKernel_AllReduce...", "the kernel: waiting and transfer, on the GPU", kernels


@claim("SG37", equals(True))
def rows_of_one_transfer(device: Device) -> Figure:
    """In one step, `c10d::allreduce_`, `record_param_comms` and `nccl:all_reduce` each appear on the CPU as often as
    NCCL's kernel appears on the GPU."""

    def are_equal(step: Step) -> bool:
        counts = {sum(op.name == name for op in step.ops) for name in OPERATORS}
        return counts == {len(collectives(step))}

    return device[RUNG].per_step(are_equal)
