"""What the collectives of a step send, its products, the sizes of a run on several GPUs, and a step small enough to
draw."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kinetoscope.diagnosis.products import is_product
from kinetoscope.trace.communication import collective_kind, collectives, is_collective
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.intervals import Interval, intersect, interval, length_us
from snippets.lab.finding import Figure, NotTimed, Run

BF16_BYTES = 2
ITEM_BYTES = {"bfloat16": 2, "float": 4}
"""Bytes of a number, by the name that a trace has for its type."""


def changed(figure: Figure, factor: float = 1.0, plus: float = 0.0, unit: str | None = None) -> Figure:
    """A figure times `factor`, plus a number, with its spread."""
    low, high = sorted(factor * bound + plus for bound in figure.bounds)
    return Figure(factor * figure.number + plus, figure.unit if unit is None else unit, (low, high), figure.origin)


def world(run: Run) -> int:
    """The number of GPUs of an experiment."""
    return run.environment.gpus


def parameter(run: Run, name: str) -> int:
    """A parameter of a run's only point."""
    return int(run.point.parameters[name])


def sent_bytes(step: Step) -> float:
    """What a rank sends in its collectives of a step, if each sends as little as it can.

    Raises `NotTimed` if the trace does not tell the size of a collective.
    """
    return sum(map(_sent_bytes, collectives(step)))


def _sent_bytes(kernel: GpuActivity) -> float:
    kind, told = collective_kind(kernel), kernel.collective
    if told is None or not told.elements_in or not told.elements_out or told.type.lower() not in ITEM_BYTES:
        raise NotTimed(f"the trace does not tell the size of {kernel.name}")
    whole = max(told.elements_in, told.elements_out) * ITEM_BYTES[told.type.lower()]
    share = 1 - 1 / (told.group_size or 1)
    return whole * {"allreduce": 2 * share, "allgather": share, "reducescatter": share, "send": 1.0}.get(kind, 0.0)


def products(step: Step) -> tuple[GpuActivity, ...]:
    """The matrix products of a step, in the order of their starts."""
    return tuple(kernel for kernel in step.kernels if is_product(kernel) and not is_collective(kernel))


def share_during(kernel: GpuActivity, times: Sequence[Interval]) -> float:
    """The share of a kernel's time that is in one of these times, which are sorted and disjoint."""
    return length_us(intersect([interval(kernel)], times)) / kernel.duration_us


def without_operators(step: Step) -> Step:
    """The step with annotations, CUDA calls and all work of the GPU: thousands of operators make a page too heavy."""
    drawn: dict[CpuOp | None, CpuOp] = {}
    for op in step.ops:
        if op.is_annotation:
            drawn[op] = msgspec.structs.replace(op, parent=drawn.get(op.parent))
    return msgspec.structs.replace(step, ops=tuple(drawn.values()))
