"""The fused kernel in both launch configurations, against Liger's, in whole forwards, and at two widths."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, format_value, timing_of_samples
from snippets.lab.finding.band import at_least, between
from snippets.lab.finding.claim import claim
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.measure import derived, paired_ratio, percent, ratio_of_pairs, smallest, unpaired_ratio
from snippets.lab.finding.mismatch import NOT_SHOWN, reading
from snippets.lab.finding.other_device import H100, H200, measured_on
from snippets.lab.page import show as show, timing_bars
from snippets.lab.recording.schema import Timing
from snippets.mlp.findings.choices import Launch, config_name, drawn_us, fast_and_slow, in_trace
from snippets.mlp.findings.eager import copy_share, moved_bytes, pointwise_us
from snippets.mlp.findings.steps import launch_size, pointwise


def launch_of(device: Device, experiment: str) -> Figure:
    """The configuration that a compiled forward of this page got."""
    run = device[experiment]
    return run.per_step(lambda step: config_name(device, launch_size(pointwise(step)[0]), experiment))


@claim("O-P5", between(0.9, 1.1), scope="timing")
def fast_over_mul(device: Device) -> Figure:
    """With the faster of its two launch configurations, Inductor's fused GeGLU kernel takes about as long as the
    multiplication alone in eager, so GELU adds almost no time."""
    return unpaired_ratio(drawn_us(device, fast_and_slow(device)[0]), pointwise_us(device["mlp/eager"], 1))


def drawn_percent(device: Device, launch: Launch) -> Figure:
    """The rate at which the fused kernel moves its tensors under a launch configuration, in percent of a plain copy."""
    run, us = device["mlp/compiled"], drawn_us(device, launch)
    copying = Figure(moved_bytes(run).number / run.ceiling("copy").rate * 1e6, "us", origin="a copy's rate")
    return percent(unpaired_ratio(copying, us))


@claim("O-P35", at_least(90), scope="timing")
def fast_percent(device: Device) -> Figure:
    """With the faster of its two launch configurations, Inductor's fused GeGLU kernel moves its tensors at no less than
    90 % of a large copy's rate."""
    return drawn_percent(device, fast_and_slow(device)[0])


def choice(device: Device, experiment: str) -> Figure:
    """Which of the two configurations a compiled forward of this page got: `faster` or `slower`."""
    launch = launch_of(device, experiment)
    fast, slow = (config_name(device, each) for each in fast_and_slow(device))
    return derived({fast: "faster", slow: "slower"}.get(launch.text, "neither"), launch)


@claim("O-P21", at_least(1.05), scope="timing")
def slow_over_liger(device: Device) -> Figure:
    """With the slower of its two launch configurations, Inductor's GeGLU kernel takes longer than Liger's kernel."""
    return unpaired_ratio(drawn_us(device, fast_and_slow(device)[1]), pointwise_us(device["mlp/liger"]))


@claim("O-P36", at_least(1.1), scope="timing")
def liger_over_fast(device: Device) -> Figure:
    """Liger's GeGLU kernel takes at least a tenth longer than Inductor's kernel with the faster launch
    configuration."""
    return unpaired_ratio(pointwise_us(device["mlp/liger"]), drawn_us(device, fast_and_slow(device)[0]))


def forward_timings(device: Device) -> dict[str, Timing]:
    """Interleaved times of eager's forward, of Liger's, and of the compiled one with the fast and the slow kernel."""
    samples: dict[str, list[float]] = device["mlp/tuned"].data.get("forward_us", {})
    if not samples:
        raise NotRecorded("mlp/tuned has no forwards; make record CHAPTER=mlp")
    of_draws = zip(("compiled, faster kernel", "compiled, slower kernel"), fast_and_slow(device), strict=True)
    launches = {
        tuple(math.prod(map(int, sizes.split("x"))) for sizes in name.split(", ")): name
        for name in samples
        if name not in ("eager", "Liger")
    }
    names = {"eager": "eager", **{title: launches[launch] for title, launch in of_draws}, "Liger": "Liger"}
    return {title: Timing.from_samples(samples[name]) for title, name in names.items()}


def saved_us(device: Device, variant: str) -> Figure:
    """Eager's time minus that of a forward of `mlp/tuned`, interleaved, in pairs."""
    timings = forward_timings(device)
    pairs = zip(timings["eager"].samples_us, timings[variant].samples_us, strict=True)
    return Figure.from_timing(timing_of_samples([eager - other for eager, other in pairs]))


def eager_over(device: Device, variant: str) -> Figure:
    """Eager's time / that of a forward of `mlp/tuned`, interleaved, in pairs."""
    timings = forward_timings(device)
    return ratio_of_pairs(timings["eager"], timings[variant], "mlp/tuned, interleaved, in pairs")


@claim("O-P38", at_least(1.02), scope="timing")
def kernel_decides(device: Device) -> Figure:
    """In interleaved timing, the compiled MLP takes less time than Liger's MLP if it has Inductor's faster kernel, and
    more time if it has Inductor's slower kernel."""
    of = forward_timings(device)
    pairs = (("Liger", "compiled, faster kernel"), ("compiled, slower kernel", "Liger"))
    return smallest(
        *(ratio_of_pairs(of[upper], of[lower], f"mlp/tuned, {upper} over {lower}") for upper, lower in pairs)
    )


@claim("O-P22", at_least(1.1), scope="timing")
def wide_rate(device: Device) -> Figure:
    """Liger's GeGLU kernel moves its bytes at least a tenth faster at 4096 columns, a power of two, than at 3072
    columns."""
    wide, narrow = device["mlp/liger_4096"], device["mlp/liger"]
    times = unpaired_ratio(pointwise_us(narrow), pointwise_us(wide))
    more = moved_bytes(wide).number / moved_bytes(narrow).number
    low, high = times.bounds
    return replace(times, value=more * times.number, spread=(more * low, more * high))


@claim("O-P23", lambda figure: len({*str(figure.value).split("; ")}) == 1, scope="this-gpu")
def same_footprint(device: Device) -> Figure:
    """Liger's GeGLU kernel has the same number of threads and registers, and the same estimated occupancy, at 3072
    columns and at 4096 columns."""

    def footprint(step: Step) -> str:
        kernel = pointwise(step)[0]
        occupancy = format_value(kernel.occupancy_percent or 0, "%")
        return f"{launch_size(kernel)[1]} threads, {kernel.registers} registers, {occupancy} occupancy"

    narrow, wide = device["mlp/liger"].per_step(footprint), device["mlp/liger_4096"].per_step(footprint)
    display = f"{narrow.value}, at both" if narrow.value == wide.value else ""
    return derived(f"{narrow.value}; {wide.value}", narrow, wide, display=display)


FIGURES: Mapping[str, Measure] = {
    "fast_pointwise_speedup": lambda device: unpaired_ratio(
        device["mlp/eager"].per_step(lambda step: kernel_time_us(pointwise(step)), "us"),
        drawn_us(device, fast_and_slow(device)[0]),
    ),
    "fast_saved_us": lambda device: saved_us(device, "compiled, faster kernel"),
    "fast_speedup": lambda device: eager_over(device, "compiled, faster kernel"),
    "slow_speedup": lambda device: eager_over(device, "compiled, slower kernel"),
    "slow_percent": lambda device: drawn_percent(device, fast_and_slow(device)[1]),
    "shown_choice": lambda device: choice(device, "mlp/compiled"),
    "wide_choice": lambda device: choice(device, "mlp/compiled_4096"),
    "shown_launch": lambda device: launch_of(device, "mlp/compiled"),
    "wide_launch": lambda device: launch_of(device, "mlp/compiled_4096"),
    "h200_liger_percent": measured_on(H200, lambda device: copy_share(device["mlp/liger"])),
    "h100_liger_percent": measured_on(H100, lambda device: copy_share(device["mlp/liger"])),
    "wide_over_narrow": lambda device: unpaired_ratio(
        pointwise_us(device["mlp/liger_4096"]), pointwise_us(device["mlp/liger"])
    ),
    "wide_fused_percent": lambda device: copy_share(device["mlp/compiled_4096"]),
    "wide_liger_percent": lambda device: copy_share(device["mlp/liger_4096"]),
    "wide_compiled_speedup": lambda device: paired_ratio(device["mlp/eager_4096"], device["mlp/compiled_4096"]),
    "wide_liger_speedup": lambda device: paired_ratio(device["mlp/eager_4096"], device["mlp/liger_4096"]),
}


def on_each_device(device: Device) -> Html:
    """The fused kernel under both configurations and Liger's on each recorded device: time, and percent of a copy."""
    rows: list[Sequence[Cell]] = []
    for each in all_devices(device.root):
        try:
            with reading(each) as noted:
                rows.append(_row(noted))
        except NOT_SHOWN:
            if each.is_default:
                raise
    head = [
        "device",
        "multiprocessors",
        "rate of a large copy",
        "Inductor, faster configuration",
        "Inductor, slower configuration",
        "Liger",
    ]
    return table("The fused kernel on each GPU: its time, and its rate in percent of a large copy's rate", head, rows)


def _row(device: Device) -> Sequence[Cell]:
    launches = fast_and_slow(device)
    times = [*(drawn_us(device, launch) for launch in launches), pointwise_us(device["mlp/liger"])]
    shares = [*(drawn_percent(device, launch) for launch in launches), copy_share(device["mlp/liger"])]
    pairs = (f"{us.text}, {share.text}" for us, share in zip(times, shares, strict=True))
    run = device["mlp/compiled"]
    copy = format_value(run.ceiling("copy").rate, "bytes/s")
    return [device.short_name, run.environment.multiprocessors, copy, *pairs]


def forwards(device: Device) -> Html:
    """Whole forwards, with both configurations."""
    groups = {name: {"interleaved": timing} for name, timing in forward_timings(device).items()}
    caption = "Time of one forward, with each launch configuration of the fused kernel"
    return timing_bars(device, groups, caption, axis="time of one forward")


def widths(device: Device) -> Html:
    """The two fused kernels at a hidden size that is a power of two, and at a size that is not."""
    variants = {"Inductor": "mlp/compiled", "Liger": "mlp/liger"}
    groups = {
        f"{width} columns": {name: in_trace(device[experiment + suffix]) for name, experiment in variants.items()}
        for width, suffix in {3072: "", 4096: "_4096"}.items()
    }
    return timing_bars(device, groups, "Time of the fused kernel at 3072 and at 4096 columns", axis="time in the trace")
