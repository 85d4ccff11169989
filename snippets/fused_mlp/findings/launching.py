"""Dependent launch: traced, interleaved and steady times of the same two kernels."""

import statistics
from collections.abc import Callable, Sequence

from snippets.fused_mlp.findings.probes import on_hopper, probe_timing, probed
from snippets.lab.finding import Device, Figure, NotTimed, at_least, between, claim, format_value, unpaired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import figure_cell
from snippets.lab.page import show as show
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import Step

EARLY, LATE, ALONE = "launched early", "one after the other", "first half alone"
LAUNCHED, STARTED, ENDED = range(3)
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
    times = [of(step) for step in probed(on_hopper(device["fused_mlp/launches"]), state, variant)]
    return Figure(statistics.median(times), "us", (min(times), max(times)), f"fused_mlp/launches, {state}: {variant}")


def steady(device: Device, variant: str) -> Figure:
    """The steady time of a variant."""
    samples_us = probed(on_hopper(device["fused_mlp/launches"]), "steady", variant, "samples_us")
    return Figure.from_timing(Timing.from_samples(samples_us), f"fused_mlp/launches, steady: {variant}")


@claim("F39", at_least(1.1), scope="timing")
def shown_over_rested(device: Device) -> Figure:
    """In the trace of our forward, the first kernel takes at least 10 % longer than traced after a rest."""
    shown = device["fused_mlp/fused"].per_step(lambda step: step.kernels[0].duration_us, "us")
    return unpaired_ratio(shown, traced(device, "rested", EARLY, first_us))


@claim("F34", between(0.94, 1.06), scope="timing")
def early_over_late(device: Device) -> Figure:
    """Traced, our first kernel takes as long with the second launched early as one after the other, within 6 %."""
    return unpaired_ratio(*(traced(device, "loaded", variant, first_us) for variant in (EARLY, LATE)))


@claim("F33", at_least(1.1), scope="timing")
def load_over_rest(device: Device) -> Figure:
    """Traced alone, our first kernel takes at least 10 % longer right after a second of load than after a rest."""
    return unpaired_ratio(*(traced(device, state, ALONE, first_us) for state in ("loaded", "rested")))


@claim("F82", at_least(1.1), scope="timing")
def cublas_after_tuning(device: Device) -> Figure:
    """cuBLAS's kernel for the second product takes at least 10 % longer in the trace of the packaged forward, which
    follows tuning, than in eager's."""
    packaged, eager = device["fused_mlp/kernelized"], device["fused_mlp/eager"]
    name = packaged.step.kernels[-1].name
    if name not in (kernel.name for kernel in eager.step.kernels):
        raise NotTimed(f"{packaged.id}: tuning took another kernel than cuBLAS's for the second product")

    def duration_us(step: Step) -> float:
        return sum(kernel.duration_us for kernel in step.kernels if kernel.name == name)

    return unpaired_ratio(packaged.per_step(duration_us, "us"), eager.per_step(duration_us, "us"))


def launches_table(device: Device) -> Html:
    """The same kernels traced after a rest and after a load, interleaved and steady."""
    run = on_hopper(device["fused_mlp/launches"])
    rows: list[Sequence[Cell]] = []
    for state, heading in {"rested": "traced after a rest", "loaded": "traced after a load"}.items():
        for name, of in {"first kernel": first_us, "overlap": overlap_us, "first start to last end": extent_us}.items():
            cells = (figure_cell(traced(device, state, variant, of)) for variant in (EARLY, LATE, ALONE))
            rows.append([f"{heading}: {name}", *cells])
    variants = (EARLY, LATE, ALONE)
    interleaved = (Figure.from_timing(probe_timing(run, "interleaved", variant)) for variant in variants)
    rows.append(["interleaved", *map(figure_cell, interleaved)])
    rows.append(["steady", *(figure_cell(steady(device, variant)) for variant in variants)])
    clocks = (float(probed(run, "steady", variant, "clock_mhz")) for variant in variants)
    rows.append(["clock, steady", *(format_value(clock, "MHz") for clock in clocks)])
    return table("Two kernels, launched early or one after the other, and the first alone", ["", *variants], rows)
