"""Which kinds of kernels each phase of a training step contributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.finding import Device, format_value
from snippets.lab.page import show as show
from snippets.training_memory.findings.casts import casts
from snippets.training_memory.findings.steps import PHASES, in_phase, is_matmul, run_of

PRODUCTS, CASTS, OTHERS = "matrix products", "casts", "other kernels"
OPERATORS: Mapping[str, str] = {
    "aten::mul": "multiplications",
    "aten::gelu": "GELU",
    "aten::gelu_backward": "GELU",
    "aten::native_layer_norm": "norms",
    "aten::native_layer_norm_backward": "norms",
    "aten::add": "sums",
    "aten::add_": "sums",
    "aten::mse_loss": "loss",
    "aten::mean": "loss",
    "aten::mse_loss_backward": "loss",
    "aten::_fused_adamw_": "AdamW",
    "aten::_foreach_add_": "AdamW",
}
"""Operator that launched a kernel -> its kind; gradients have the kind of what they are gradients of."""


def kinds_by_phase(device: Device) -> dict[str, dict[str, list[GpuActivity]]]:
    """The kernels of one step under autocast: kind -> phase -> kernels."""
    run = run_of(device, "autocast")
    step = run.step
    converting = {id(cast.activity) for cast in casts(run, step)}
    found: dict[str, dict[str, list[GpuActivity]]] = {}
    for phase in PHASES:
        for activity in in_phase(step, phase):
            if activity.kind == "kernel":
                kind = CASTS if id(activity) in converting else kind_of(activity)
                found.setdefault(kind, defaultdict(list))[phase].append(activity)
    return found


def kind_of(activity: GpuActivity) -> str:
    """The purpose of a kernel that does more than convert."""
    if is_matmul(activity):
        return PRODUCTS
    return OPERATORS.get(activity.op.name, OTHERS) if activity.op is not None else OTHERS


def kinds_table(device: Device) -> Html:
    """Each kind of kernel: how many each phase launches, and their time on the GPU."""
    found = kinds_by_phase(device)
    order = [kind for kind in dict.fromkeys([PRODUCTS, CASTS, *OPERATORS.values(), OTHERS]) if kind in found]
    rows: list[list[Cell]] = [[kind, *(_cell(found[kind].get(phase, ())) for phase in PHASES)] for kind in order]
    return table("Kernels of one step under autocast by purpose: number and GPU time", ["purpose", *PHASES], rows)


def _cell(kernels: Sequence[GpuActivity]) -> Cell:
    return f"{len(kernels)}: {format_value(kernel_time_us(kernels), 'us')}" if kernels else None
