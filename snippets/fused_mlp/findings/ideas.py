"""The gain of each idea behind the kernels, and the choices of tuning."""

import statistics
from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from snippets.fused_mlp.findings.probes import on_hopper, probe_ratio, probe_timing, probed
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, between, claim, format_value, smallest
from snippets.lab.finding.other_device import H100, H200, measured_on
from snippets.lab.page import figure_cell, show as show

STEPS = {
    "gate_up": {
        "hand over early": "ping-pong kernel, six slots",
        "four slots": "ping-pong kernel, four slots",
        "stacked": "stacked kernel",
    },
    "forward": {
        "launched early": "two ping-pong kernels, the second launched early",
        "one after the other": "two ping-pong kernels, one after the other",
        "cuBLAS down": "a ping-pong kernel, then cuBLAS's kernel",
    },
}
"""Part of `steps` -> variant -> its name on the page; the baseline comes first."""
SERIES = "8192x768x3072"
"""The series' shape, as named in `chosen` and `steps`."""
LONG_SUMS = ("4096x2048x8192", "1024x4096x14336")
ORDERED = (SERIES, *LONG_SUMS)
"""Where `steps` times two orders of the tiles."""


def step_ratio(device: Device, part: str, upper: str, lower: str) -> Figure:
    """The time of one variant of `steps` / another's."""
    return probe_ratio(on_hopper(device["fused_mlp/steps"]), part, upper, lower)


def tuned(device: Device, part: str, shape: str = SERIES) -> dict[str, float]:
    """Candidate -> microseconds at a shape, the fastest first; `part` is "gate_up" or "forward"."""
    times: Mapping[str, float] = device["fused_mlp/chosen"].data[shape][part]
    return dict(sorted(times.items(), key=lambda item: item[1]))


def taken(device: Device, part: str) -> str:
    """The candidate that tuning took at the series' shape: the first that is barely slower than the fastest."""
    name: str = probed(device["fused_mlp/chosen"], SERIES, "taken", part)
    return name


FIRST_ROUNDS, LAST_ROUNDS = 3, 10
"""A part of `steps` begins on a GPU that has rested, and ends under load."""


def under_load(device: Device, variant: str) -> Figure:
    """The time of a variant of the first half in the last rounds over that in the first."""
    samples_us = probe_timing(on_hopper(device["fused_mlp/steps"]), "gate_up", variant).samples_us
    first, last = (statistics.median(part) for part in (samples_us[:FIRST_ROUNDS], samples_us[-LAST_ROUNDS:]))
    return Figure(last / first, "x", origin=f"fused_mlp/steps, gate_up: {variant}, last rounds over first")


@claim("F30", at_least(1.08), scope="timing")
def worth_of_ping_pong(device: Device) -> Figure:
    """The stacked kernel takes at least 8 % longer than the ping-pong kernel."""
    return step_ratio(device, "gate_up", "stacked", "hand over early")


@claim("F32", at_most(1.05), scope="timing")
def worth_of_slots(device: Device) -> Figure:
    """The ping-pong kernel takes at most 5 % longer with four slots than with six slots."""
    return step_ratio(device, "gate_up", "four slots", "hand over early")


@claim("F31", between(0.97, 1.03), scope="timing")
def order_at_series(device: Device) -> Figure:
    """At the series' shape, the order of the tiles changes the ping-pong kernel's time by at most 3 %."""
    return step_ratio(device, SERIES, "group 1", "group 8")


@claim("F79", at_least(1.1), scope="timing")
def order_at_long_sums(device: Device) -> Figure:
    """With sums of 2048 numbers and of 4096 numbers, the ping-pong kernel takes at least 10 % longer with groups of one
    tile than with groups of eight tiles."""
    return smallest(*(step_ratio(device, shape, "group 1", "group 8") for shape in LONG_SUMS))


@claim("F36", between(0.95, 1.05), scope="timing")
def worth_of_early_launch(device: Device) -> Figure:
    """Launching the second kernel of our forward early changes the time of our forward by at most 5 %."""
    return step_ratio(device, "forward", "one after the other", "launched early")


@claim("F37", between(0.94, 1.06), scope="timing")
def cublas_down_over_ours(device: Device) -> Figure:
    """Our forward takes as long with cuBLAS's kernel for down as with a ping-pong kernel for down, within 6 %."""
    return step_ratio(device, "forward", "cuBLAS down", "launched early")


def steps_table(device: Device) -> Html:
    """The same work, each variant with one idea changed, timed interleaved."""
    parts = {
        "gate_up": "The kernel for gate, up and the activation, with one idea changed",
        "forward": "The whole forward, with one idea changed",
    }
    orders = {shape: {"group 8": "groups of eight tiles", "group 1": "groups of one tile"} for shape in ORDERED}
    changed = [_changed(device, part, STEPS[part], caption) for part, caption in parts.items()]
    changed += [
        _changed(device, shape, each, f"The ping-pong kernel with two orders of the tiles, {shape}")
        for shape, each in orders.items()
    ]
    return Html("".join(changed))


def _changed(device: Device, part: str, variants: Mapping[str, str], caption: str) -> Html:
    rows: list[Sequence[Cell]] = []
    first = next(iter(variants))
    for name, heading in variants.items():
        time = Figure.from_timing(probe_timing(on_hopper(device["fused_mlp/steps"]), part, name))
        over = None if name == first else figure_cell(step_ratio(device, part, name, first))
        rows.append([heading, figure_cell(time), over])
    return table(caption, ["", "interleaved", "time / time of the first row"], rows)


def tuned_table(device: Device) -> Html:
    """Every candidate at the series' shape, the fastest first."""
    rows: list[Sequence[Cell]] = []
    for part, heading in (("gate_up", "gate and up"), ("forward", "forward")):
        times = tuned(device, part)
        fastest = min(times.values())
        rows += [[heading, name, format_value(us, "us"), format_value(us / fastest, "x")] for name, us in times.items()]
    caption = "Tuning's candidates at the series' shape. The time of a forward includes gate and up"
    return table(
        caption, ["part", "candidate", "median time", "time / time of the fastest candidate"], rows, text_columns=2
    )


FIGURES: Mapping[str, Measure] = {
    "chosen_forward": lambda device: Figure(taken(device, "forward"), origin="fused_mlp/chosen"),
    "h200_worth_of_ping_pong": measured_on(H200, worth_of_ping_pong),
    "h100_worth_of_ping_pong": measured_on(H100, worth_of_ping_pong),
    "h200_worth_of_slots": measured_on(H200, worth_of_slots),
    "h100_worth_of_slots": measured_on(H100, worth_of_slots),
    "h200_worth_of_early_launch": measured_on(H200, worth_of_early_launch),
    "h100_worth_of_early_launch": measured_on(H100, worth_of_early_launch),
    "h100_stacked_under_load": measured_on(H100, lambda device: under_load(device, "stacked")),
    "h100_four_slots_under_load": measured_on(H100, lambda device: under_load(device, "four slots")),
    "h100_six_slots_under_load": measured_on(H100, lambda device: under_load(device, "hand over early")),
    "long_sums": lambda device: step_ratio(device, LONG_SUMS[1], "group 1", "group 8"),
}
