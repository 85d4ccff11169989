"""From x to the hidden tensor: two matmuls, GELU and the multiplication, in one kernel and in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snippets.fused_mlp.findings.traffic import BF16_BYTES
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    Run,
    at_least,
    at_most,
    between,
    claim,
    equals,
    format_value,
    paired_ratio,
    percent,
    quantity,
    share_of_ceiling,
)
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
    counts = {name: _tensors(device[HALVES[name]]) for name in ("eager", "ping-pong")}
    return Figure("; ".join(f"{name} {count:g}" for name, count in counts.items()), origin="peak memory of a call")


def _tensors(run: Run) -> float:
    """Peak memory of a call in tensors of the hidden size."""
    parameters = run.point.parameters
    return run.point.peak_memory_bytes / (BF16_BYTES * int(parameters["tokens"]) * int(parameters["hidden"]))


def halves(device: Device) -> Html:
    """The first half of the forward, four ways: kernels, times, rates, and shares of two ceilings."""
    rows: list[Sequence[Cell]] = []
    for name, experiment in HALVES.items():
        run = device[experiment]
        rows.append(
            [
                name,
                quantity(run, "kernels_per_step").text,
                figure_cell(quantity(run, "kernel_time_us")),
                figure_cell(run.time()),
                None if name == "bare product" else figure_cell(over_bare(device, name)),
                format_value(run.point.flops / run.timing().median_us * 1e6, "flop/s"),
                figure_cell(share_of_ceiling(run, LARGE_MATMUL)),
            ]
        )
    head = ["", "kernels", "kernel time in the trace", "timed in turns, warm", "over bare", "rate", "of large"]
    compared = table("From x to the hidden tensor, four ways", head, rows)
    note = "Over bare: time over the bare product's. Of large: of the rate of 8192x8192x8192, repeated in this session."
    return Html(f'{compared}<p class="lab-note">{note}</p>')


FIGURES: Mapping[str, Measure] = {
    "gate_up_of_bare": lambda device: percent(over_bare(device, "ping-pong")),
    "stacked_of_bare": lambda device: percent(over_bare(device, "stacked")),
}
