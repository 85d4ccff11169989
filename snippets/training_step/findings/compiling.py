"""The compiler's cost for a loop: lengths that recompile, graphs that break, launch configurations that are timed."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.units import format_value
from snippets.lab.finding import (
    Device,
    Figure,
    NotTimed,
    TraceError,
    at_least,
    between,
    claim,
    equals,
    ratio_of_pairs,
    timing_of_samples,
)
from snippets.lab.page import show as show
from snippets.lab.recording.schema import Timing
from snippets.training_step.findings.loops import FAULTS

CHAPTER = "training_step"
VARIANTS: Mapping[str, str] = {"before": "dynamic=False", "after": "mark_dynamic", "padded": "padded to one length"}
RECOMPILE_LIMIT = 8
"""Of torch._dynamo.config: graphs for one function, after which it stays eager."""


def _lengths(device: Device, variant: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = device[f"{CHAPTER}/lengths"].data[variant]
    return found


@claim("TS63", equals(RECOMPILE_LIMIT))
def graphs_before(device: Device) -> Figure:
    """With dynamic=False, Dynamo compiles eight graphs and then compiles no more graphs."""
    return Figure(int(max(_lengths(device, "before")["graphs"])), origin=device[f"{CHAPTER}/lengths"].origin)


@claim("TS64", equals(1))
def graphs_after(device: Device) -> Figure:
    """With mark_dynamic, Dynamo compiles one graph for all lengths."""
    return Figure(int(max(_lengths(device, "after")["graphs"])), origin=device[f"{CHAPTER}/lengths"].origin)


@claim("TS65", at_least(1))
def limit_warnings(device: Device) -> Figure:
    """When Dynamo stops compiling new graphs, a warning names recompile_limit."""
    lines = device[f"{CHAPTER}/lengths"].data["before"]["warnings"]
    return Figure(sum("recompile_limit" in line for line in lines), origin=device[f"{CHAPTER}/lengths"].origin)


def _compiles(found: Mapping[str, list[float]]) -> list[bool]:
    """Whether each iteration compiles."""
    return [after > before for before, after in itertools.pairwise([0, *found["graphs"]])]


def _times_us(device: Device, variant: str, compiling: bool) -> list[float]:
    """The iterations that compile, or those that don't, in order."""
    found = _lengths(device, variant)
    return [us for us, compiles in zip(found["us"], _compiles(found), strict=True) if compiles == compiling]


def _median_us(device: Device, variant: str, compiling: bool) -> Figure:
    """The median iteration that compiles, or that does not, with quartiles."""
    timing = timing_of_samples(_times_us(device, variant, compiling))
    return Figure.from_timing(timing, f"{device[f'{CHAPTER}/lengths'].origin}, {variant}")


def _eager(device: Device, variant: str) -> Timing:
    """The iterations of lengths that have no graph in `before`, without the first iteration of each length.

    Raises `NotTimed` where each length has a graph.
    """
    before, times_us = _lengths(device, "before"), _lengths(device, variant)["us"]
    lengths = before["length"]
    with_graph = {length for length, compiles in zip(lengths, _compiles(before), strict=True) if compiles}
    chosen = [
        us
        for index, (length, us) in enumerate(zip(lengths, times_us, strict=True))
        if length not in with_graph and length in lengths[:index]
    ]
    if not chosen:
        raise NotTimed(f"{device[f'{CHAPTER}/lengths'].id}: Dynamo compiled each length")
    return timing_of_samples(chosen)


@claim("TS66", between(0.8, 1.25), scope="timing")
def eager_in_silence(device: Device) -> Figure:
    """After the first iteration at a sequence length, an iteration without a graph takes as long as an iteration with
    mark_dynamic, within a quarter."""
    eager, compiled = (_eager(device, variant) for variant in ("before", "after"))
    return ratio_of_pairs(eager, compiled, f"{device[f'{CHAPTER}/lengths'].origin}, in pairs")


@claim("TS67", at_least(0), scope="timing")
def recompile_unused(device: Device) -> Figure:
    """Without the profiler, compiling another graph of the model takes at most as long as the ceiling of the rule
    recompiles."""
    after = _median_us(device, "after", compiling=False)
    most_us = FAULTS["recompile"].ceiling(device).number + after.number
    # Without the first graph, which also loads the compiler; the trace shows a later one
    left_us = [most_us - us for us in _times_us(device, "before", compiling=True)[1:]]
    return Figure(statistics.median(left_us), "us", (min(left_us), max(left_us)), after.origin)


def lengths(device: Device) -> Html:
    """Iterations of varying length, compiled three ways."""
    rows: list[list[Cell]] = []
    for variant, name in VARIANTS.items():
        found = _lengths(device, variant)
        rows.append(
            [
                name,
                f"{int(max(found['graphs']))}",
                format_value(math.fsum(found["us"]), "us"),
                format_value(_median_us(device, variant, compiling=True).number, "us"),
                format_value(_median_us(device, variant, compiling=False).number, "us"),
            ]
        )
    count = len(_lengths(device, "before")["us"])
    head = ["loop", "graphs", f"all {count} iterations", "iteration that compiles", "iteration that doesn't compile"]
    return table("Times of a loop whose batches vary in length", head, rows)


def _breaks(device: Device, variant: str) -> dict[str, Any]:
    found: dict[str, Any] = device[f"{CHAPTER}/graph_breaks"].data[variant]
    return found


@claim("TS73", equals(True))
def graphs_of_breaks(device: Device) -> Figure:
    """With a check that breaks the graph in each block, Dynamo makes at least two graphs. Without the check, Dynamo
    makes one graph."""
    graphs = [int(_breaks(device, variant)["graphs"]) for variant in ("before", "after")]
    display = f"{graphs[0]} graphs, then {graphs[1]}"
    return Figure(graphs[0] >= 2 and graphs[1] == 1, origin=device[f"{CHAPTER}/graph_breaks"].origin, display=display)


def breaks(device: Device) -> Html:
    """Dynamo's graphs of a model with a check that breaks the graph, and without it."""
    rows: list[list[Cell]] = []
    for variant, name in (("before", "with a check in each block"), ("after", "without the check")):
        found = _breaks(device, variant)
        reasons = "; ".join(reason.splitlines()[0] for reason in found["breaks"])
        rows.append([name, f"{found['graphs']}", reasons or None])
    return table("A model with and without graph breaks", ["model", "graphs", "Dynamo's reason for the break"], rows)


def _iterations(device: Device) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = device[f"{CHAPTER}/tuning"].data["steps"]
    return found


def _later(device: Device, what: str) -> list[float]:
    """A number of each iteration but the first."""
    return [iteration[what] for iteration in _iterations(device)[1:]]


def tuning_kernels(device: Device) -> Figure:
    """Kernels of the first iteration of a compiled loop, in which launch configurations are timed."""
    return Figure(_iterations(device)[0]["kernels"], origin=f"{device[f'{CHAPTER}/tuning'].origin}, first iteration")


def tuned_kernels(device: Device) -> Figure:
    """Kernels of each later iteration.

    Raises `TraceError` if they differ in their number.
    """
    run = device[f"{CHAPTER}/tuning"]
    counts = set(_later(device, "kernels"))
    if len(counts) != 1:
        raise TraceError(f"{run.id} on {device.name} has iterations of {sorted(counts)} kernels")
    return Figure(counts.pop(), origin=f"{run.origin}, each later iteration")


@claim("TS76", at_least(95))
def tuning_share(device: Device) -> Figure:
    """In the first iteration of a compiled loop, at least 95 % of kernels run only to time launch configurations."""
    first, later = tuning_kernels(device), tuned_kernels(device)
    return Figure(100 * (1 - later.number / first.number), "%", origin=first.origin)


@claim("TS77", at_least(10), scope="timing")
def tuning_busy(device: Device) -> Figure:
    """In the first iteration of a compiled loop, the GPU works at least ten times as long as in a later
    iteration."""
    first, later = _iterations(device)[0]["busy_us"], _later(device, "busy_us")
    origin = f"{device[f'{CHAPTER}/tuning'].origin}, first over later"
    return Figure(first / statistics.median(later), "x", (first / max(later), first / min(later)), origin)


def tuning_launches(device: Device) -> Figure:
    """How often the first iteration launches the kernel that it launches most."""
    names = _iterations(device)[0]["names"]
    return Figure(max(names.values()), origin=f"{device[f'{CHAPTER}/tuning'].origin}, first iteration")


def tuning(device: Device) -> Html:
    """The first iterations of a compiled loop, each in a profile of its own."""
    rows: list[list[Cell]] = [
        [
            str(number),
            f"{iteration['kernels']:,}",
            format_value(iteration["busy_us"], "us"),
            format_value(iteration["us"], "us"),
        ]
        for number, iteration in enumerate(_iterations(device)[:3], 1)
    ]
    head = ["iteration", "kernels", "GPU busy time", "wall time"]
    return table("The first iterations of a compiled loop", head, rows)
