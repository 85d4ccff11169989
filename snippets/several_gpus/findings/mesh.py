"""A mesh of two by two GPUs: one late rank, and all that wait for it."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Html
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    claim,
    compare_ranks,
    equals,
    paired_difference,
    paired_ratio,
)
from snippets.lab.page import rank_bars, show as show

LATE = 3
"""The rank with more work in the late mesh."""


def late_over_even(device: Device) -> Figure:
    """A step of the mesh with a late rank over a step without."""
    return paired_ratio(device["several_gpus/mesh_late"], device["several_gpus/mesh_even"], "iteration")


@claim("SG65", at_least(1.05), scope="timing")
def late_mesh(device: Device) -> Figure:
    """In a mesh of two by two GPUs, more work on one rank makes the step of all ranks at least 5 % longer."""
    return late_over_even(device)


@claim("SG66", equals(LATE))
def who_is_late(device: Device) -> Figure:
    """In the trace of a mesh with more work on rank 3, the report names rank 3 as late."""
    run = device["several_gpus/mesh_late"]
    late = compare_ranks(run).straggler
    if late is None:
        raise NotTimed(f"{run.id} on {device.name}: no rank is late in its trace")
    return Figure(late.rank, origin=f"{run.origin}, in its trace")


def mesh_ranks(device: Device) -> Html:
    """What each GPU of the mesh does in a step, without and with a late rank."""
    shown = {"the same work on each rank": "several_gpus/mesh_even", "more work on rank 3": "several_gpus/mesh_late"}
    return rank_bars(device, shown, "A step of each rank in a mesh of two by two GPUs")


FIGURES: Mapping[str, Measure] = {
    "mesh_even_us": lambda device: device["several_gpus/mesh_even"].time("iteration"),
    "mesh_late_us": lambda device: device["several_gpus/mesh_late"].time("iteration"),
    "mesh_saved_us": lambda device: paired_difference(
        device["several_gpus/mesh_late"], device["several_gpus/mesh_even"], "iteration"
    ),
}
