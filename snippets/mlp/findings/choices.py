"""The launch configuration that each new compilation gives the fused kernel, and why Inductor chooses it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kinetoscope.html import Cell, Html, details, table
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Run, format_value, timing_of_samples
from snippets.lab.finding.band import at_least, between, equals
from snippets.lab.finding.claim import claim
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.page import figure_cell, show as show, timing_bars
from snippets.lab.recording.schema import NotTimed, Timing
from snippets.mlp.findings.steps import BF16_BYTES, gate_bytes, pointwise

Launch = tuple[int, int]
"""Blocks of the fused kernel, and threads of a block."""


class Compilation(NamedTuple):
    """The choice of one compilation, the time of the chosen kernel, and Inductor's own timings."""

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
    """All trials of `mlp/tuned`, by name, the trials without options first."""
    found = device["mlp/tuned"].data.get("trials", {})
    names = ("default", *sorted(found, key=lambda name: name != "room"))
    return {name: compiled_anew(device, name) for name in names}


def draws(device: Device) -> dict[Launch, Timing]:
    """Inductor's choices by default and with room, the fastest kernel first; a sample for each choice."""
    samples: dict[Launch, list[float]] = {}
    for name, compilations in trials(device).items():
        for each in compilations if name in ("default", "room") else ():
            samples.setdefault(each.launch, []).append(each.us)
    timings = ((launch, timing_of_samples(us)) for launch, us in samples.items())
    return dict(sorted(timings, key=lambda pair: pair[1].median_us))


def block_elements(device: Device, launch: Launch, experiment: str = "mlp/compiled") -> int:
    """Elements of the result that each block of a launch computes."""
    return math.ceil(gate_bytes(device[experiment].step) / BF16_BYTES / (launch[0] or 1))


def config_name(device: Device, launch: Launch, experiment: str = "mlp/compiled") -> str:
    """A launch configuration of the fused kernel: elements of the result for each block, threads of a block."""
    return f"{block_elements(device, launch, experiment)} elements for {launch[1]} threads"


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


def chosen(device: Device, trial: str, fastest: bool = True) -> Figure:
    """The compilations of a trial that got the fastest configuration, or that did not, in percent."""
    fast, compilations = next(iter(draws(device))), compiled_anew(device, trial)
    count = sum((each.launch == fast) is fastest for each in compilations)
    of_all = f"{count} of {len(compilations)}"
    return Figure(100 * count / len(compilations), "%", origin=f"mlp/tuned, {trial}", display=of_all)


def most(figure: Figure) -> bool:
    """More than half of all compilations."""
    return figure.number > 50


@claim("O-P17", equals("1024 elements for 128 threads, 512 elements for 256 threads"), scope="this-gpu")
def two_configurations(device: Device) -> Figure:
    """In repeated compilations, the MLP's fused kernel gets one of two launch configurations: blocks of 128 threads for
    1024 elements, or blocks of 256 threads for 512 elements."""
    names = ", ".join(config_name(device, launch) for launch in draws(device))
    return Figure(names, origin="mlp/tuned, the fastest first")


@claim("O-P18", at_least(1.1), scope="timing")
def slow_over_fast(device: Device) -> Figure:
    """Inductor's fused GeGLU kernel takes at least a tenth longer with the slower of its two launch configurations."""
    fast, slow = fast_and_slow(device)
    return unpaired_ratio(drawn_us(device, slow), drawn_us(device, fast))


@claim("O-P19", most, scope="this-gpu")
def slow_share(device: Device) -> Figure:
    """If Inductor tunes as in a new process, most compilations of the MLP get the slower of Inductor's two launch
    configurations."""
    return chosen(device, "default", fastest=False)


@claim("O-P24", most, scope="this-gpu")
def fast_with_room(device: Device) -> Figure:
    """If a gigabyte was allocated and freed before, most compilations of the MLP get the faster of Inductor's two
    launch configurations."""
    return chosen(device, "room")


@claim("O-P34", equals(100), scope="this-gpu")
def fast_unmeasured(device: Device) -> Figure:
    """With autotune_pointwise off, Inductor times no configuration, and every compilation of the MLP gets the faster of
    Inductor's two launch configurations."""
    return chosen(device, "autotune_pointwise=False")


def restores(device: Device, trial: str) -> list[Mapping[str, float]]:
    """The kinds of copies from the CPU's memory while Inductor tunes: count and median microseconds of each."""
    data = device["mlp/tuned"].data
    if "while_tuning" not in data:
        raise NotRecorded("mlp/tuned has no 'while_tuning'; make record CHAPTER=mlp")
    return [of for name, of in data["while_tuning"][trial].items() if "HtoD" in name]


def restore_us(device: Device) -> Figure:
    """The time of one copy from the CPU's memory. Raises `NotTimed` if Inductor makes none."""
    found = restores(device, "default")
    if not found:
        raise NotTimed("nothing was copied from the CPU's memory")
    return Figure(found[0]["median_us"], "us", origin="mlp/tuned, a profile of a first call")


@claim("O-P25", equals(True), scope="this-gpu")
def restores_from_the_cpu(device: Device) -> Figure:
    """While Inductor tunes in a new process, it copies the overwritten input back from the CPU's memory again and
    again. If a gigabyte was allocated and freed before, Inductor never makes this copy."""
    default, room = (sum(of["count"] for of in restores(device, trial)) for trial in ("default", "room"))
    return Figure(default >= 10 and not room, origin="mlp/tuned", display=f"{default} copies, with room {room}")


@claim("O-P26", between(0.95, 1.05), scope="timing")
def benchmark_over_parts(device: Device) -> Figure:
    """In a new process, Inductor's time for the faster configuration is within 5 % of the kernel's time plus the time
    of one copy from the CPU's memory."""
    fast = fast_and_slow(device)[0]
    copy, kernel = restore_us(device), drawn_us(device, fast)
    low, high = (copy.number + us for us in kernel.bounds)
    both = Figure(copy.number + kernel.number, "us", (low, high), f"{copy.origin}; {kernel.origin}")
    return unpaired_ratio(benchmark_us(device, "default", fast), both)


def benchmark_us(device: Device, trial: str, launch: Launch) -> Figure:
    """Inductor's own time for a configuration, from its log. Raises `NotRecorded` without one."""
    name = f"{block_elements(device, launch)} elements, {launch[1] // 32} warps"
    samples = [each.benchmark_us[name] for each in compiled_anew(device, trial) if name in each.benchmark_us]
    if not samples:
        raise NotRecorded(f"mlp/tuned has no log of {trial!r} for {name}; make record CHAPTER=mlp")
    return Figure(statistics.median(samples), "us", (min(samples), max(samples)), f"Inductor's log, {trial}")


FIGURES: Mapping[str, Measure] = {
    "slow_choices": lambda device: Figure(
        int(chosen(device, "default", fastest=False).text.split()[0]), origin="mlp/tuned"
    ),
    "fast_us": lambda device: drawn_us(device, fast_and_slow(device)[0]),
    "slow_us": lambda device: drawn_us(device, fast_and_slow(device)[1]),
    "benchmark_fast_us": lambda device: benchmark_us(device, "default", fast_and_slow(device)[0]),
    "benchmark_slow_us": lambda device: benchmark_us(device, "default", fast_and_slow(device)[1]),
    "room_fast_us": lambda device: benchmark_us(device, "room", fast_and_slow(device)[0]),
    "room_slow_us": lambda device: benchmark_us(device, "room", fast_and_slow(device)[1]),
    "coordinate_slowest_us": lambda device: Figure(
        max(each.us for each in compiled_anew(device, "coordinate_descent_tuning")), "us", origin="mlp/tuned"
    ),
}


def in_trace(run: Run) -> Timing:
    """Time of the fused kernel in the trace."""
    return run.step_timing(lambda step: pointwise(step)[0].duration_us)


def _times_chosen(device: Device, trial: str, launch: Launch) -> str:
    """`5 of 6`: how many compilations of a trial chose a launch configuration."""
    compilations = compiled_anew(device, trial)
    return f"{sum(each.launch == launch for each in compilations)} of {len(compilations)}"


def choices(device: Device) -> Html:
    """The fused kernel's time under each configuration that Inductor chose, and Liger's; then each trial."""
    groups = {
        f"{config_name(device, launch)}: {_times_chosen(device, 'default', launch)}, room "
        f"{_times_chosen(device, 'room', launch)}": {"Inductor": timing}
        for launch, timing in draws(device).items()
    }
    groups["one row for each block"] = {"Liger": in_trace(device["mlp/liger"])}
    caption = "Time of the fused kernel by launch configuration, and how many compilations chose each configuration"
    chart = timing_bars(device, groups, caption, axis="time of the fused kernel")
    rows: list[Sequence[Cell]] = [
        [name, number, config_name(device, each.launch), format_value(each.us, "us"), _log_text(each)]
        for name, compilations in trials(device).items()
        for number, each in enumerate(compilations, 1)
    ]
    head = ["trial", "compilation", "chosen configuration", "median time of the kernel", "Inductor's own times"]
    return Html(chart + details("Each compilation", table("The choice of each compilation", head, rows)))


def _log_text(compilation: Compilation) -> str:
    logged = (f"{name}: {format_value(us, 'us')}" for name, us in compilation.benchmark_us.items())
    return "; ".join(logged) or "nothing"


def conditions(device: Device) -> Html:
    """How often each trial got the slower configuration, its kernel's time, and Inductor's own time for both."""
    launches = tuple(draws(device))
    titles = {"default": "as in a new process", "room": "a gigabyte of room below the peak"}
    rows: list[Sequence[Cell]] = []
    for name, compilations in trials(device).items():
        us = timing_of_samples([each.us for each in compilations])
        cells = [figure_cell(Figure.from_timing(us)), *(_benchmark_cell(device, name, launch) for launch in launches)]
        rows.append([titles.get(name, name), chosen(device, name, fastest=False).text, *cells])
    head = [
        "condition",
        "compilations without the fastest configuration",
        "time of the fused kernel",
        *(f"Inductor's own time, {config_name(device, each)}" for each in launches),
    ]
    return table("How often Inductor misses the fastest configuration, by condition", head, rows)


def _benchmark_cell(device: Device, trial: str, launch: Launch) -> Cell:
    try:
        return figure_cell(benchmark_us(device, trial, launch))
    except NotRecorded:
        return None
