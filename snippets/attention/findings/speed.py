"""How fast each variant is at one shape, and what it costs CPU and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from snippets.attention.findings.variants import EIGHT, ONE_KERNEL, VARIANTS
from snippets.lab.finding import Device, Figure, Measure, Source, between, claim, equals, format_value, quantity
from snippets.lab.finding.measure import paired_ratio, point_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import figure_cell
from snippets.lab.page import show as show

SERIES_GPU_US = {"in place": 1955.0, "math": 7239.0, "efficient": 277.9, "flash": 146.8, "cuDNN": 186.3}
"""Part 3's GPU time of a forward on its A100, by backend."""
SERIES_CPU_US = {"efficient": 117.0, "flash": 138.0, "cuDNN": 214.0}
"""Part 3's CPU time of a forward, under the profiler."""
NAMED = {heading: VARIANTS[heading] for heading in SERIES_CPU_US}


def fastest_first(device: Device, variants: Mapping[str, str], kind: str = "interleaved") -> Figure:
    """Headings by the median of a timing, displayed with the times; `kind` is a field of `Timings`."""
    times_us = {heading: device[experiment].timing(kind).median_us for heading, experiment in variants.items()}
    names = sorted(times_us, key=times_us.__getitem__)
    text = ", ".join(f"{name} {format_value(times_us[name], 'us')}" for name in names)
    return Figure(", ".join(names), origin=f"{kind} medians", display=text)


def over_a100(device: Device, heading: str) -> Figure:
    """How many times as fast as the series' A100."""
    ratio = SERIES_GPU_US[heading] / device[VARIANTS[heading]].timing().median_us
    return Figure(ratio, "x", origin="the series' time over ours")


@claim("A4", between(3.33, 4.07), scope="timing", source=Source("Part 3", "7.239 against 1.955 ms, 3.7x"))
def math_over_in_place(device: Device) -> Figure:
    """The math backend takes 3.7 times as long as naive attention with its mask in place, give or take a tenth.

    Math multiplies in float32, where by the data sheets this GPU is over three times as fast as an A100. In place
    mostly moves scores, and memory is little more than twice as fast. So math gained more.
    """
    return paired_ratio(device["attention/math"], device["attention/in_place"])


@claim(
    "A11",
    equals("flash, cuDNN, efficient"),
    scope="timing",
    source=Source(
        "Part 3", "GPU: flash 146.8, cuDNN 186.3, efficient 277.9 µs; CPU: efficient 117, flash 138, cuDNN 214 µs"
    ),
)
def backends_in_order(device: Device) -> Figure:
    """On the GPU flash is the fastest backend, then cuDNN, then efficient.

    cuDNN brings a kernel written for Hopper, as its name says (sm90, wgmma). PyTorch's flash is FlashAttention 2, and
    its efficient kernel says sm80: both were written for the A100's generation.
    """
    return fastest_first(device, NAMED)


@claim("O-A30", equals("efficient, flash, cuDNN"), scope="timing")
def backends_on_the_cpu(device: Device) -> Figure:
    """On the CPU the order is the series': efficient takes least, then flash, then cuDNN."""
    return fastest_first(device, NAMED, "enqueue")


@claim("O-A31", between(1.8, 2.25), scope="timing")
def cudnn_gain_over_flash(device: Device) -> Figure:
    """From the series' A100 to this GPU, cuDNN gains about twice as much as flash."""
    cudnn, flash = (over_a100(device, heading).number for heading in ("cuDNN", "flash"))
    return Figure(cudnn / flash, "x", origin="the series' times over interleaved medians, cuDNN's over flash's")


@claim("O-A32", equals("cuDNN, Flex, flash, efficient, compiled, in place, naive, math"), scope="timing")
def eight_in_order(device: Device) -> Figure:
    """All eight, fastest first: cuDNN, Flex, flash, efficient, compiled, in place, naive, math."""
    return fastest_first(device, EIGHT)


@claim("O-A33", between(1.25, 2.6), scope="timing")
def naming_cudnn(device: Device) -> Figure:
    """A call that names cuDNN keeps the CPU busy at least a quarter longer than one that lets PyTorch pick it."""
    return paired_ratio(device["attention/cudnn"], device["attention/auto"], "enqueue")


@claim("O-A34", between(1, 1.1), scope="this-gpu")
def fused_peak(device: Device) -> Figure:
    """The peak of a fused way is its result and at most a tenth more."""
    points = [device[VARIANTS[heading]].point for heading in ONE_KERNEL]
    ratios = [4 * point.peak_memory_bytes / point.bytes for point in points]  # a quarter of the bytes is the result
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "peak memory over the bytes of the result")


def gpu_times(device: Device) -> Html:
    """Each variant's forward on the GPU beside the series' A100, and the memory that it needs meanwhile."""
    rows: list[Sequence[Cell]] = []
    for heading, experiment in VARIANTS.items():
        run, a100 = device[experiment], SERIES_GPU_US.get(heading)
        series = format_value(a100, "us") if a100 else None
        ratio = over_a100(device, heading).text if a100 else None
        interleaved, *others = (
            quantity(run, name).text for name in ("interleaved_us", "cold_us", "from_python_us", "peak_memory_bytes")
        )
        rows.append([heading, series, interleaved, ratio, *others])
    head = ["", "series, A100", "warm", "times as fast", "cold", "from Python", "peak memory"]
    return table("One forward, nine ways: GPU time, time from Python, memory", head, rows)


def cpu_times(device: Device) -> Html:
    """For how long a forward keeps the CPU busy: under the profiler, as the series has it, and without."""
    rows: list[Sequence[Cell]] = []
    for heading, experiment in VARIANTS.items():
        series = SERIES_CPU_US.get(heading)
        profiled, enqueue = (quantity(device[experiment], name) for name in ("cpu_us", "enqueue_us"))
        rows.append([heading, format_value(series, "us") if series else None, profiled.text, figure_cell(enqueue)])
    return table("The CPU's part of a forward", ["", "series, profiled", "profiled", "without the profiler"], rows)


FIGURES: Mapping[str, Measure] = {
    "time_order": lambda device: replace(eight_in_order(device), display=""),
    "time_naive": lambda device: device["attention/naive"].time(),
    "time_cudnn": lambda device: device["attention/cudnn"].time(),
    "time_naive_to_cudnn": lambda device: paired_ratio(device["attention/naive"], device["attention/cudnn"]),
    "time_cudnn_gain": lambda device: over_a100(device, "cuDNN"),
    "time_flash_gain": lambda device: over_a100(device, "flash"),
    "time_naming": naming_cudnn,
    "time_peak_ratio": lambda device: point_ratio(
        device["attention/naive"], device["attention/flash"], "peak_memory_bytes"
    ),
}
