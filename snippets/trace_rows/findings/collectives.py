"""Rows of several GPUs: which row of an all-reduce contains which."""

from __future__ import annotations

from itertools import pairwise

from kinetoscope.trace.events import Span, Step
from snippets.lab.finding import Device, Figure, claim, equals

ROWS = ("c10d::allreduce_", "record_param_comms", "nccl:all_reduce")
"""Rows of the CPU, each of which contains the next."""


@claim("R22", equals(True))
def rows_are_nested(device: Device) -> Figure:
    """In one step, each `c10d::allreduce_` contains a `record_param_comms`, which contains an `nccl:all_reduce`."""
    return device["several_gpus/each_parameter"].per_step(_are_nested)


def _are_nested(step: Step) -> bool:
    rows: list[list[Span]] = [[op for op in step.ops if op.name == name] for name in ROWS]
    return bool(rows[0]) and all(
        len(outer) == len(inner) and all(map(_contains, outer, inner)) for outer, inner in pairwise(rows)
    )


def _contains(outer: Span, inner: Span) -> bool:
    return outer.start_us <= inner.start_us and inner.end_us <= outer.end_us
