"""From x to the hidden tensor: two matmuls, GELU and the multiplication, in one kernel and in several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from snippets.fused_mlp.findings.traffic import BF16_BYTES
from snippets.lab.finding import Device, Figure, Measure, Run, at_least, at_most, between, claim, equals
from snippets.lab.finding.measure import paired_ratio, percent, share_of_ceiling
from snippets.lab.finding.quantities import quantity
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import figure_cell
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import LARGE_MATMUL

HALVES = {
    "eager": "fused_mlp/gate_up_eager",
    "bare product": "fused_mlp/gate_up_bare",
    "stacked": "fused_mlp/gate_up_stacked",
    "ping-pong": "fused_mlp/gate_up_fused",
}
"""Ways to compute the hidden tensor; the bare product stops before the activation."""


def over_bare(device: Device, name: str) -> Figure:
    """The time of one way over that of the bare product."""
    return paired_ratio(device[HALVES[name]], device[HALVES["bare product"]])


@claim("F20", at_most(0.95), scope="timing")
def pingpong_over_bare(device: Device) -> Figure:
    """Both products, GELU and the multiplication in one kernel take at most 95 % of the time of cuBLAS's bare product
    of that size."""
    return over_bare(device, "ping-pong")


@claim("F21", at_least(88), scope="timing")
def of_large_matmul(device: Device) -> Figure:
    """It keeps up at least 88 % of the rate of a large matrix product of the same session."""
    return share_of_ceiling(device[HALVES["ping-pong"]], LARGE_MATMUL)


@claim("F22", between(0.93, 1.05), scope="timing")
def stacked_over_bare(device: Device) -> Figure:
    """The stacked kernel alone, without turns, takes about as long as the bare product."""
    return over_bare(device, "stacked")


@claim("F23", equals("eager 3; ping-pong 1"), scope="this-gpu")
def held_tensors(device: Device) -> Figure:
    """The eager half holds three tensors of the hidden size at its peak, the fused one a single one."""
    points = {name: device[HALVES[name]].point for name in ("eager", "ping-pong")}
    size = math.prod(int(points["eager"].parameters[name]) for name in ("tokens", "hidden")) * BF16_BYTES
    counts = (f"{name} {point.peak_memory_bytes / size:g}" for name, point in points.items())
    return Figure("; ".join(counts), origin="peak memory of a call")


def halves(device: Device) -> Html:
    """The first half of the forward, four ways: kernels, times, rates, and shares of two ceilings."""
    bare = device[HALVES["bare product"]]
    columns: Mapping[str, Callable[[Run], Cell]] = {
        "kernels": lambda run: quantity(run, "kernels_per_step").text,
        "kernel time in the trace": lambda run: figure_cell(quantity(run, "kernel_time_us")),
        "timed in turns, warm": lambda run: figure_cell(run.time()),
        "over bare": lambda run: None if run == bare else figure_cell(paired_ratio(run, bare)),
        "rate": lambda run: quantity(run, "flops_per_s").text,
        "of large": lambda run: figure_cell(share_of_ceiling(run, LARGE_MATMUL)),
    }
    compared = variants_table(device, HALVES, "From x to the hidden tensor, four ways", columns)
    note = "Over bare: time over the bare product's. Of large: of the rate of 8192x8192x8192, repeated in this session."
    return Html(f'{compared}<p class="lab-note">{note}</p>')


def variants_table(
    device: Device, variants: Mapping[str, str], caption: str, columns: Mapping[str, Callable[[Run], Cell]]
) -> Html:
    """A row for each variant, heading -> experiment, and a column for each cell of its run."""
    rows = [[name, *(cell(device[variant]) for cell in columns.values())] for name, variant in variants.items()]
    return table(caption, ["", *columns], rows)


FIGURES: Mapping[str, Measure] = {
    "gate_up_of_bare": lambda device: percent(over_bare(device, "ping-pong")),
    "stacked_of_bare": lambda device: percent(over_bare(device, "stacked")),
}
