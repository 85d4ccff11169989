"""Dependent launch: traced, interleaved and steady times of the same two kernels."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from snippets.fused_mlp.findings.probes import on_hopper, probe_timing, probed
from snippets.lab.finding import Device, Figure, Measure, at_least, claim, format_value, unpaired_ratio
from snippets.lab.page import figure_cell, show as show
from snippets.lab.recording.schema import Timing

EARLY, LATE, ALONE = "launched early", "one after the other", "first half alone"
LAUNCHED, STARTED, ENDED = range(3)
SETTLED = 2
"""The traced steps before the CPU is so far ahead that a step finds the one before still running."""
Traced = Sequence[Sequence[float]]
"""The kernels of a step, each [launched, started, ended] in microseconds."""


def first_us(step: Traced) -> float:
    """The duration of the first kernel."""
    return step[0][ENDED] - step[0][STARTED]


def extent_us(step: Traced) -> float:
    """From the start of the first kernel to the end of the last."""
    return step[-1][ENDED] - step[0][STARTED]


def overlap_us(step: Traced) -> float:
    """How long the last kernel ran before the first had ended."""
    return max(0.0, step[0][ENDED] - step[-1][STARTED]) if len(step) > 1 else 0.0


def traced(device: Device, state: str, variant: str, of: Callable[[Traced], float]) -> Figure:
    """A time of the traced steps: median, least and largest. `state` is "rested" or "loaded"."""
    steps = probed(on_hopper(device["fused_mlp/launches"]), state, variant)
    times = [of(step) for step in steps[SETTLED:]]
    return Figure(statistics.median(times), "us", (min(times), max(times)), f"fused_mlp/launches, {state}: {variant}")


def steady(device: Device, variant: str) -> Figure:
    """The steady time of a variant."""
    samples_us = probed(on_hopper(device["fused_mlp/launches"]), "steady", variant, "samples_us")
    return Figure.from_timing(Timing.from_samples(samples_us), f"fused_mlp/launches, steady: {variant}")


@claim("F34", at_least(1.05), scope="timing")
def early_over_late(device: Device) -> Figure:
    """In traces after a second of load, our forward's first kernel takes at least 5 % longer with early launch than
    without early launch."""
    return unpaired_ratio(*(traced(device, "loaded", variant, first_us) for variant in (EARLY, LATE)))


@claim("F33", at_least(1.1), scope="timing")
def load_over_rest(device: Device) -> Figure:
    """In traces without early launch, our forward's first kernel takes at least 10 % longer after a second of load than
    after a rest."""
    return unpaired_ratio(*(traced(device, state, LATE, first_us) for state in ("loaded", "rested")))


def launches_table(device: Device) -> Html:
    """The same kernels traced after a rest and after a load, interleaved and steady."""
    run = on_hopper(device["fused_mlp/launches"])
    rows: list[Sequence[Cell]] = []
    for state, heading in {"rested": "traced after a rest", "loaded": "traced after a load"}.items():
        for name, of in {
            "first kernel": first_us,
            "overlap of the two kernels": overlap_us,
            "from the first kernel's start to the last kernel's end": extent_us,
        }.items():
            cells = (figure_cell(traced(device, state, variant, of)) for variant in (EARLY, LATE, ALONE))
            rows.append([f"{name}, {heading}", *cells])
    variants = (EARLY, LATE, ALONE)
    interleaved = (Figure.from_timing(probe_timing(run, "interleaved", variant)) for variant in variants)
    rows.append(["interleaved", *map(figure_cell, interleaved)])
    rows.append(["steady", *(figure_cell(steady(device, variant)) for variant in variants)])
    clocks = (float(probed(run, "steady", variant, "clock_mhz")) for variant in variants)
    rows.append(["steady clock", *(format_value(clock, "MHz") for clock in clocks)])
    caption = "Our forward with early launch and without early launch, and its first kernel alone"
    return table(caption, ["", "with early launch", "without early launch", "first kernel alone"], rows)


FIGURES: Mapping[str, Measure] = {"early_over_late": early_over_late, "load_over_rest": load_over_rest}
"""`#!fig fused_mlp.NAME` on the pages."""
