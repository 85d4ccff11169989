"""The steps one after the other: what each takes, how fast it reads, and its energy."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.decode_kernels.findings.names import (
    EARLY,
    MAX_AUTOTUNE,
    MODELS,
    ONE,
    PLAIN,
    REDUCE_OVERHEAD,
    steady_of,
    tokens_of,
)
from snippets.decode_kernels.findings.waits import boundaries_us, less, token_us
from snippets.decoder.findings.limits import joules as joules_of, steady_us as steady_time
from snippets.decoder.findings.probed import entry
from snippets.decoder.findings.reading import CONTEXT, floor_of
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Source,
    at_least,
    at_most,
    between,
    claim,
    paired_difference,
    paired_ratio,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import Computation, prediction as prediction, show as show

SMALL_MODEL, LARGE_MODEL = MODELS


def steady_us(device: Device, model: str, variant: str, batch: int = 1) -> Figure:
    """The time of a step alone for seconds."""
    return steady_time(device, steady_of(model, batch), variant)


def model_floor(device: Device, model: str, batch: int = 1) -> Figure:
    """The time of reading the bytes of a model's step."""
    return floor_of(device, MODELS[model][1].read_bytes(batch, CONTEXT))


def read_share(device: Device, model: str, variant: str, batch: int = 1) -> Figure:
    """The rate of reading in a step alone for seconds, in percent of the rate of reading alone."""
    return percent(unpaired_ratio(model_floor(device, model, batch), steady_us(device, model, variant, batch)))


def joules(device: Device, model: str, variant: str, batch: int = 1) -> Figure:
    """The energy of a token: of a step, divided by its texts. Raises `NotTimed` without power readings."""
    step = joules_of(device, steady_of(model, batch), variant)
    low, high = (bound / batch for bound in step.bounds)
    return Figure(step.number / batch, "J", (low, high), step.origin)


def watts(device: Device, experiment: str, variant: str) -> Figure:
    """The power of the GPU during a step alone for seconds. Raises `NotTimed` without power readings."""
    power = entry(device, experiment, "variants", variant, "watts")
    if not power:
        raise NotTimed(f"{experiment} on {device.name} has no power: it was not read")
    return Figure(power, "W", origin=f"{device[experiment].origin}, {variant}")


def over(device: Device, upper: str, lower: str) -> Figure:
    """The ratio of two steps' times for the smaller model, in pairs: they took turns."""
    return paired_ratio(device[tokens_of(upper)], device[tokens_of(lower)], "iteration")


def steady_over(device: Device, model: str, upper: str, lower: str, batch: int = 1) -> Figure:
    """The ratio of two steps' times, each alone for seconds."""
    return unpaired_ratio(*(steady_us(device, model, each, batch) for each in (upper, lower)))


def best(device: Device, model: str, batch: int = 1) -> str:
    """The faster of the early-launch step and the one-kernel step."""
    data = entry(device, steady_of(model, batch), "variants")
    ran = [variant for variant in (EARLY, ONE) if "us" in data.get(variant, {})]
    return min(ran or [EARLY], key=lambda variant: steady_us(device, model, variant, batch).number)


def best_over_compiled(device: Device, model: str, batch: int = 1) -> Figure:
    """The time of the faster step of this page over the time of the reduce-overhead step."""
    return steady_over(device, model, best(device, model, batch), REDUCE_OVERHEAD, batch)


def saved_boundaries(device: Device) -> Figure:
    """The time that early launches save, in percent of the time of all boundaries."""
    saved = paired_difference(device[tokens_of(PLAIN)], device[tokens_of(EARLY)], "iteration")
    return percent(unpaired_ratio(saved, boundaries_us(device, PLAIN)))


def plain_less_boundaries(device: Device) -> Figure:
    """The time of the five-kernel step without its boundaries."""
    return less(token_us(device, PLAIN), boundaries_us(device, PLAIN))


@claim("DK7", at_least(25), scope="timing")
def early_launches_save(device: Device) -> Figure:
    """Early launches save at least a quarter of the time of all boundaries."""
    return saved_boundaries(device)


@claim("DK8", between(0.9, 1.1), scope="timing")
def one_over_early(device: Device) -> Figure:
    """For the smaller model, the one-kernel step takes between 0.9 and 1.1 times as long as the early-launch step.

    We didn't measure a barrier alone, so we don't know how much of the time the barriers take. Another possible reason:
    all parts of the one-kernel step share one number of warps, registers and columns.
    """
    return over(device, ONE, EARLY)


@claim("DK9", at_most(0.9), scope="timing")
def plain_over_autotuned(device: Device) -> Figure:
    """For the smaller model, the five-kernel step takes at least a tenth less time than the max-autotune graph."""
    return over(device, PLAIN, MAX_AUTOTUNE)


@claim("DK10", at_most(0.6), scope="timing")
def small_over_compiled(device: Device) -> Figure:
    """For the smaller model, the faster of the early-launch step and the one-kernel step takes at most six tenths of
    the time of the reduce-overhead step."""
    return best_over_compiled(device, SMALL_MODEL)


@claim("DK11", at_most(0.9), scope="timing")
def large_over_compiled(device: Device) -> Figure:
    """For the larger model, the faster of the early-launch step and the one-kernel step takes at most nine tenths of
    the time of the reduce-overhead step."""
    return best_over_compiled(device, LARGE_MODEL)


@claim("DK12", at_least(75), scope="timing")
def small_share(device: Device) -> Figure:
    """The faster of the early-launch step and the one-kernel step reads 1.1 billion weights at 75 % or more of the
    highest rate of reading."""
    return read_share(device, SMALL_MODEL, best(device, SMALL_MODEL))


@claim("DK13", at_least(92), scope="timing")
def large_share(device: Device) -> Figure:
    """The faster of the early-launch step and the one-kernel step reads 8 billion weights at 92 % or more of the
    highest rate of reading."""
    return read_share(device, LARGE_MODEL, best(device, LARGE_MODEL))


@claim("DK14", at_least(1.1), scope="timing")
def larger_reads_faster(device: Device) -> Figure:
    """In the five-kernel step, the GPU reads the larger model's weights at least 1.1 times as fast as the smaller
    model's weights."""
    return unpaired_ratio(*(read_share(device, model, PLAIN) for model in (LARGE_MODEL, SMALL_MODEL)))


@claim("DK18", at_most(1), scope="timing")
def small_energy(device: Device) -> Figure:
    """For the smaller model, a token of the early-launch step takes no more energy than a token of the reduce-overhead
    step."""
    return unpaired_ratio(*(joules(device, SMALL_MODEL, each) for each in (EARLY, REDUCE_OVERHEAD)))


@claim("DK19", at_most(1), scope="timing")
def large_energy(device: Device) -> Figure:
    """For the larger model, a token of the early-launch step takes no more energy than a token of the reduce-overhead
    step."""
    return unpaired_ratio(*(joules(device, LARGE_MODEL, each) for each in (EARLY, REDUCE_OVERHEAD)))


@claim("DK20", at_least(78), scope="timing", source=Source("Hazy Research", "78 %", device="NVIDIA H100"))
def as_others_report(device: Device) -> Figure:
    """A decode step of about a billion weights as one kernel reads at 78 % or more of the memory bandwidth.

    The source measured another model of 1.2 billion weights with a kernel in CUDA, and doesn't say by which bandwidth
    it divides. We divide by the highest rate of reading that we measured, and didn't run the source's kernel.
    """
    return read_share(device, SMALL_MODEL, ONE)


BARRIERS = Computation(
    "How long would the five-kernel step take without its boundaries?",
    "decode_kernels.plain_less_boundaries",
    "{decode_kernels.plain_us}, less {decode_kernels.own_kernels} boundaries of {decode_kernels.boundary_us}.",
    "Subtract one boundary for each kernel from the time of the five-kernel step.",
    {
        "decode_kernels.floor_us": "your result is the time of reading alone.",
        "decode_kernels.plain_without_boundaries": "your result is a prediction; start from the measured time.",
    },
)


def tokens_per_s(us: Figure, batch: int = 1) -> Figure:
    """Tokens per second of a step for some texts."""
    return Figure(round(1e6 * batch / us.number), origin=us.origin)


FIGURES: Mapping[str, Measure] = {
    "saved_us": lambda device: paired_difference(device[tokens_of(PLAIN)], device[tokens_of(EARLY)], "iteration"),
    "large_early_share": lambda device: read_share(device, LARGE_MODEL, EARLY),
    "small_early_share": lambda device: read_share(device, SMALL_MODEL, EARLY),
    "small_compiled_joules": lambda device: joules(device, SMALL_MODEL, REDUCE_OVERHEAD),
    "small_early_joules": lambda device: joules(device, SMALL_MODEL, EARLY),
    "large_compiled_joules": lambda device: joules(device, LARGE_MODEL, REDUCE_OVERHEAD),
    "large_early_joules": lambda device: joules(device, LARGE_MODEL, EARLY),
    "large_early_watts": lambda device: watts(device, steady_of(LARGE_MODEL), EARLY),
    "large_compiled_watts": lambda device: watts(device, steady_of(LARGE_MODEL), REDUCE_OVERHEAD),
    "large_early_time": lambda device: steady_over(device, LARGE_MODEL, EARLY, REDUCE_OVERHEAD),
    "one_over_plain": lambda device: over(device, ONE, PLAIN),
    "plain_less_boundaries": plain_less_boundaries,
    "power_limit": lambda device: Figure(device[tokens_of(EARLY)].environment.power_limit_w, "W", origin="the driver"),
    "small_early_us": lambda device: steady_us(device, SMALL_MODEL, EARLY),
    "floor_tokens_per_s": lambda device: tokens_per_s(model_floor(device, SMALL_MODEL)),
}
