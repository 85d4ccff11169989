"""What the chapter attention shows and claims of one shape: how fast each way is, and what it costs CPU and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snippets.attention.findings.measures import (
    ONE_KERNEL,
    WAYS,
    Measure,
    one_of,
    own_claim,
    paired,
    series_claim,
    timings,
    within,
)
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.quantities import figure, point
from snippets.lab.html import Cell, Html, table
from snippets.lab.page.tables import figure_cell
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording

SERIES_GPU_US = {"in place": 1955.0, "math": 7239.0, "efficient": 277.9, "flash": 146.8, "cuDNN": 186.3}
"""Part 3's GPU time of a forward on its A100, by backend."""
SERIES_CPU_US = {"efficient": 117.0, "flash": 138.0, "cuDNN": 214.0}
"""Part 3's CPU time of a forward, under the profiler."""
EIGHT = {heading: experiment for heading, experiment in WAYS.items() if heading != "auto"}
"""What runs, without the choice between them."""
NAMED = {heading: WAYS[heading] for heading in SERIES_CPU_US}


def ordered(times_us: Mapping[str, float], origin: str) -> Figure:
    """Names by their times, the fastest first; said with the times."""
    names = sorted(times_us, key=times_us.__getitem__)
    said = ", ".join(f"{name} {format_value(times_us[name], 'us')}" for name in names)
    return Figure(", ".join(names), origin=origin, said=said)


def order_of(experiments: Mapping[str, str], kind: str = "warm") -> Measure:
    """A measure: headings by the median of a timing, the fastest first; `kind` is a field of `Timings`."""

    def measure(device: str) -> Figure:
        times = {heading: getattr(timings(one, device), kind).median_us for heading, one in experiments.items()}
        return ordered(times, f"{kind} medians, in turns")

    return measure


def _over_a100(heading: str, device: str) -> float:
    """How many times as fast as the series' A100."""
    return SERIES_GPU_US[heading] / timings(WAYS[heading], device).warm.median_us


def _cudnn_gain(device: str) -> Figure:
    gains = [_over_a100(heading, device) for heading in ("cuDNN", "flash")]
    return Figure(gains[0] / gains[1], "x", origin="the series' times over warm medians, cuDNN's over flash's")


def peak_ratio(upper: str, lower: str) -> Measure:
    """A measure: peak memory of one experiment over that of another."""

    def measure(device: str) -> Figure:
        a, b = (point(load_recording(name, device)).peak_memory_bytes for name in (upper, lower))
        return Figure(a / b, "x", origin=f"peak memory, {upper} over {lower}")

    return measure


def _fused_peak(device: str) -> Figure:
    """Highest peak of the fused ways over the bytes of the result, a quarter of what has to be moved."""
    points = [point(load_recording(WAYS[heading], device)) for heading in ONE_KERNEL]
    ratios = [4 * at.peak_memory_bytes / at.bytes for at in points]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "peak memory over the bytes of the result")


def gpu_times() -> Html:
    """Each way's forward on the GPU beside the series' A100, and the memory that it needs meanwhile."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for heading, experiment in WAYS.items():
        a100 = SERIES_GPU_US.get(heading)
        quantities = ("warm_us", "cold_us", "launched_us", "peak_memory_bytes")
        shown = [figure(f"{experiment.replace('/', '.')}.{one}", device).text for one in quantities]
        ratio = format_value(_over_a100(heading, device), "x") if a100 else None
        rows.append([heading, format_value(a100, "us") if a100 else None, shown[0], ratio, *shown[1:]])
    head = ["", "series, A100", "warm", "times as fast", "cold", "from Python", "peak memory"]
    return table("One forward, nine ways: GPU time, time from Python, memory", head, rows)


def cpu_times() -> Html:
    """For how long a forward keeps the CPU busy: under the profiler, as the series has it, and without."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for heading, experiment in WAYS.items():
        series = SERIES_CPU_US.get(heading)
        profiled, enqueue = (
            figure(f"{experiment.replace('/', '.')}.{one}", device) for one in ("cpu_us", "enqueue_us")
        )
        rows.append([heading, format_value(series, "us") if series else None, profiled.text, figure_cell(enqueue)])
    return table("The CPU's part of a forward", ["", "series, profiled", "profiled", "without the profiler"], rows)


CLAIMS: tuple[Claim, ...] = (
    series_claim(
        "A4",
        "The math backend takes 3.7 times as long as naive attention with its mask in place, give or take a tenth.",
        paired(WAYS["math"], WAYS["in place"]),
        within(3.33, 4.07),
        "7.239 against 1.955 ms, 3.7x",
        scope="timing",
        differs="Math multiplies in float32, where by the data sheets this GPU is over three times as fast as an A100. "
        "In place mostly moves scores, and memory is little more than twice as fast. So math gained more.",
    ),
    series_claim(
        "A11",
        "On the GPU flash is the fastest backend, then cuDNN, then efficient.",
        order_of(NAMED),
        one_of("flash, cuDNN, efficient"),
        "GPU: flash 146.8, cuDNN 186.3, efficient 277.9 µs; CPU: efficient 117, flash 138, cuDNN 214 µs",
        scope="timing",
        differs="cuDNN brings a kernel written for Hopper, as its name says (sm90, wgmma). PyTorch's flash is "
        "FlashAttention 2, and its efficient kernel says sm80: both were written for the A100's generation.",
    ),
    own_claim(
        "O-A30",
        "On the CPU the order is the series': efficient takes least, then flash, then cuDNN.",
        order_of(NAMED, "enqueue"),
        one_of("efficient, flash, cuDNN"),
        scope="timing",
    ),
    own_claim(
        "O-A31",
        "From the series' A100 to this GPU, cuDNN gains about twice as much as flash.",
        _cudnn_gain,
        within(1.8, 2.25),
        scope="timing",
    ),
    own_claim(
        "O-A32",
        "All eight, fastest first: cuDNN, Flex, flash, efficient, compiled, in place, naive, math.",
        order_of(EIGHT),
        one_of("cuDNN, Flex, flash, efficient, compiled, in place, naive, math"),
        scope="timing",
    ),
    own_claim(
        "O-A33",
        "A call that names cuDNN keeps the CPU busy at least a quarter longer than one that lets PyTorch pick it.",
        paired(WAYS["cuDNN"], WAYS["auto"], "enqueue"),
        within(1.25, 2.6),
        scope="timing",
    ),
    own_claim(
        "O-A34",
        "The peak of a fused way is its result and at most a tenth more.",
        _fused_peak,
        within(1, 1.1),
        scope="this-gpu",
    ),
)


def _us(heading: str) -> Measure:
    return lambda device: figure(f"{WAYS[heading].replace('/', '.')}.warm_us", device)


FIGURES: Mapping[str, Measure] = {
    "time_order": lambda device: Figure(order_of(EIGHT)(device).value, origin="warm medians, in turns"),
    "time_naive": _us("naive"),
    "time_cudnn": _us("cuDNN"),
    "time_naive_to_cudnn": paired(WAYS["naive"], WAYS["cuDNN"]),
    "time_cudnn_gain": lambda device: Figure(_over_a100("cuDNN", device), "x", origin="the series' time over ours"),
    "time_flash_gain": lambda device: Figure(_over_a100("flash", device), "x", origin="the series' time over ours"),
    "time_naming": paired(WAYS["cuDNN"], WAYS["auto"], "enqueue"),
    "time_peak_ratio": peak_ratio(WAYS["naive"], WAYS["flash"]),
}
"""The chapter's own numbers of this question, `#!fig attention.<name>`."""
