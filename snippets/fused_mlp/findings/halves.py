"""Gate, up and the activation in one kernel: portable, stacked and ping-pong, against the bare product and eager."""

import math
from collections.abc import Mapping

from kinetoscope.html import Html, note
from snippets.fused_mlp.findings.probes import on_hopper
from snippets.fused_mlp.findings.traffic import BF16_BYTES
from snippets.lab.finding import Device, Figure, Measure, Run, quantity, share_of_ceiling, unpaired_ratio
from snippets.lab.finding.band import at_least, at_most, between, equals
from snippets.lab.finding.claim import claim
from snippets.lab.finding.measure import paired_ratio, percent
from snippets.lab.finding.other_device import H100, H200, measured_on
from snippets.lab.page import Columns, figure_cell, show as show, variants_table
from snippets.lab.recording.ceilings import LARGE_MATMUL

HALVES = {
    "eager": "fused_mlp/gate_up_eager",
    "bare product": "fused_mlp/gate_up_bare",
    "portable": "fused_mlp/gate_up_portable",
    "stacked": "fused_mlp/gate_up_stacked",
    "ping-pong": "fused_mlp/gate_up_fused",
}
"""Ways to compute the hidden tensor; the bare matmul stops before the activation."""
LABELS = {
    "bare product": "cuBLAS, without activation",
    "portable": "portable kernel",
    "stacked": "stacked kernel",
    "ping-pong": "ping-pong kernel",
}
"""A way's heading -> its name in the tables, if it differs."""
ONLY_HOPPER = ("stacked", "ping-pong")


def half(device: Device, name: str) -> Run:
    """A way by its heading. Raises `NotTimed` where it does not run."""
    run = device[HALVES[name]]
    return on_hopper(run) if name in ONLY_HOPPER else run


def over_bare(device: Device, name: str, kind: str = "interleaved") -> Figure:
    """The time of one variant / the bare matmul's."""
    return paired_ratio(half(device, name), half(device, "bare product"), kind)


def steady_over_bare(device: Device, name: str) -> Figure:
    """The steady time of one variant / the bare matmul's."""
    return unpaired_ratio(*(half(device, heading).time("steady") for heading in (name, "bare product")))


@claim("F88", at_most(0.78), scope="timing")
def portable_over_eager(device: Device) -> Figure:
    """In interleaved timing, the portable kernel computes gate, up, GELU and the multiplication in at most 78 % of the
    time that eager takes."""
    return paired_ratio(half(device, "portable"), half(device, "eager"))


@claim("F20", at_most(0.92), scope="timing")
def pingpong_over_bare(device: Device) -> Figure:
    """In interleaved timing, the ping-pong kernel computes gate, up, GELU and the multiplication in at most 92 % of the
    time of cuBLAS's product without activation."""
    return over_bare(device, "ping-pong")


@claim("F21", at_least(90), scope="timing")
def of_large_matmul(device: Device) -> Figure:
    """In interleaved timing, the ping-pong kernel reaches at least 90 % of the rate of a large product."""
    return share_of_ceiling(half(device, "ping-pong"), LARGE_MATMUL)


@claim("F22", between(0.95, 1.05), scope="timing")
def stacked_over_bare(device: Device) -> Figure:
    """In interleaved timing, the stacked kernel takes as long as cuBLAS's product without activation, within 5 %."""
    return over_bare(device, "stacked")


@claim("F90", at_most(0.8), scope="timing")
def pingpong_over_portable(device: Device) -> Figure:
    """In interleaved timing, the ping-pong kernel takes at most 0.80 of the portable kernel's time."""
    return paired_ratio(half(device, "ping-pong"), half(device, "portable"))


@claim("F23", equals("eager 3; ping-pong 1"), scope="this-gpu")
def held_tensors(device: Device) -> Figure:
    """To compute the hidden tensor, eager holds three tensors of the hidden tensor's size at its peak, and the
    ping-pong kernel holds one such tensor."""
    points = {name: device[HALVES[name]].point for name in ("eager", "ping-pong")}
    size = math.prod(int(points["eager"].parameters[name]) for name in ("tokens", "hidden")) * BF16_BYTES
    counts = (f"{name} {point.peak_memory_bytes / size:g}" for name, point in points.items())
    return Figure("; ".join(counts), origin="peak memory of a call")


def halves(device: Device, *names: str) -> Html:
    """The first half of the forward: kernels, times, rates, and shares of two ceilings; without names, all ways."""
    runs = {name: half(device, name) for name in names or HALVES}
    bare = half(device, "bare product")
    columns: Columns = {
        "kernels": "kernels_per_step",
        "kernel time in the trace": lambda run: figure_cell(quantity(run, "kernel_time_us")),
        "interleaved": lambda run: figure_cell(run.time()),
        "steady": "steady_us",
        "interleaved / cuBLAS without activation": lambda run: (
            None if run == bare else figure_cell(paired_ratio(run, bare))
        ),
        "rate": "flops_per_s",
        "rate / rate of a large product": lambda run: figure_cell(share_of_ceiling(run, LARGE_MATMUL)),
    }
    variants = {LABELS.get(name, name): run.id for name, run in runs.items()}
    title = f"Gate, up and the activation: times and rates of {'some' if names else 'all'} variants"
    compared = variants_table(device, variants, title, columns=columns)
    return Html(compared + note("The large product has 8192x8192x8192 and is timed interleaved with the variants."))


FIGURES: Mapping[str, Measure] = {
    "portable_of_bare": lambda device: percent(over_bare(device, "portable")),
    "gate_up_of_bare": lambda device: percent(over_bare(device, "ping-pong")),
    "gate_up_of_bare_steady": lambda device: percent(steady_over_bare(device, "ping-pong")),
    "h100_gate_up_of_bare_cold": measured_on(H100, lambda device: percent(over_bare(device, "ping-pong", "cold"))),
    "h200_gate_up_of_bare_cold": measured_on(H200, lambda device: percent(over_bare(device, "ping-pong", "cold"))),
    "stacked_of_bare": lambda device: percent(over_bare(device, "stacked")),
}
