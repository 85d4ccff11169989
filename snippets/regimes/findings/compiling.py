"""Cost and benefit of the compiler's modes: seconds of a compilation, time of a call."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from kinetoscope.html import Cell, Html, code, table
from snippets.lab.finding import Device, Figure, NotTimed, at_least, at_most, claim, equals, timing_of_samples
from snippets.lab.finding.measure import percent, ratio_of_pairs, unpaired_ratio
from snippets.lab.page import figure_cell, show as show
from snippets.lab.recording.schema import Timing

STACK, GEGLU = "stack", "geglu"
TITLES: Mapping[str, str] = {STACK: "eight blocks, 64 tokens", GEGLU: "one GeGLU block, 8,192 tokens"}
"""Subject -> what it is."""
MODES = ("default", "dynamic", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
NAMES: Mapping[str, str] = {"dynamic": "dynamic=True"}
"""Mode -> what a page calls it, where that is another name."""
KINDS: Mapping[str, str] = {"from_python": "from Python", "interleaved": "on the GPU", "enqueue": "on the CPU"}
REPLAYED = ("reduce-overhead", "max-autotune")
"""Modes that replay a CUDA graph of their own: no time on the GPU alone."""
TUNED = "max-autotune-no-cudagraphs"
"""The mode whose products a CUDA graph of ours can time."""


def run_id(subject: str) -> str:
    """The experiment that compiled a subject."""
    return f"regimes/modes_{subject}"


def modes(device: Device, subject: str) -> list[str]:
    """The modes in which a subject was compiled, in their order."""
    return [mode for mode in MODES if mode in device[run_id(subject)].data["modes"]]


def probed_mode(device: Device, subject: str, mode: str) -> Mapping[str, Any]:
    """The probe's data of a mode."""
    found: Mapping[str, Any] = device[run_id(subject)].data["modes"][mode]
    return found


def mode_timing(device: Device, subject: str, variant: str, kind: str = "from_python") -> Timing:
    """The times of a call of eager or of a mode. Raises `NotTimed` where nothing was timed."""
    times = device[run_id(subject)].data["times"]
    if variant not in times:
        raise NotTimed(f"{run_id(subject)} has no times of {variant!r}")
    return timing_of_samples(times[variant][kind])


def mode_time(device: Device, subject: str, variant: str, kind: str = "from_python") -> Figure:
    """The time of a call of eager or of a mode."""
    timing = mode_timing(device, subject, variant, kind)
    return Figure.from_timing(timing, f"{device[run_id(subject)].origin}, {variant}, {KINDS[kind]}")


def over(device: Device, subject: str, upper: str, lower: str, kind: str = "from_python") -> Figure:
    """The time of a call of one variant, eager or a mode / another's, from pairs."""
    above, below = (mode_timing(device, subject, variant, kind) for variant in (upper, lower))
    return ratio_of_pairs(above, below, f"{device[run_id(subject)].origin}, {upper} over {lower}, {KINDS[kind]}")


def lost_s(calls: Sequence[float]) -> float:
    """Seconds that the first calls of a compiled function take longer than the last of them."""
    return math.fsum(call - calls[-1] for call in calls[:-1])


def compile_time(device: Device, subject: str, mode: str) -> Figure:
    """The time that the first calls lose with empty caches; its spread goes over the compilations."""
    us = [1e6 * lost_s(calls) for calls in probed_mode(device, subject, mode)["cold_s"]]
    spread = (min(us), max(us)) if len(us) > 1 else None
    return Figure(statistics.median(us), "us", spread, f"{device[run_id(subject)].origin}, {mode}, empty caches")


def again_time(device: Device, subject: str, mode: str) -> Figure:
    """The time that the first calls lose where the caches on disk are full."""
    us = 1e6 * lost_s(probed_mode(device, subject, mode)["again_s"])
    return Figure(us, "us", origin=f"{device[run_id(subject)].origin}, {mode}, full caches")


def first_compilation(device: Device) -> Figure:
    """The first compilation of the process, of a small function: it also starts the compiler's own processes."""
    run = device[run_id(STACK)]
    return Figure(1e6 * run.data["first_ever_s"], "us", origin=run.origin)


def compile_table(device: Device, subject: str) -> Html:
    """Each mode: its compilation with empty and full caches, and what it made."""
    rows: list[list[Cell]] = []
    for mode in modes(device, subject):
        seen = probed_mode(device, subject, mode)
        rows.append(
            [
                code(NAMES.get(mode, mode)),
                figure_cell(compile_time(device, subject, mode)),
                figure_cell(again_time(device, subject, mode)),
                str(seen["graphs"]),
                str(len(seen["guards"][0])),
                str(len(seen["calls"])),
            ]
        )
    head = ["mode", "time, empty caches", "time, full caches", "graphs", "guards", "calls in the generated code"]
    return table(f"Time to compile {TITLES[subject]}, and calls in the generated code", head, rows)


@claim("RG30", equals(True))
def one_graph(device: Device) -> Figure:
    """Each mode compiles a stack of eight blocks into one graph, and a GeGLU block into one graph, without a graph
    break."""
    seen = [probed_mode(device, subject, mode) for subject in TITLES for mode in modes(device, subject)]
    is_one = all(each["graphs"] == 1 and not each["breaks"] for each in seen)
    return Figure(is_one, origin=f"{device[run_id(STACK)].origin}; {device[run_id(GEGLU)].origin}")


@claim("RG31", at_least(5), scope="timing")
def tuning_over_default(device: Device) -> Figure:
    """With empty caches, max-autotune-no-cudagraphs takes at least five times as long as the default mode to compile a
    stack of eight blocks."""
    return unpaired_ratio(*(compile_time(device, STACK, mode) for mode in (TUNED, "default")))


@claim("RG32", at_most(25), scope="timing")
def again_share(device: Device) -> Figure:
    """With full caches, the default mode compiles a stack of eight blocks in at most a quarter of the time that it
    takes with empty caches."""
    times = again_time(device, STACK, "default"), compile_time(device, STACK, "default")
    return percent(unpaired_ratio(*times))


@claim("RG33", at_least(1), scope="timing")
def default_loses(device: Device) -> Figure:
    """Timed from Python with 64 tokens, a stack of eight blocks takes longer in the default mode than in eager mode."""
    return over(device, STACK, "default", "eager")


@claim("RG34", at_most(0.7), scope="timing")
def replay_wins(device: Device) -> Figure:
    """Timed from Python with 64 tokens, a stack of eight blocks takes at most 0.7 times as long in the mode
    reduce-overhead as in eager mode."""
    return over(device, STACK, "reduce-overhead", "eager")


@claim("RG60", at_least(1), scope="timing")
def replay_loses(device: Device) -> Figure:
    """Timed from Python with 8192 tokens, a GeGLU block takes longer in the mode reduce-overhead than in eager mode."""
    return over(device, GEGLU, "reduce-overhead", "eager")
