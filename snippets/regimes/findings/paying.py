"""When a compilation has paid for itself: what a call saves, calls until then, and the modes alone for seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kinetoscope.html import Cell, Html, code, table
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotRecorded,
    NotTimed,
    at_least,
    at_most,
    claim,
    timing_of_samples,
)
from snippets.lab.finding.band import Band
from snippets.lab.finding.measure import derived, difference_of_pairs, unpaired_ratio
from snippets.lab.page import figure_cell, show as show
from snippets.regimes.findings.compiling import (
    GEGLU,
    KINDS,
    NAMES,
    REPLAYED,
    STACK,
    TITLES,
    TUNED,
    again_time,
    compile_time,
    mode_time,
    mode_timing,
    modes,
    over,
    run_id,
)

NEVER = "never"
ADVICE: Mapping[str, str] = {
    "default": "Inductor can fuse operators, you wait for the GPU, and you have few different shapes",
    "dynamic": "Inductor can fuse operators, you wait for the GPU, and lengths vary from call to call",
    "reduce-overhead": "you wait for the CPU, and you have few different shapes",
    "max-autotune-no-cudagraphs": "you wait for the GPU, you make very many calls, and the default mode is slower",
    "max-autotune": "you wait for the CPU, and max-autotune is faster than reduce-overhead",
}
"""Mode -> when to use it."""


def saved(device: Device, subject: str, mode: str) -> Figure:
    """Time that a call from Python saves against eager's, from pairs; below zero where it loses."""
    eager, compiled = (mode_timing(device, subject, variant) for variant in ("eager", mode))
    return difference_of_pairs(eager, compiled, f"{device[run_id(subject)].origin}, eager less {mode}, from Python")


def break_even(device: Device, subject: str, mode: str, caches: str = "empty") -> Figure:
    """Calls until their savings add up to the compilation with `empty` or with `full` caches; `never` without a saving.

    Inconclusive if the spread of a call's saving includes zero.
    """
    cost = (compile_time if caches == "empty" else again_time)(device, subject, mode)
    gain = saved(device, subject, mode)
    origin = f"{cost.origin}; over {gain.origin}"
    least, most = gain.bounds
    if most <= 0 or gain.number <= 0:
        return Figure(NEVER, origin=origin, conclusive=most <= 0)
    calls = math.ceil(cost.number / gain.number)
    if least <= 0:
        display, doubt = f"{rounded(calls)} or {NEVER}", "a call may save no time"
        return Figure(calls, origin=origin, conclusive=False, doubt=doubt, display=display)
    ends = tuple(math.ceil(us / per_call) for us, per_call in zip(cost.bounds, (most, least), strict=True))
    return Figure(calls, spread=(ends[0], ends[1]), origin=origin, display=rounded(calls))


def rounded(calls: int) -> str:
    """A count in two digits: 12,345 -> `12,000`."""
    digits = 10 ** max(0, len(str(calls)) - 2)
    return f"{round(calls / digits) * digits:,}"


def has_steady(device: Device, subject: str) -> bool:
    """Whether the modes of a subject were timed alone for seconds, too."""
    return bool(device[run_id(subject)].data.get("steady"))


def alone(device: Device, variant: str) -> Mapping[str, Any]:
    """The timing of the GeGLU block, eager or in a mode, alone for seconds. Raises `NotRecorded` without it."""
    found: Mapping[str, Any] = device[run_id(GEGLU)].data.get("steady", {}).get(variant, {})
    if not found:
        raise NotRecorded(f"{run_id(GEGLU)} has no steady times of {variant!r}; make record CHAPTER=regimes")
    return found


def steady_time(device: Device, variant: str) -> Figure:
    """The time of a call of the GeGLU block, alone for seconds."""
    timing = timing_of_samples(alone(device, variant)["us"])
    return Figure.from_timing(timing, f"{device[run_id(GEGLU)].origin}, {variant}, steady")


def steady_clock(device: Device, variant: str) -> Figure:
    """The clock of the GeGLU block, alone for seconds."""
    return Figure(alone(device, variant)["clock_mhz"], "MHz", origin=f"{device[run_id(GEGLU)].origin}, {variant}")


def steady_of_limit(device: Device, variant: str) -> float:
    """The power that the GeGLU block draws, alone for seconds, in percent of the GPU's limit. Raises `NotTimed`."""
    watts = 1e6 * float(alone(device, variant)["joules"]) / steady_time(device, variant).number
    limit = device[run_id(GEGLU)].environment.power_limit_w
    if not watts or not limit:
        raise NotTimed(f"{run_id(GEGLU)} has no power of {variant!r}, or no power limit")
    return 100 * watts / limit


def pay_table(device: Device, subject: str) -> Html:
    """Each mode's call against eager's; where it was timed, also alone for seconds, with its clock."""
    rows: list[list[Cell]] = []
    for variant in ("eager", *modes(device, subject)):
        row: list[Cell] = [
            variant if variant == "eager" else code(NAMES.get(variant, variant)),
            figure_cell(mode_time(device, subject, variant)),
            None if variant in REPLAYED else figure_cell(mode_time(device, subject, variant, "interleaved")),
        ]
        if has_steady(device, subject):
            row += [figure_cell(steady_time(device, variant)), steady_clock(device, variant).text]
        rows.append([*row, None if variant == "eager" else figure_cell(saved(device, subject, variant))])
    caption, steady = f"Time of one call: {TITLES[subject]}", list[str]()
    if has_steady(device, subject):
        caption, steady = f"{caption}. Steady: each variant alone for seconds", ["steady", "steady clock"]
    head = ["variant", KINDS["from_python"], KINDS["interleaved"], *steady, "saved from Python"]
    return table(caption, head, rows)


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
    head = ["mode", "time, empty caches", "break-even, empty caches", "time, full caches", "break-even, full caches"]
    return table(f"Time to compile, and break-even number of calls: {TITLES[subject]}", head, rows)


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
    head = ["mode", "use it when", *(f"break-even: {title}" for title in TITLES.values())]
    return table(
        "When to use each mode, and its break-even number of calls with empty caches", head, rows, text_columns=2
    )


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


@claim("RG35", pays_within(30_000), scope="timing")
def replay_pays(device: Device) -> Figure:
    """With 64 tokens, reduce-overhead saves the time of compiling a stack of eight blocks after at most 30,000
    calls."""
    return break_even(device, STACK, "reduce-overhead")


@claim("RG36", pays_after(20_000), scope="timing")
def fusion_pays(device: Device) -> Figure:
    """With 8192 tokens, the default mode needs at least 20,000 calls to save the time of compiling a GeGLU block."""
    return break_even(device, GEGLU, "default")


@claim("RG61", at_most(1), scope="timing")
def steady_over_eager(device: Device) -> Figure:
    """In steady timing with 8192 tokens, a GeGLU block takes less time in the default mode than in eager mode."""
    return unpaired_ratio(steady_time(device, "default"), steady_time(device, "eager"))


@claim("RG62", at_least(95), scope="timing")
def least_of_limit(device: Device) -> Figure:
    """In steady timing with 8192 tokens, a GeGLU block draws at least 95 % of the GPU's power limit, in eager mode and
    in each mode of torch.compile."""
    shares = [steady_of_limit(device, variant) for variant in ("eager", *modes(device, GEGLU))]
    return Figure(min(shares), "%", origin=device[run_id(GEGLU)].origin)


FIGURES: Mapping[str, Measure] = {
    "geglu_on_gpu": lambda device: over(device, GEGLU, "default", "eager", "interleaved"),
    "geglu_replay_over_default": lambda device: over(device, GEGLU, "reduce-overhead", "default"),
    "geglu_tuned_over_default": lambda device: over(device, GEGLU, TUNED, "default"),
    "geglu_graphs_over_none": lambda device: over(device, GEGLU, "max-autotune", TUNED),
    "stack_graphs_over_replay": lambda device: over(device, STACK, "max-autotune", "reduce-overhead"),
}
