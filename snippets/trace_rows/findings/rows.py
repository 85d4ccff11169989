"""The profiler's table: self and total, rows without GPU time, memory, backward."""

import math
from collections.abc import Sequence
from functools import partial

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.averages import key_averages
from kinetoscope.trace.events import Step
from snippets.lab.finding import Device, Figure, at_least, claim, equals, format_value
from snippets.lab.page import show as show
from snippets.trace_rows.findings.averages import rows_of


@claim("R1", at_least(3), scope="timing")
def total_to_self(device: Device) -> Figure:
    """The total CPU time of `aten::linear` is at least three times its self time, because `aten::linear` calls other
    operators."""
    return device["mlp/eager"].per_step(_total_to_self, "x")


def _total_to_self(step: Step) -> float:
    """Time of all calls of `aten::linear` / their own time, without the operators that they call."""
    total = math.fsum(op.duration_us for op in step.ops if op.name == "aten::linear")
    called = math.fsum(op.duration_us for op in step.ops if op.parent is not None and op.parent.name == "aten::linear")
    return total / (total - called)


@claim("R12", equals(True))
def backward_elsewhere(device: Device) -> Figure:
    """The rows `autograd::engine::evaluate_function` are on another thread than the forward pass."""
    return device["trace_rows/train"].per_step(_backward_elsewhere)


def _backward_elsewhere(step: Step) -> bool:
    threads = {op.thread for op in step.ops if op.name.startswith("autograd::engine::evaluate_function")}
    forward = {op.thread for op in step.ops if op.name == "aten::linear"}
    return bool(threads) and not threads & forward


@claim("R13", at_least(1))
def freed(device: Device) -> Figure:
    """With `profile_memory`, some rows have negative bytes, because these rows freed more than they allocated."""
    rows = device["trace_rows/memory"].data["rows"]
    return Figure(sum(row["self_bytes"] < 0 for row in rows), origin="trace_rows/memory, rows with negative bytes")


@claim("R14", at_least(4))
def without_gpu(device: Device) -> Figure:
    """In an eager MLP, at least four of the operators that appear as rows have no GPU time."""
    idle = [row.name for row in key_averages(device["mlp/eager"].whole.trace) if row.is_idle]
    return Figure(len(idle), origin="mlp/eager, operators without GPU time", display=", ".join(sorted(idle)))


self_and_total = partial(
    rows_of,
    experiment="mlp/eager",
    patterns=("ProfilerStep*", "mlp_fwd", "aten::linear", "aten::matmul", "aten::mm"),
    caption="A forward pass: each row calls the row below",
)
idle_rows = partial(
    rows_of,
    experiment="mlp/eager",
    patterns=("aten::t", "aten::transpose", "aten::as_strided", "aten::view", "aten::reshape", "aten::_unsafe_view"),
    caption="Operators that only change shape and strides",
)
training_rows = partial(
    rows_of,
    experiment="trace_rows/train",
    patterns=("autograd::engine*: AddmmBackward0", "AddmmBackward0", "autograd::engine*Accumulate*", "Optimizer*"),
    caption="Rows of the backward pass and of the optimizer",
)


def memory_rows(device: Device) -> Html:
    """The rows that allocate and free the most, over three steps."""
    data = sorted(device["trace_rows/memory"].data["rows"], key=lambda row: -abs(row["self_bytes"]))
    rows: list[Sequence[Cell]] = [
        [code(row["name"], 44), _signed(row["self_bytes"]), _signed(row["bytes"]), row["calls"]] for row in data[:6]
    ]
    return table("Allocated bytes minus freed bytes of each row", ["row", "self", "total", "calls"], rows)


def _signed(bytes_: int) -> str:
    return f"{'-' if bytes_ < 0 else ''}{format_value(abs(bytes_), 'bytes')}"
