"""What the modes of the compiler cost and win: seconds, time of a call, calls until they have paid."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    at_most,
    claim,
    equals,
    timing_of_samples,
)
from snippets.lab.finding.band import Band
from snippets.lab.finding.measure import derived, percent, ratio_of_pairs, unpaired_ratio
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page import figure_cell
from snippets.lab.page import show as show
from snippets.lab.recording.schema import Timing

STACK, GEGLU = "stack", "geglu"
TITLES: Mapping[str, str] = {STACK: "eight blocks, 64 tokens", GEGLU: "one GeGLU block, 8,192 tokens"}
"""Subject -> what it is."""
MODES = ("default", "dynamic", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
NAMES: Mapping[str, str] = {"dynamic": "dynamic=True"}
"""Mode -> what a page calls it, where that is another name."""
KINDS: Mapping[str, str] = {"from_python": "from Python", "interleaved": "on the GPU"}
REPLAYED = ("reduce-overhead", "max-autotune")
"""Modes that replay a CUDA graph of their own: no time on the GPU alone."""
NEVER = "never"
ADVICE: Mapping[str, str] = {
    "default": "operators can fuse, you wait for the GPU, and shapes are few",
    "dynamic": "as the default, but lengths vary from call to call",
    "reduce-overhead": "you wait for the CPU, and shapes are few",
    "max-autotune-no-cudagraphs": "you wait for the GPU, and one compilation serves very many calls",
    "max-autotune": "you wait for the CPU, and one compilation serves very many calls",
}
"""Mode -> when to use it."""
TUNED = "max-autotune-no-cudagraphs"
"""The mode whose products a CUDA graph of ours can time."""


def run_id(subject: str) -> str:
    """The experiment that compiled a subject."""
    return f"regimes/modes_{subject}"


def modes(device: Device, subject: str) -> list[str]:
    """The modes in which a subject was compiled, in their order."""
    return [mode for mode in MODES if mode in device[run_id(subject)].data["modes"]]


def probed_mode(device: Device, subject: str, mode: str) -> Mapping[str, Any]:
    """What the probe saw of a mode."""
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


def over_eager(device: Device, subject: str, mode: str, kind: str = "from_python") -> Figure:
    """The time of a mode's call over that of eager's, from pairs."""
    upper, lower = (mode_timing(device, subject, variant, kind) for variant in (mode, "eager"))
    return ratio_of_pairs(upper, lower, f"{device[run_id(subject)].origin}, {mode} over eager, {KINDS[kind]}")


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


def saved(device: Device, subject: str, mode: str) -> Figure:
    """Time that a call from Python saves against eager's, from pairs; below zero where it loses."""
    eager, compiled = (mode_timing(device, subject, variant) for variant in ("eager", mode))
    pairs = tuple(a - b for a, b in zip(eager.samples_us, compiled.samples_us, strict=True))
    medians = [statistics.median(part) for part in timing_of_samples(pairs).parts]
    origin = f"{device[run_id(subject)].origin}, eager less {mode}, from Python"
    return Figure(statistics.median(pairs), "us", (min(medians), max(medians)), origin)


def break_even(device: Device, subject: str, mode: str, caches: str = "empty") -> Figure:
    """Calls until what each saves adds up to the compilation with `empty` or with `full` caches; `never` if none saves.

    Inconclusive where the spread of what a call saves contains nothing.
    """
    cost = (compile_time if caches == "empty" else again_time)(device, subject, mode)
    gain = saved(device, subject, mode)
    origin = f"{cost.origin}; over {gain.origin}"
    least, most = gain.bounds
    if most <= 0 or gain.number <= 0:
        return Figure(NEVER, origin=origin, conclusive=most <= 0)
    calls = math.ceil(cost.number / gain.number)
    if least <= 0:
        return Figure(calls, origin=origin, conclusive=False, display=f"{rounded(calls)} or {NEVER}")
    ends = tuple(math.ceil(us / per_call) for us, per_call in zip(cost.bounds, (most, least), strict=True))
    return Figure(calls, spread=(ends[0], ends[1]), origin=origin, display=rounded(calls))


def rounded(calls: int) -> str:
    """A count in two digits: 12,345 -> `12,000`."""
    digits = 10 ** max(0, len(str(calls)) - 2)
    return f"{round(calls / digits) * digits:,}"


def compile_table(device: Device, subject: str) -> Html:
    """Each mode: its compilation with empty and full caches, what it made, and the calls until it has paid."""
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
    head = ["mode", "empty caches", "full caches", "graphs", "guards", "calls in the code"]
    return table(f"Compiling {TITLES[subject]}", head, rows)


def pay_table(device: Device, subject: str) -> Html:
    """Each mode's call against eager's."""
    rows: list[list[Cell]] = [
        ["eager", *(figure_cell(mode_time(device, subject, "eager", kind)) for kind in KINDS), None]
    ]
    for mode in modes(device, subject):
        rows.append(
            [
                code(NAMES.get(mode, mode)),
                figure_cell(mode_time(device, subject, mode)),
                None if mode in REPLAYED else figure_cell(mode_time(device, subject, mode, "interleaved")),
                figure_cell(saved(device, subject, mode)),
            ]
        )
    head = ["variant", *KINDS.values(), "saved by a call"]
    return table(f"One call of {TITLES[subject]}, and what it saves from Python", head, rows)


def calls_to_pay(device: Device, subject: str) -> Html:
    """Each mode's compilation with empty and with full caches, and how many calls pay for it."""
    rows: list[list[Cell]] = [
        [
            code(NAMES.get(mode, mode)),
            figure_cell(compile_time(device, subject, mode)),
            _pays_cell(break_even(device, subject, mode)),
            figure_cell(again_time(device, subject, mode)),
            _pays_cell(break_even(device, subject, mode, "full")),
        ]
        for mode in modes(device, subject)
    ]
    head = ["mode", "empty caches", "calls, empty", "full caches", "calls, full"]
    return table(f"Time to compile, and calls until it has paid: {TITLES[subject]}", head, rows)


def _pays_cell(pays: Figure) -> Cell:
    if pays.spread is None:
        return pays.text
    low, high = (rounded(int(end)) for end in pays.spread)
    return pays.text if low == high else Html(f"{pays.text}<small>{low} to {high}</small>")


def use_when(device: Device) -> Html:
    """When to use each mode, and after how many calls it has paid for each subject, with empty caches."""
    rows: list[list[Cell]] = []
    for mode, advice in ADVICE.items():
        pays = (
            break_even(device, subject, mode).text if mode in modes(device, subject) else None for subject in TITLES
        )
        rows.append([code(NAMES.get(mode, mode)), advice, *pays])
    head = ["mode", "use it when", *(f"pays after: {title}" for title in TITLES.values())]
    return table("Which mode to use, and the calls until it has paid", head, rows, text_columns=2)


def default_pays(device: Device) -> Figure:
    """The order of magnitude of the calls that pay for the default mode with few tokens."""
    pays = break_even(device, STACK, "default")
    if isinstance(pays.value, str) or not pays.conclusive:
        return derived(NEVER, pays)
    return derived("thousands" if pays.number < 1e6 else "millions", pays)


def pays_within(calls: int) -> Band:
    """A band of numbers of calls up to a limit, without `never`."""
    return lambda figure: figure.value != NEVER and figure.number <= calls


def pays_after(calls: int) -> Band:
    """A band of numbers of calls from a limit on, and `never`."""
    return lambda figure: figure.value == NEVER or figure.number >= calls


@claim("RG30", equals(True))
def one_graph(device: Device) -> Figure:
    """Each mode compiles eight blocks, and a GeGLU block, as one graph without a break."""
    seen = [probed_mode(device, subject, mode) for subject in TITLES for mode in modes(device, subject)]
    is_one = all(each["graphs"] == 1 and not each["breaks"] for each in seen)
    return Figure(is_one, origin=f"{device[run_id(STACK)].origin}; {device[run_id(GEGLU)].origin}")


@claim("RG31", at_least(5), scope="timing")
def tuning_over_default(device: Device) -> Figure:
    """With empty caches, max-autotune takes at least five times as long as the default mode to compile eight
    blocks."""
    return unpaired_ratio(*(compile_time(device, STACK, mode) for mode in (TUNED, "default")))


@claim("RG32", at_most(25), scope="timing")
def again_share(device: Device) -> Figure:
    """With its files still on disk, the default mode compiles eight blocks in at most a quarter of the time."""
    times = again_time(device, STACK, "default"), compile_time(device, STACK, "default")
    return percent(unpaired_ratio(*times))


@claim("RG33", at_least(1), scope="timing")
def default_loses(device: Device) -> Figure:
    """With 64 tokens and from Python, eight blocks take longer in the default mode than eager."""
    return over_eager(device, STACK, "default")


@claim("RG34", at_most(0.7), scope="timing")
def replay_wins(device: Device) -> Figure:
    """With 64 tokens and from Python, eight blocks take at most 0.7 of eager's time in the mode reduce-overhead."""
    return over_eager(device, STACK, "reduce-overhead")


@claim("RG35", pays_within(30_000), scope="timing")
def replay_pays(device: Device) -> Figure:
    """With 64 tokens, reduce-overhead has paid for compiling eight blocks after fewer than 30,000 calls."""
    return break_even(device, STACK, "reduce-overhead")


@claim("RG36", pays_after(20_000), scope="timing")
def fusion_pays(device: Device) -> Figure:
    """With 8192 tokens, the default mode has paid for compiling a GeGLU block after 20,000 calls at the earliest."""
    return break_even(device, GEGLU, "default")


@claim("RG60", at_least(1), scope="timing")
def replay_loses(device: Device) -> Figure:
    """With 8192 tokens and from Python, a GeGLU block takes longer in the mode reduce-overhead than eager."""
    return over_eager(device, GEGLU, "reduce-overhead")


@claim("RG37", at_least(1.1), scope="timing")
def tuned_on_gpu(device: Device) -> Figure:
    """With 64 tokens, the products that max-autotune chose make eight blocks take at least a tenth longer on the GPU
    than those of the default mode."""
    upper, lower = (mode_timing(device, STACK, mode, "interleaved") for mode in (TUNED, "default"))
    return ratio_of_pairs(upper, lower, f"{device[run_id(STACK)].origin}, max-autotune over default, on the GPU")


@claim("RG38", at_most(0.9), scope="timing")
def tuned_from_python(device: Device) -> Figure:
    """With 64 tokens and from Python, the products that max-autotune chose let eight blocks take at most nine tenths of
    the default mode's time."""
    upper, lower = (mode_timing(device, STACK, mode) for mode in (TUNED, "default"))
    return ratio_of_pairs(upper, lower, f"{device[run_id(STACK)].origin}, max-autotune over default, from Python")


FIGURES: Mapping[str, Measure] = {
    "geglu_saved": lambda device: saved(device, GEGLU, "default"),
    "replay_pays_again": lambda device: break_even(device, STACK, "reduce-overhead", "full"),
    "fusion_pays_again": lambda device: break_even(device, GEGLU, "default", "full"),
}
