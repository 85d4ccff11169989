"""What a training step holds: by phase, by kind of bytes, for backward, and with its activations recomputed."""

from __future__ import annotations

from snippets.lab.drawing.bar_charts import stacked_bars
from snippets.lab.drawing.memory import HELD, HeldStep
from snippets.lab.drawing.memory import NAMES as KINDS
from snippets.lab.drawing.memory_charts import memory_timeline
from snippets.lab.drawing.numbers import figure_cell
from snippets.lab.finding import Device, Figure, at_least, at_most, between, claim, equals, timing_of_samples
from snippets.lab.finding.measure import ratio_of_pairs
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import show as show
from snippets.lab.trace.units import format_value
from snippets.training_memory.findings.held import (
    EAGER,
    NAMES,
    PHASES,
    derived,
    derived_bytes,
    figure,
    held_step,
    left_by_forward,
    peak_bytes,
    phase_bytes,
    saved_bytes,
    variant,
)

DRAWN = ("fp32", "autocast", "recomputed")
"""Variants of the timeline."""


def _ratio(device: Device, upper: str, lower: str, *bytes_of: float) -> Figure:
    above, below = bytes_of
    return figure(device, f"{upper} over {lower}", above / below, "x")


def _farthest_from_one(device: Device, ratios: dict[str, float]) -> Figure:
    """The ratio of the variant that is farthest from one."""
    name = max(ratios, key=lambda each: abs(ratios[each] - 1))
    return figure(device, name, ratios[name], "x")


@claim("TM30", between(0.99, 1.01))
def left_as_derived(device: Device) -> Figure:
    """What forward leaves allocated is what shapes say, within 1 %: in fp32, in bf16, under autocast and recomputed."""
    return _farthest_from_one(
        device, {name: left_by_forward(device, name) / derived_bytes(device, name) for name in EAGER}
    )


@claim("TM31", between(0.99, 1.01))
def saved_as_derived(device: Device) -> Figure:
    """What autograd saves is what shapes say, within 1 %: in fp32, in bf16, under autocast and recomputed."""
    return _farthest_from_one(device, {name: saved_bytes(device, name) / derived_bytes(device, name) for name in EAGER})


@claim("TM32", between(0.99, 1.01))
def compiled_left_as_saved(device: Device) -> Figure:
    """Compiled, forward leaves allocated what autograd saves, within 1 %."""
    return _ratio(
        device, "compiled left", "saved", left_by_forward(device, "compiled"), saved_bytes(device, "compiled")
    )


@claim("TM33", at_least(52))
def autocast_keeps(device: Device) -> Figure:
    """Under autocast, forward keeps more than half of the bytes that it keeps in fp32: at least 52 %."""
    ratio = left_by_forward(device, "autocast") / left_by_forward(device, "fp32")
    return figure(device, "autocast over fp32", 100 * ratio, "%")


@claim("TM34", between(0.49, 0.52))
def bfloat16_keeps(device: Device) -> Figure:
    """In bf16 throughout, forward keeps half of the bytes that it keeps in fp32, within two percent of fp32's."""
    return _ratio(device, "bfloat16", "fp32", left_by_forward(device, "bfloat16"), left_by_forward(device, "fp32"))


@claim("TM35", at_most(0.9))
def compiled_keeps(device: Device) -> Figure:
    """Compiled under autocast, forward keeps at least a tenth less than eager under autocast."""
    return _ratio(
        device, "compiled", "autocast", left_by_forward(device, "compiled"), left_by_forward(device, "autocast")
    )


@claim("TM36", between(0.99, 1.01))
def events_add_up(device: Device) -> Figure:
    """The allocator's events add up to the peak that it reports, within 1 %, in each variant."""
    peaks = {name: sum(held_step(device, name).peak()[1].values()) / peak_bytes(device, name) for name in NAMES}
    return _farthest_from_one(device, peaks)


def peak_phase(device: Device, name: str) -> str:
    """The phase in which a variant holds most."""
    step = held_step(device, name)
    return step.phase_at(step.peak()[0])


@claim("TM37", equals("backward"))
def phase_of_peak(device: Device) -> Figure:
    """In fp32, the step holds most in backward."""
    return Figure(peak_phase(device, "fp32"), origin=figure(device, "fp32", 0).origin)


def _at_peak(device: Device, name: str, kind: str) -> int:
    return held_step(device, name).peak()[1][kind]


@claim("TM38", at_least(50))
def activations_at_peak(device: Device) -> Figure:
    """Most of what the fp32 step holds at its peak are activations."""
    share = _at_peak(device, "fp32", "activations") / peak_bytes(device, "fp32")
    return figure(device, "fp32", 100 * share, "%")


def peak_over_parameters(device: Device) -> Figure:
    """The peak of the fp32 step over the bytes of its parameters."""
    return _ratio(device, "fp32 peak", "parameters", peak_bytes(device, "fp32"), variant(device, "fp32")["parameters"])


@claim("TM39", at_most(0.5))
def recomputed_peak(device: Device) -> Figure:
    """Recomputed block by block, the step under autocast holds at most half at its peak."""
    return _ratio(device, "recomputed", "autocast", peak_bytes(device, "recomputed"), peak_bytes(device, "autocast"))


def recomputing_saves(device: Device) -> Figure:
    """Bytes of the peak that recomputing saves."""
    return figure(device, "autocast", peak_bytes(device, "autocast") - peak_bytes(device, "recomputed"))


def _times(device: Device, kind: str) -> Figure:
    run = device["training_memory/recompute"]
    recomputed, kept = (timing_of_samples(run.data[name]["times"][kind]) for name in ("recomputed", "autocast"))
    return ratio_of_pairs(recomputed, kept, f"{run.origin}, {kind}")


@claim("TM40", at_most(1 + 1 / 3), scope="timing")
def recomputing_takes(device: Device) -> Figure:
    """The step that recomputes its activations takes at most a third longer."""
    return _times(device, "interleaved")


@claim("TM41", equals(True))
def same_losses(device: Device) -> Figure:
    """Recomputed, the step has the same losses to the last bit."""
    run = device["training_memory/recompute"]
    losses = [run.data[name]["losses"] for name in ("recomputed", "autocast")]
    return Figure(losses[0] == losses[1], origin=run.origin)


def _optimizer_needs(device: Device, name: str) -> int:
    """Bytes that the optimizer's phase holds at its peak above what was there."""
    return phase_bytes(device, name, "optimizer", "peak") - phase_bytes(device, name, "optimizer", "before")


@claim("TM42", at_least(0.9))
def foreach_needs(device: Device) -> Figure:
    """AdamW for each tensor of a list needs temporaries of at least 0.9 times the parameters' bytes."""
    return _ratio(
        device, "foreach", "parameters", _optimizer_needs(device, "foreach"), variant(device, "foreach")["parameters"]
    )


@claim("TM43", at_most(0.01))
def fused_needs(device: Device) -> Figure:
    """Fused AdamW needs temporaries of at most 0.01 times the parameters' bytes."""
    return _ratio(
        device, "fused", "parameters", _optimizer_needs(device, "fp32"), variant(device, "fp32")["parameters"]
    )


@claim("TM44", between(0.99, 1.01))
def zeroed_gradients_stay(device: Device) -> Figure:
    """With gradients set to zero, not None, the peak is higher by the gradients' bytes, within 1 %."""
    zeroed, gone = (peak_bytes(device, name) for name in ("gradients zeroed", "autocast"))
    gradients = variant(device, "autocast")["gradients"]
    return _ratio(device, "the rise", "gradients", zeroed - gone, gradients)


def half_recomputed(device: Device) -> Figure:
    """The share of the peak's saving that recomputing every other block keeps."""
    saved = peak_bytes(device, "autocast") - peak_bytes(device, "half recomputed")
    return figure(device, "half recomputed", 100 * saved / recomputing_saves(device).number, "%")


@claim("TM45", between(30, 70))
def half_of_the_saving(device: Device) -> Figure:
    """Recomputing every other block saves between 30 and 70 % of what recomputing each one saves."""
    return half_recomputed(device)


def _parts(step: HeldStep) -> list[tuple[str, float]]:
    _, level = step.peak()
    return [(KINDS[kind], float(level[kind])) for kind in HELD]


def opening(device: Device) -> Html:
    """What fills the peak of a step, by variant."""
    groups = {heading: _parts(held_step(device, name)) for name, heading in NAMES.items()}
    looks = {KINDS[kind]: kind for kind in HELD}
    caption = "What one training step holds at its peak"
    return stacked_bars(device, groups, caption, unit="bytes", axis="bytes allocated", kinds=looks)


def timeline(device: Device) -> Html:
    """One step, allocation by allocation."""
    steps = {NAMES[name]: held_step(device, name) for name in DRAWN}
    return memory_timeline(device, steps, "One step, allocation by allocation")


def compiled_timeline(device: Device) -> Html:
    """The compiled step, allocation by allocation."""
    steps = {NAMES[name]: held_step(device, name) for name in ("autocast", "compiled")}
    return memory_timeline(device, steps, "One step under autocast, eager and compiled")


def phases(device: Device) -> Html:
    """The peak of each phase, and what is left between them."""
    rows: list[list[Cell]] = []
    for name, heading in NAMES.items():
        peaks = (format_value(phase_bytes(device, name, phase, "peak"), "bytes") for phase in PHASES)
        rows.append([heading, format_value(phase_bytes(device, name, "forward", "before"), "bytes"), *peaks])
    head = ["step", "before", *(f"peak in {phase}" for phase in PHASES)]
    return table("Bytes allocated by one step, and at most in each phase", head, rows)


def kept(device: Device) -> Html:
    """What forward keeps for backward, by three ways to know it."""
    rows: list[list[Cell]] = []
    for name, heading in NAMES.items():
        by_shapes = format_value(derived_bytes(device, name), "bytes") if name in EAGER else None
        measured = (format_value(of(device, name), "bytes") for of in (left_by_forward, saved_bytes))
        rows.append([heading, *measured, by_shapes])
    head = ["step", "allocated after forward less before", "saved by autograd", "derived from shapes"]
    return table("What forward keeps for backward", head, rows)


def by_shapes(device: Device) -> Html:
    """What keeps how many bytes, by shapes."""
    names = ("fp32", "bfloat16", "autocast")
    columns = [derived(device, name) for name in names]
    rows: list[list[Cell]] = [
        [what, *(format_value(column[what], "bytes") if column[what] else None for column in columns)]
        for what in columns[0]
    ]
    return table("What keeps how many bytes, by shapes", ["", *(NAMES[name] for name in names)], rows)


def recomputing(device: Device) -> Html:
    """What recomputing saves, and what it takes."""
    run = device["training_memory/recompute"]
    rows: list[list[Cell]] = []
    for name in ("autocast", "recomputed"):
        times = run.data[name]["times"]
        cells = (
            figure_cell(Figure.from_timing(timing_of_samples(times[kind]))) for kind in ("interleaved", "from_python")
        )
        sizes = (left_by_forward(device, name), peak_bytes(device, name))
        rows.append([NAMES[name], *(format_value(size, "bytes") for size in sizes), *cells])
    head = ["step", "kept for backward", "peak", "on the GPU", "from Python"]
    return table("A step that keeps its activations, and one that recomputes them", head, rows)
