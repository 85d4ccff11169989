"""The launch configuration that each new compilation gives the fused kernel, and a power of two as width."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Run, format_value, timing_of_samples
from snippets.lab.finding.claim import at_least, at_most, between, claim, equals
from snippets.lab.finding.measure import derived, paired_ratio, ratio_of_pairs, unpaired_ratio
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.page import figure_cell, timing_bars
from snippets.lab.page import show as show
from snippets.lab.recording.schema import NotTimed, Timing
from snippets.lab.trace.events import Step
from snippets.mlp.findings.eager import copy_share, pointwise_us
from snippets.mlp.findings.steps import BF16_BYTES, gate_bytes, launch_size, pointwise

Launch = tuple[int, int]
"""Blocks of the fused kernel, and threads of a block."""


class Compilation(NamedTuple):
    """What one compilation chose, the time of the chosen kernel, and what Inductor itself had measured."""

    launch: Launch
    us: float
    benchmark_us: Mapping[str, float]


def compiled_anew(device: Device, trial: str = "default") -> list[Compilation]:
    """The compilations of a trial of `mlp/tuned`, in order. Raises `NotRecorded` for one that it lacks."""
    data = device["mlp/tuned"].data
    found = data if trial == "default" else data.get("trials", {}).get(trial)
    if found is None:
        raise NotRecorded(f"mlp/tuned has no trial {trial!r}; make record CHAPTER=mlp")
    logs = found.get("benchmark_us", [{}] * len(found["grid"]))
    rows = zip(found["grid"], found["block"], found["fused_us"], logs, strict=True)
    return [Compilation((math.prod(grid), math.prod(block)), us, log) for grid, block, us, log in rows]


def trials(device: Device) -> dict[str, list[Compilation]]:
    """All trials of `mlp/tuned`, by name."""
    names = ("default", *device["mlp/tuned"].data.get("trials", {}))
    return {name: compiled_anew(device, name) for name in names}


def draws(device: Device) -> dict[Launch, Timing]:
    """What Inductor chose by default and with room, the fastest kernel first; a sample for each choice."""
    samples: dict[Launch, list[float]] = {}
    for name, compilations in trials(device).items():
        for each in compilations if name in ("default", "room") else ():
            samples.setdefault(each.launch, []).append(each.us)
    timings = ((launch, timing_of_samples(us)) for launch, us in samples.items())
    return dict(sorted(timings, key=lambda pair: pair[1].median_us))


def config_name(device: Device, launch: Launch) -> str:
    """A launch configuration of the fused kernel: elements of the result for each block, threads of a block."""
    elements = gate_bytes(device["mlp/compiled"].step) / BF16_BYTES
    return f"{math.ceil(elements / (launch[0] or 1))} elements to {launch[1]} threads"


def fast_and_slow(device: Device) -> tuple[Launch, Launch]:
    """The launches of the fastest kernel and of the slowest. Raises `NotTimed` if all compilations chose the same."""
    fast, *others = draws(device)
    if not others:
        raise NotTimed("every compilation of mlp/tuned chose the same configuration")
    return fast, others[-1]


def drawn_us(device: Device, launch: Launch) -> Figure:
    """The fused kernel's time with a launch configuration."""
    timing = draws(device)[launch]
    return Figure(timing.median_us, "us", (min(timing.samples_us), max(timing.samples_us)), "mlp/tuned")


def slow_in(device: Device, trial: str) -> Figure:
    """The number of compilations of a trial that did not get the fastest configuration."""
    fast, compilations = next(iter(draws(device))), compiled_anew(device, trial)
    slow = sum(each.launch != fast for each in compilations)
    return Figure(slow, origin=f"mlp/tuned, {trial}", display=f"{slow} of {len(compilations)}")


def slow_choices(device: Device) -> Figure:
    """The number of compilations that did not choose the fastest."""
    return replace(slow_in(device, "default"), display="")


def shown_launch(device: Device) -> Figure:
    """The configuration that the compiled forward of this page got."""
    return device["mlp/compiled"].per_step(lambda step: config_name(device, launch_size(pointwise(step)[0])))


@claim("O-P17", equals("1024 elements to 128 threads, 512 elements to 256 threads"), scope="this-gpu")
def two_configurations(device: Device) -> Figure:
    """Compiled anew, the same forward gets one of two launch configurations for its fused kernel: 1024 elements to a
    block of 128 threads, or 512 to one of 256."""
    names = ", ".join(config_name(device, launch) for launch in draws(device))
    return Figure(names, origin="mlp/tuned, the fastest first")


@claim("O-P18", between(1.35, 1.65), scope="timing")
def slow_over_fast(device: Device) -> Figure:
    """The fused kernel takes about one and a half times as long with the slower configuration."""
    fast, slow = fast_and_slow(device)
    return unpaired_ratio(drawn_us(device, slow), drawn_us(device, fast))


@claim("O-P19", lambda figure: figure.number >= 25, scope="this-gpu")
def slow_share(device: Device) -> Figure:
    """As in a new process, at least a quarter of the compilations get the slower configuration."""
    slow = slow_in(device, "default")
    return replace(slow, value=100 * slow.number / len(compiled_anew(device)), unit="%")


@claim("O-P24", at_most(49), scope="this-gpu")
def slow_with_room(device: Device) -> Figure:
    """With a gigabyte of room below the peak of allocated memory, most compilations get the faster configuration."""
    slow = slow_in(device, "room")
    return replace(slow, value=100 * slow.number / len(compiled_anew(device, "room")), unit="%")


@claim("O-P5", between(0.9, 1.1), scope="timing")
def fused_over_mul(device: Device) -> Figure:
    """With the faster configuration, the fused kernel takes about as long as eager's multiplication alone: GELU comes
    free."""
    return unpaired_ratio(drawn_us(device, fast_and_slow(device)[0]), pointwise_us(device["mlp/eager"], 1))


@claim("O-P25", equals(True), scope="this-gpu")
def restores_from_the_cpu(device: Device) -> Figure:
    """While it tunes in a new process, Inductor copies the overwritten input back from the CPU's memory again and
    again; with room below the peak it never does."""
    data = device["mlp/tuned"].data
    if "while_tuning" not in data:
        raise NotRecorded("mlp/tuned has no 'while_tuning'; make record CHAPTER=mlp")
    default, room = (
        sum(of["count"] for name, of in data["while_tuning"][trial].items() if "HtoD" in name)
        for trial in ("default", "room")
    )
    return Figure(default >= 10 and not room, origin="mlp/tuned", display=f"{default} copies, with room {room}")


@claim("O-P26", at_least(5), scope="timing")
def benchmark_over_kernel(device: Device) -> Figure:
    """In a new process, the time by which Inductor judges the faster configuration is at least five times the
    kernel's."""
    fast = next(iter(draws(device)))
    return unpaired_ratio(benchmark_us(device, "default", fast), drawn_us(device, fast))


def benchmark_us(device: Device, trial: str, launch: Launch) -> Figure:
    """Inductor's own time for a configuration, from its log. Raises `NotRecorded` without one."""
    warps = f", {launch[1] // 32} warps"
    logs = [each.benchmark_us for each in compiled_anew(device, trial)]
    samples = [us for log in logs for name, us in log.items() if name.endswith(warps)]
    if not samples:
        raise NotRecorded(f"mlp/tuned has no log of {trial!r} for{warps[1:]}; make record CHAPTER=mlp")
    return Figure(statistics.median(samples), "us", (min(samples), max(samples)), f"Inductor's log, {trial}")


@claim("O-P20", equals(False), scope="this-gpu")
def has_the_fastest(device: Device) -> Figure:
    """The compiled forward that this page shows got the slower one."""
    fast = next(iter(draws(device)))
    is_fast = device["mlp/compiled"].per_step(lambda step: launch_size(pointwise(step)[0]) == fast)
    return replace(is_fast, display=f"{shown_launch(device).value}, {'the' if is_fast.value else 'not the'} fastest")


@claim("O-P21", at_least(1.05), scope="timing")
def slow_over_liger(device: Device) -> Figure:
    """With the slower one, Inductor's kernel takes longer than Liger's."""
    return unpaired_ratio(drawn_us(device, fast_and_slow(device)[1]), pointwise_us(device["mlp/liger"]))


def forward_timings(device: Device) -> dict[str, Timing]:
    """Interleaved times of eager's forward, of Liger's, and of the compiled one with the fast and the slow kernel."""
    samples: dict[str, list[float]] = device["mlp/tuned"].data.get("forward_us", {})
    if not samples:
        raise NotRecorded("mlp/tuned has no forwards; make record CHAPTER=mlp")
    of_draws = zip(("compiled, fast draw", "compiled, slow draw"), fast_and_slow(device), strict=True)
    launches = {
        tuple(math.prod(map(int, sizes.split("x"))) for sizes in name.split(", ")): name
        for name in samples
        if name not in ("eager", "Liger")
    }
    names = {"eager": "eager", **{title: launches[launch] for title, launch in of_draws}, "Liger": "Liger"}
    return {title: Timing.from_samples(samples[name]) for title, name in names.items()}


def eager_over(device: Device, variant: str) -> Figure:
    """Eager's time over that of a forward of `mlp/tuned`, interleaved, in pairs."""
    timings = forward_timings(device)
    return ratio_of_pairs(timings["eager"], timings[variant], "mlp/tuned, interleaved, in pairs")


@claim("O-P22", at_least(1.05), scope="timing")
def wide_rate(device: Device) -> Figure:
    """At 4096 columns, a power of two, Liger's kernel reaches a larger share of a copy's rate than at 3072."""
    return unpaired_ratio(copy_share(device["mlp/liger_4096"]), copy_share(device["mlp/liger"]))


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


FIGURES: Mapping[str, Measure] = {
    "fast_us": lambda device: drawn_us(device, fast_and_slow(device)[0]),
    "slow_us": lambda device: drawn_us(device, fast_and_slow(device)[1]),
    "slow_by_default": lambda device: slow_in(device, "default"),
    "fast_speedup": lambda device: eager_over(device, "compiled, fast draw"),
    "slow_speedup": lambda device: eager_over(device, "compiled, slow draw"),
    "benchmark_fast_us": lambda device: benchmark_us(device, "default", fast_and_slow(device)[0]),
    "benchmark_slow_us": lambda device: benchmark_us(device, "default", fast_and_slow(device)[1]),
    "wide_over_narrow": lambda device: unpaired_ratio(
        pointwise_us(device["mlp/liger_4096"]), pointwise_us(device["mlp/liger"])
    ),
    "wide_fused_percent": lambda device: copy_share(device["mlp/compiled_4096"]),
    "wide_liger_percent": lambda device: copy_share(device["mlp/liger_4096"]),
    "wide_compiled_speedup": lambda device: paired_ratio(device["mlp/eager_4096"], device["mlp/compiled_4096"]),
    "wide_liger_speedup": lambda device: paired_ratio(device["mlp/eager_4096"], device["mlp/liger_4096"]),
}


def in_trace(run: Run) -> Timing:
    """Time of the fused kernel in the trace."""
    return run.step_timing(lambda step: pointwise(step)[0].duration_us)


def choices(device: Device) -> Html:
    """The fused kernel's time under each configuration that Inductor chose, beside Liger's; then each trial."""
    counted = [each.launch for name, of in trials(device).items() if name in ("default", "room") for each in of]
    groups = {
        f"{config_name(device, launch)}: {counted.count(launch)} of {len(counted)}": {"Inductor": timing}
        for launch, timing in draws(device).items()
    }
    groups["a row to a block"] = {"Liger": in_trace(device["mlp/liger"])}
    caption = "One forward compiled anew: launch configurations of the fused kernel, and their times"
    chart = timing_bars(device, groups, caption, axis="time of the fused kernel")
    rows: list[Sequence[Cell]] = [
        [name, number, config_name(device, each.launch), format_value(each.us, "us"), _log_text(each)]
        for name, compilations in trials(device).items()
        for number, each in enumerate(compilations, 1)
    ]
    head = ["trial", "compilation", "configuration", "median time", "what Inductor measured"]
    return Html(chart + details("Each compilation", table("Each compilation in order", head, rows)))


def _log_text(compilation: Compilation) -> str:
    logged = (f"{name}: {format_value(us, 'us')}" for name, us in compilation.benchmark_us.items())
    return "; ".join(logged) or "not recorded"


def conditions(device: Device) -> Html:
    """How often each trial got the slower configuration, its kernel's time, and Inductor's own time for both."""
    launches = tuple(draws(device))
    titles = {"default": "as in a new process", "room": "a gigabyte of room below the peak"}
    rows: list[Sequence[Cell]] = []
    for name, compilations in trials(device).items():
        us = timing_of_samples([each.us for each in compilations])
        cells = [figure_cell(Figure.from_timing(us)), *(_benchmark_cell(device, name, launch) for launch in launches)]
        rows.append([titles.get(name, name), slow_in(device, name).text, *cells])
    head = ["trial", "not the fastest", "fused kernel", *(f"Inductor's time, {each[1]} threads" for each in launches)]
    return table("Compiled under several conditions", head, rows)


def _benchmark_cell(device: Device, trial: str, launch: Launch) -> Cell:
    try:
        return figure_cell(benchmark_us(device, trial, launch))
    except NotRecorded:
        return None


def forwards(device: Device) -> Html:
    """Whole forwards, with both configurations."""
    groups = {name: {"GPU, interleaved": timing} for name, timing in forward_timings(device).items()}
    return timing_bars(device, groups, "One forward with each configuration", axis="time of one forward")


def widths(device: Device) -> Html:
    """The two fused kernels at a hidden size that is not a power of two, and at one that is."""
    variants = {"Inductor": "mlp/compiled", "Liger": "mlp/liger"}
    groups = {
        f"{width} columns": {name: in_trace(device[experiment + suffix]) for name, experiment in variants.items()}
        for width, suffix in {3072: "", 4096: "_4096"}.items()
    }
    return timing_bars(device, groups, "The fused kernel at two widths", axis="time in the trace")
