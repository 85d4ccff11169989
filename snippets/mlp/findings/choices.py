"""The launch configuration that each new compilation gives the fused kernel, and a power of two as width."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from snippets.lab.finding import Device, Figure, Measure, Run, format_value, timing_of_samples
from snippets.lab.finding.claim import at_most, between, claim, equals
from snippets.lab.finding.measure import derived, paired_ratio, unpaired_ratio
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.page import show as show
from snippets.lab.page import timing_bars
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import Step
from snippets.mlp.findings.eager import copy_share, pointwise_us
from snippets.mlp.findings.steps import BF16_BYTES, gate_bytes, launch_size, pointwise


def config_name(elements: int, threads: int) -> str:
    """A launch configuration of the fused kernel: elements of the result for each block, threads of a block."""
    return f"{elements} elements to {threads} threads"


def compiled_anew(device: Device) -> list[tuple[int, int, float]]:
    """Each compilation of `mlp/tuned`, in order: elements and threads of a block of the fused kernel, and its time."""
    data, elements = device["mlp/tuned"].data, gate_bytes(device["mlp/compiled"].step) // BF16_BYTES
    launches = zip(data["grid"], data["block"], data["fused_us"], strict=True)
    return [(math.ceil(elements / math.prod(grid)), math.prod(block), us) for grid, block, us in launches]


def configs(device: Device) -> dict[str, Timing]:
    """The launch configurations that Inductor chose, the fastest kernel first; a sample for each choice."""
    samples: dict[str, list[float]] = {}
    for elements, threads, us in compiled_anew(device):
        samples.setdefault(config_name(elements, threads), []).append(us)
    timings = ((name, timing_of_samples(us)) for name, us in samples.items())
    return dict(sorted(timings, key=lambda pair: pair[1].median_us))


def fast_and_slow(device: Device) -> list[Figure]:
    """The fused kernel's time with the fastest configuration and with the slowest."""
    timings = list(configs(device).values())
    ranges = [(timing.median_us, timing.samples_us) for timing in (timings[0], timings[-1])]
    return [Figure(median, "us", (min(samples), max(samples)), "mlp/tuned") for median, samples in ranges]


def slow_choices(device: Device) -> Figure:
    """The number of compilations that did not choose the fastest."""
    _, *others = configs(device).values()
    return Figure(sum(len(timing.samples_us) for timing in others), origin="mlp/tuned")


def shown_config(device: Device) -> Figure:
    """The configuration that the compiled forward of this page got."""

    def config(step: Step) -> str:
        blocks, threads = launch_size(pointwise(step)[0])
        return config_name(math.ceil(gate_bytes(step) / BF16_BYTES / (blocks or 1)), threads)

    return device["mlp/compiled"].per_step(config)


@claim("O-P17", equals("1024 elements to 128 threads, 512 elements to 256 threads"), scope="this-gpu")
def two_configurations(device: Device) -> Figure:
    """Compiled anew twelve times, the same forward gets one of two launch configurations for its fused kernel:
    1024 elements to a block of 128 threads, or 512 to one of 256."""
    return Figure(", ".join(configs(device)), origin="mlp/tuned, the fastest first")


@claim("O-P18", between(1.35, 1.65), scope="timing")
def slow_over_fast(device: Device) -> Figure:
    """The fused kernel takes about one and a half times as long with the slower configuration."""
    fast, slow = fast_and_slow(device)
    return unpaired_ratio(slow, fast)


@claim("O-P19", between(25, 75), scope="timing")
def slow_share(device: Device) -> Figure:
    """Neither is an exception: at least a quarter of the compilations get the slower one, and at least a quarter
    the faster."""
    slow, of = slow_choices(device).number, len(compiled_anew(device))
    return Figure(100 * slow / of, "%", origin="mlp/tuned", display=f"{slow:g} of {of}")


@claim("O-P20", equals(True), scope="this-gpu")
def has_the_fastest(device: Device) -> Figure:
    """The compiled forward that this page shows got the faster one."""
    chosen, fastest = shown_config(device), next(iter(configs(device)))
    is_fast = chosen.value == fastest
    return replace(chosen, value=is_fast, display=f"{chosen.value}, {'the' if is_fast else 'not the'} fastest")


@claim("O-P21", lambda figure: figure.number > 1.05, scope="timing")
def slow_over_liger(device: Device) -> Figure:
    """With the slower one, Inductor's kernel takes longer than Liger's."""
    return unpaired_ratio(fast_and_slow(device)[1], pointwise_us(device["mlp/liger"]))


@claim("O-P22", at_most(1.1), scope="timing")
def wide_ratio(device: Device) -> Figure:
    """At a hidden size of 4096, a power of two, Liger's kernel takes at most a tenth longer than Inductor's."""
    return unpaired_ratio(pointwise_us(device["mlp/liger_4096"]), pointwise_us(device["mlp/compiled_4096"]))


@claim("O-P23", lambda figure: len({*str(figure.value).split("; ")}) == 1, scope="this-gpu")
def same_footprint(device: Device) -> Figure:
    """Liger's kernel has the same threads, registers and estimated occupancy at 3072 columns and at 4096."""

    def footprint(step: Step) -> str:
        kernel = pointwise(step)[0]
        occupancy = format_value(kernel.occupancy_percent or 0, "%")
        return f"{launch_size(kernel)[1]} threads, {kernel.registers} registers, {occupancy} occupancy"

    narrow, wide = device["mlp/liger"].per_step(footprint), device["mlp/liger_4096"].per_step(footprint)
    display = f"{narrow.value}, at both" if narrow.value == wide.value else ""
    return derived(f"{narrow.value}; {wide.value}", narrow, wide, display=display)


def slow_speedup(device: Device) -> Figure:
    """Eager's time over the compiled forward's with the slowest kernel: its time plus the kernels' difference."""
    eager, fused = (device[name].timing().median_us for name in ("mlp/eager", "mlp/compiled"))
    fast, slow = (figure.number for figure in fast_and_slow(device))
    return Figure(eager / (fused + slow - fast), "x", origin="mlp/eager over mlp/compiled, interleaved, and mlp/tuned")


FIGURES: Mapping[str, Measure] = {
    "slow_us": lambda device: fast_and_slow(device)[1],
    "wide_fused_percent": lambda device: copy_share(device["mlp/compiled_4096"]),
    "wide_liger_percent": lambda device: copy_share(device["mlp/liger_4096"]),
    "wide_compiled_speedup": lambda device: paired_ratio(device["mlp/eager_4096"], device["mlp/compiled_4096"]),
    "wide_liger_speedup": lambda device: paired_ratio(device["mlp/eager_4096"], device["mlp/liger_4096"]),
}


def in_trace(run: Run) -> Timing:
    """Time of the fused kernel in the trace."""
    return run.step_timing(lambda step: pointwise(step)[0].duration_us)


def choices(device: Device) -> Html:
    """The fused kernel's time under each configuration that Inductor chose, beside Liger's; then each compilation."""
    compilations = compiled_anew(device)
    groups = {
        f"{config}: {len(timing.samples_us)} of {len(compilations)}": {"Inductor": timing}
        for config, timing in configs(device).items()
    }
    groups["a row to a block"] = {"Liger": in_trace(device["mlp/liger"])}
    caption = "One forward compiled anew: launch configurations of the fused kernel, and their times"
    chart = timing_bars(device, groups, caption, axis="time of the fused kernel")
    rows: list[Sequence[Cell]] = [
        [number, elements, threads, f"{elements / threads:g}", format_value(us, "us")]
        for number, (elements, threads, us) in enumerate(compilations, 1)
    ]
    head = ["compilation", "elements in a block", "threads in a block", "elements for each thread", "median time"]
    return Html(chart + details("Each compilation", table("Each compilation in order", head, rows)))


def widths(device: Device) -> Html:
    """The two fused kernels at a hidden size that is not a power of two, and at one that is."""
    variants = {"Inductor": "mlp/compiled", "Liger": "mlp/liger"}
    groups = {
        f"{width} columns": {name: in_trace(device[experiment + suffix]) for name, experiment in variants.items()}
        for width, suffix in {3072: "", 4096: "_4096"}.items()
    }
    return timing_bars(device, groups, "The fused kernel at two widths", axis="time in the trace")
