"""The memory of a training step in each phase, by kind of bytes, and its other memory on the GPU."""

from __future__ import annotations

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.units import format_value
from snippets.lab.charts.bar_charts import stacked_bars, with_rest
from snippets.lab.finding import Device, Figure, NotTimed, at_least, at_most, between, claim, equals
from snippets.lab.page import show as show
from snippets.training_memory.findings import held
from snippets.training_memory.findings.charts import memory_timeline
from snippets.training_memory.findings.drawn import HELD, NAMES as KINDS

HIGH = 1.5
"""Memory in use over the sum of weights and activations, from which we call it significantly higher."""
DRAWN = ("fp32", "autocast", "recomputed")
"""Variants of the timeline."""
CACHED, CONTEXT = "reserved, not allocated", "the driver's context and kernels"
CAPTION = "The GPU's memory at the peak of one training step, by variant"


@claim("TM36", between(0.99, 1.01))
def events_add_up(device: Device) -> Figure:
    """In each variant of the step, the allocator's events add up to the peak that the allocator reports, within 1 %."""
    peaks = {
        name: sum(held.held_step(device, name).peak()[1].values()) / held.peak_bytes(device, name)
        for name in held.NAMES
    }
    return held.farthest_from_one(device, peaks)


@claim("TM37", equals("backward"))
def phase_of_peak(device: Device) -> Figure:
    """In each variant of the step, memory peaks in backward."""
    steps = {name: held.held_step(device, name) for name in held.NAMES}
    phases = dict.fromkeys(step.phase_at(step.peak()[0]) for step in steps.values())
    return held.figure(device, "all", ", ".join(phases))


@claim("TM38", at_least(50))
def activations_at_peak(device: Device) -> Figure:
    """In float32, activations are most of the bytes that a step holds at its peak."""
    level = held.held_step(device, "fp32").peak()[1]
    return held.figure(device, "fp32", 100 * level["activations"] / sum(level.values()), "%")


def peak_over_parameters(device: Device) -> Figure:
    """The peak of the float32 step over the bytes of its parameters."""
    return held.ratio(device, "fp32", held.peak_bytes(device, "fp32"), held.variant(device, "fp32")["parameters"])


def _optimizer_needs(device: Device, name: str) -> Figure:
    """Peak bytes of the optimizer's phase beyond the bytes before / the parameters' bytes."""
    peak, before = (held.phase_bytes(device, name, "optimizer", moment) for moment in ("peak", "before"))
    return held.ratio(device, name, peak - before, held.variant(device, name)["parameters"])


@claim("TM42", at_least(0.9))
def foreach_needs(device: Device) -> Figure:
    """AdamW with foreach needs temporaries of at least 0.9 times the bytes of the parameters."""
    return _optimizer_needs(device, "foreach")


@claim("TM43", at_most(0.01))
def fused_needs(device: Device) -> Figure:
    """The fused AdamW needs temporaries of at most 0.01 times the bytes of the parameters."""
    return _optimizer_needs(device, "fp32")


@claim("TM44", at_least(0.9))
def zeroed_gradients_stay(device: Device) -> Figure:
    """If gradients are set to zero instead of None, the peak rises by at least 0.9 times the bytes of the gradients."""
    zeroed, gone = (held.peak_bytes(device, name) for name in ("gradients zeroed", "autocast"))
    return held.ratio(device, "gradients zeroed", zeroed - gone, held.variant(device, "autocast")["gradients"])


def zeroed_gradients_cost(device: Device) -> Figure:
    """Bytes by which the peak is higher with gradients set to zero."""
    zeroed, gone = (held.peak_bytes(device, name) for name in ("gradients zeroed", "autocast"))
    return held.figure(device, "gradients zeroed", zeroed - gone, "bytes")


def _reserved(device: Device, name: str) -> tuple[int, int, int]:
    """Bytes in use on the GPU, bytes that PyTorch has reserved, and the part of them that it can't release."""
    found = held.variant(device, name)
    statistics, (free, everything) = found["statistics"], found["free_of_all"]
    reserved, split = (statistics[f"{each}_bytes.all.current"] for each in ("reserved", "inactive_split"))
    return everything - free, reserved, split


@claim("TM58", at_most(25))
def fragmented_share(device: Device) -> Figure:
    """Memory use far above the sum of weights and activations isn't always fragmentation. In such a float32 step, at
    most a quarter of the reserved memory is in free parts of segments."""
    _, reserved, split = _reserved(device, "fp32")
    if used_over_sum(device).number < HIGH:
        raise NotTimed("the float32 step has less in use: it cannot test the sign")
    return held.figure(device, "fp32", 100 * split / reserved, "%")


def used_over_sum(device: Device) -> Figure:
    """Memory in use over the sum of weights and activations, in the float32 step."""
    used, _, _ = _reserved(device, "fp32")
    whole = held.variant(device, "fp32")["parameters"] + held.saved_bytes(device, "fp32")
    return held.ratio(device, "fp32", used, whole)


def opening(device: Device) -> Html:
    """The kinds of bytes on the GPU at the peak of a step, by variant."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for name, heading in held.NAMES.items():
        _, level = held.held_step(device, name).peak()
        used, reserved, _ = _reserved(device, name)
        parts = [(KINDS[kind], float(level[kind])) for kind in HELD]
        groups[heading] = [*with_rest(float(reserved), parts, CACHED), (CONTEXT, float(used - reserved))]
    looks = {**{KINDS[kind]: kind for kind in HELD}, CACHED: "free", CONTEXT: "call"}
    return stacked_bars(device, groups, CAPTION, unit="bytes", axis="bytes in use", kinds=looks)


def timeline(device: Device) -> Html:
    """One step, allocation by allocation."""
    steps = {held.NAMES[name]: held.held_step(device, name) for name in DRAWN}
    return memory_timeline(device, steps, "The memory of one step after each allocation and release")


def phases(device: Device) -> Html:
    """The peak of each phase, and the bytes before the step."""
    rows: list[list[Cell]] = []
    for name, heading in held.NAMES.items():
        peaks = (format_value(held.phase_bytes(device, name, phase, "peak"), "bytes") for phase in held.PHASES)
        rows.append([heading, format_value(held.phase_bytes(device, name, "forward", "before"), "bytes"), *peaks])
    head = ["variant", "before the step", *(f"peak in {phase}" for phase in held.PHASES)]
    return table("Bytes allocated before one step, and the peak of each phase", head, rows)
