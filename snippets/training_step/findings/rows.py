"""The rows of a trace that give a fault away: how often each is in the middle step and how long, before and after."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kinetoscope.html import Cell, Html, table, with_code
from kinetoscope.trace.events import CpuOp, Span, Step
from snippets.lab.finding import Device, format_value
from snippets.training_step.findings.loops import FAULTS


@dataclass(frozen=True)
class Row:
    """Events of a step whose names match."""

    shown: str
    """The name as the page shows it."""
    pattern: str
    """Of the whole name."""
    below: str = ""
    """Only operators right below an operator whose whole name matches this."""
    launched_by: str = ""
    """Only kernels that are launched anywhere below an operator whose whole name matches this."""

    def events(self, step: Step) -> list[Span]:
        """The operators, CUDA calls, kernels and copies of the step in this row, without operators inside other
        operators."""
        spans: Iterable[Span] = (*self._ops(step), *step.calls, *step.activities)
        if self.launched_by:
            spans = (kernel for kernel in step.kernels if kernel.op and _is_below(self.launched_by, kernel.op.chain))
        elif self.below:
            spans = (op for op in self._ops(step) if op.parent and re.fullmatch(self.below, op.parent.name))
        return [span for span in spans if re.fullmatch(self.pattern, span.name)]

    def _ops(self, step: Step) -> list[CpuOp]:
        return [op for op in step.ops if not _is_below(self.pattern, op.chain[:-1])]


def _is_below(pattern: str, chain: Iterable[CpuOp]) -> bool:
    return any(re.fullmatch(pattern, op.name) for op in chain)


def row_of(name: str) -> Row:
    """The row with exactly this name."""
    return Row(f"`{name}`", re.escape(name))


ROWS: Mapping[str, tuple[Row, ...]] = {
    "item": (row_of("cudaStreamSynchronize"),),
    "loader": (Row("`enumerate(DataLoader)#…__next__`", r"enumerate\(DataLoader\)#.*__next__"),),
    "pageable": (row_of("Memcpy HtoD (Pageable -> Device)"), row_of("Memcpy HtoD (Pinned -> Device)")),
    "recompile": (row_of("_compile.compile_inner (dynamo_timed)"),),
    "breaks": (row_of("TorchDynamo Cache Lookup"), Row("`## Call CompiledFxGraph …`", "## Call CompiledFxGraph .*")),
    "layout": tuple(
        Row(f"`aten::clone` below `{name}`", "aten::clone", re.escape(name))
        for name in ("aten::contiguous", "aten::reshape")
    ),
    "optimizer": (
        row_of("Optimizer.step#AdamW.step"),
        Row("kernels below `Optimizer.step#AdamW.step`", ".*", launched_by=re.escape("Optimizer.step#AdamW.step")),
    ),
    "tensor_cores": (
        Row("products with `sgemm`, `simt` or `ffma` in their names", ".*(sgemm|simt|ffma).*"),
        Row("products with `tf32` in their names", ".*tf32.*"),
    ),
    "allocator": (row_of("cudaFree"), row_of("cudaMalloc")),
    "tiny": (Row("`cudaLaunchKernel`, `cuLaunchKernelEx`", "cu(da)?LaunchKernel.*"), row_of("cudaGraphLaunch")),
    "attention": (row_of("aten::bmm"), row_of("aten::softmax")),
    "vocabulary": (
        Row("products with `align1` or `align2` in their names", ".*gemm.*align[12]\\D.*"),
        Row("products of another name", "nvjet.*|(?!.*align[12]\\D).*gemm.*"),
    ),
}
"""Fault -> the rows that its mend removes or shortens, and perhaps a row that takes their place."""


OTHERS: Mapping[str, tuple[str, str]] = {
    "vocabulary": ("training_step/vocabulary_before", "training_step/vocabulary_after")
}
"""Loops that are no fault of `FAULTS`: the experiments before and after the mend."""


def _loops(fault: str) -> tuple[str, str]:
    """The experiments before and after the mend of a fault."""
    return OTHERS[fault] if fault in OTHERS else FAULTS[fault].loops


def found_rows(device: Device, fault: str) -> list[tuple[Row, list[tuple[int, float]]]]:
    """Each row of a fault, with its number of events and their summed microseconds before and after the mend."""
    steps = [device[loop].step for loop in _loops(fault)]
    return [(row, [_counted(row.events(step)) for step in steps]) for row in ROWS[fault]]


def _counted(events: list[Span]) -> tuple[int, float]:
    return len(events), sum(event.duration_us for event in events)


def rows(device: Device, fault: str) -> Html:
    """The rows that give a fault away, before and after its mend."""
    lines: list[list[Cell]] = [
        [with_code(row.shown), *(_number_and_time(*loop) for loop in loops)] for row, loops in found_rows(device, fault)
    ]
    first = ROWS[fault][0].shown.replace("`", "")
    caption = f"Rows of one recorded step, before and after the fix: {first}"
    return table(caption, ["row: count and total time", "before", "after"], lines)


def _number_and_time(count: int, us: float) -> str:
    return f"{count:,} in {format_value(us, 'us')}" if count else "none"
