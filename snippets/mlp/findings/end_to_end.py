"""What fusion bought: the whole forward three ways, at the article's size and from one token to many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snippets.lab.drawing.bar_charts import cpu_gpu_bars, kernel_bars, timing_bars
from snippets.lab.experiment import Parameters
from snippets.lab.finding import Device, Figure, Measure, Source, at_least, between, claim
from snippets.lab.finding.measure import derived, paired_ratio, point_ratio, ratio_of_kinds, smallest, unpaired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import comparison_table, figure_cell, regimes, roofline, timeline
from snippets.lab.page import show as show
from snippets.lab.trace.queries import kernel_time_us
from snippets.mlp.findings.eager import pointwise_us
from snippets.mlp.findings.steps import VARIANTS, pointwise

SWEEPS = {"eager": "mlp/sweep_eager", "compiled": "mlp/sweep_compiled", "Liger": "mlp/sweep_liger"}
ONE_TOKEN, ONE_SEQUENCE = "[batch=1,seq=1]", "[batch=1,seq=128]"
ARTICLE = "“The Profiling Deep-Dive on nn.Linear Fusion”, an article about Part 2"
SERIES_GEMMS_US, SERIES_FUSED_US = (190.0, 190.0, 170.0), 89.4
"""Part 2's kernel times: gate, up and down; Inductor's fused kernel."""
SIZES = (ONE_TOKEN, ONE_SEQUENCE, *(f"[batch={batch},seq=128]" for batch in (4, 16, 64, 128)))


def times_eager(device: Device, variant: str, kind: str = "interleaved") -> Figure:
    """How many times as fast as eager a variant is."""
    return paired_ratio(device["mlp/eager"], device[VARIANTS[variant]], kind)


def at_size(device: Device, upper: str, lower: str, size: str, kind: str = "from_python") -> Figure:
    """How many times the time of one variant fits into that of another at a size of the sweeps."""
    return paired_ratio(device[SWEEPS[upper] + size], device[SWEEPS[lower] + size], kind)


@claim("O-P11", between(1.2, 1.43), scope="timing", source=Source(ARTICLE, "a 20–30 % wall-time speedup"))
def article_speedup(device: Device) -> Figure:
    """Fusion makes the whole forward 20 to 30 % faster.

    Part 2 says no such thing; it never times a whole forward. Most of the time is in GEMMs that fusion does not touch,
    and the pointwise part shrinks by less than half. Ask what share of the time an optimization can reach before
    believing what it promises.
    """
    return times_eager(device, "compiled")


@claim("O-P12", lambda figure: figure.number > 1.02, scope="timing")
def fusion_pays(device: Device) -> Figure:
    """Fusion does pay on the GPU: the compiled forward and Liger's both take less GPU time than eager's."""
    return smallest(times_eager(device, "compiled"), times_eager(device, "Liger"))


@claim("O-P13", between(60, 70), scope="this-gpu", source=Source(ARTICLE, "60–70 % less kernel launch overhead"))
def launches_saved(device: Device) -> Figure:
    """Fusion leaves 60 to 70 % less launch overhead; counted here: launches.

    One launch of five goes, and the CPU does not even get its time back: the layers that choose the fused kernel cost
    more than the launch it saves. Fusion of pointwise operators saves mostly memory traffic.
    """
    eager, fused = (device[name].per_step(lambda step: len(step.kernels)) for name in ("mlp/eager", "mlp/compiled"))
    return derived(100 * (1 - fused.number / eager.number), eager, fused, unit="%")


@claim("O-P14", at_least(1.1), scope="timing")
def slower_from_python(device: Device) -> Figure:
    """Launched from Python at one token and at one sequence, the compiled forward and Liger's both take at least
    a tenth longer than eager's."""
    sizes, variants = (ONE_TOKEN, ONE_SEQUENCE), ("compiled", "Liger")
    return smallest(*(at_size(device, variant, "eager", size) for size in sizes for variant in variants))


@claim("O-P16", at_least(1.05))
def lower_error(device: Device) -> Figure:
    """Keeping the tensor between in registers also keeps its precision: the compiled forward's error is at least
    a twentieth lower than eager's."""
    return point_ratio(device["mlp/eager"], device["mlp/compiled"], "relative_error")


@claim("O-P15", lambda figure: figure.number > 1.02, scope="timing")
def faster_at_every_size(device: Device) -> Figure:
    """On the GPU alone the compiled forward is faster than eager's at every size from one token up."""
    return smallest(*(at_size(device, "eager", "compiled", size, "interleaved") for size in SIZES))


def pointwise_share(device: Device) -> Figure:
    """The pointwise part of eager's kernel time."""
    return device["mlp/eager"].per_step(
        lambda step: 100 * kernel_time_us(pointwise(step)) / kernel_time_us(step.kernels), "%"
    )


def free_pointwise(device: Device) -> Figure:
    """How many times as fast eager would be without its pointwise part."""
    share = pointwise_share(device)
    return derived(1 / (1 - share.number / 100), share, unit="x")


def series_speedup(_: Device) -> Figure:
    """Eager's pointwise part from the fused kernel's time, by the bytes: five tensors against three."""
    rest = sum(SERIES_GEMMS_US)
    value = (rest + SERIES_FUSED_US * 5 / 3) / (rest + SERIES_FUSED_US)
    return Figure(value, "x", origin="computed from the times that Part 2 gives for its A100, at equal bandwidth")


FIGURES: Mapping[str, Measure] = {
    "pointwise_share": pointwise_share,
    "pointwise_speedup": lambda device: unpaired_ratio(
        device["mlp/eager"].per_step(lambda step: kernel_time_us(pointwise(step)), "us"),
        pointwise_us(device["mlp/compiled"]),
    ),
    "free_pointwise": free_pointwise,
    "series_speedup": series_speedup,
    "compiled_speedup": article_speedup,
    "liger_speedup": lambda device: times_eager(device, "Liger"),
    "compiled_from_python": lambda device: times_eager(device, "compiled", "from_python"),
    "one_token_compiled": lambda device: at_size(device, "compiled", "eager", ONE_TOKEN),
    "one_token_liger": lambda device: at_size(device, "Liger", "eager", ONE_TOKEN),
    "one_token_gpu": lambda device: at_size(device, "eager", "compiled", ONE_TOKEN, "interleaved"),
    "one_token_replayed": lambda device: ratio_of_kinds(device[SWEEPS["compiled"] + ONE_TOKEN], "from_python"),
}


def side_by_side(device: Device) -> Html:
    """All three variants as pictures on one scale."""
    return timeline(device, VARIANTS, "One forward, three ways")


def cpu_and_gpu(device: Device) -> Html:
    """How long GPU and CPU take for a step, by variant."""
    return cpu_gpu_bars(device, VARIANTS, "One forward without the profiler: GPU time and CPU time")


def kernel_times(device: Device) -> Html:
    """GPU time of a step by kernel, by variant."""
    return kernel_bars(device, VARIANTS, "Where the GPU's time goes in one forward")


def bought(device: Device) -> Html:
    """The three variants end to end: time on the GPU, from Python, ratios to eager, memory, error."""
    quantities = {
        "GPU time, warm": "interleaved_us",
        "GPU time, cold cache": "cold_us",
        "from Python, until the GPU is done": "from_python_us",
        "peak memory of a call": "peak_memory_bytes",
        "relative error": "relative_error",
    }
    kinds = {"GPU time, warm": "interleaved", "GPU time, cold cache": "cold", "from Python": "from_python"}
    rows: list[Sequence[Cell]] = [
        [title, *(figure_cell(times_eager(device, variant, kind)) for variant in ("compiled", "Liger"))]
        for title, kind in kinds.items()
    ]
    compared = comparison_table(device, VARIANTS, "One forward, three ways", quantities=quantities)
    return Html(compared + table("How many times as fast as eager (paired timings)", ["", "compiled", "Liger"], rows))


def _tokens(parameters: Parameters) -> int:
    return int(parameters["batch"]) * int(parameters["seq"])


def regimes_by_tokens(device: Device) -> Html:
    """From one token to many: who waits for whom, by variant."""
    return regimes(device, SWEEPS, "One forward, from one token to many", size=_tokens, unit="tokens")


def roofline_by_tokens(device: Device) -> Html:
    """From one token to many: the compiled forward below this GPU's roofs."""
    variants = {}
    for point in device[SWEEPS["compiled"]].points:
        tokens, selector = _tokens(point.parameters), "batch={batch},seq={seq}".format(**point.parameters)
        variants[f"{tokens:,} token{'s' * (tokens != 1)}"] = f"{SWEEPS['compiled']}[{selector}]"
    return roofline(device, variants, "The compiled forward without launches, from one token to many")


def replayed(device: Device) -> Html:
    """One token: how long Python takes for a forward, and how long the replay of a CUDA graph."""
    timings = {name: device[experiment + ONE_TOKEN].timings for name, experiment in SWEEPS.items()}
    groups = {name: {"Python": each.from_python, "CUDA graph": each.interleaved} for name, each in timings.items()}
    return timing_bars(device, groups, "One token: launched from Python, and replayed")
