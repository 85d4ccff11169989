"""What the modes of the compiler cost and win: seconds, calls until they have paid, guards, new shapes."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    format_value,
    timing_of_samples,
)
from snippets.lab.finding.measure import derived, ratio_of_pairs
from snippets.lab.html import Cell, Html, code, details, table
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
TUNED = "max-autotune-no-cudagraphs"
PRODUCTS: Mapping[str, tuple[str, ...]] = {STACK: ("up", "down"), GEGLU: ("gate", "down")}
"""Subject -> products of different shapes, in the order in which they are tuned; of equal ones, one is."""


def _run_id(subject: str) -> str:
    return f"regimes/modes_{subject}"


def modes(device: Device, subject: str) -> list[str]:
    """The modes in which a subject was compiled, in their order."""
    return [mode for mode in MODES if mode in device[_run_id(subject)].data["modes"]]


def probed_mode(device: Device, subject: str, mode: str) -> Mapping[str, Any]:
    """What the probe saw of a mode."""
    found: Mapping[str, Any] = device[_run_id(subject)].data["modes"][mode]
    return found


def mode_timing(device: Device, subject: str, variant: str, kind: str = "from_python") -> Timing:
    """The times of a call of eager or of a mode. Raises `NotTimed` where nothing was timed."""
    times = device[_run_id(subject)].data["times"]
    if variant not in times:
        raise NotTimed(f"{_run_id(subject)} has no times of {variant!r}")
    return timing_of_samples(times[variant][kind])


def mode_time(device: Device, subject: str, variant: str, kind: str = "from_python") -> Figure:
    """The time of a call of eager or of a mode."""
    timing = mode_timing(device, subject, variant, kind)
    return Figure.from_timing(timing, f"{device[_run_id(subject)].origin}, {variant}, {KINDS[kind]}")


def over_eager(device: Device, subject: str, mode: str, kind: str = "from_python") -> Figure:
    """The time of a mode's call over that of eager's, from pairs."""
    upper, lower = (mode_timing(device, subject, variant, kind) for variant in (mode, "eager"))
    return ratio_of_pairs(upper, lower, f"{device[_run_id(subject)].origin}, {mode} over eager, {KINDS[kind]}")


def lost_s(calls: Sequence[float]) -> float:
    """Seconds that the first calls of a compiled function take longer than the last of them."""
    return math.fsum(call - calls[-1] for call in calls[:-1])


def compile_time(device: Device, subject: str, mode: str) -> Figure:
    """The time that the first calls lose with empty caches; its spread goes over the compilations."""
    us = [1e6 * lost_s(calls) for calls in probed_mode(device, subject, mode)["cold_s"]]
    spread = (min(us), max(us)) if len(us) > 1 else None
    return Figure(statistics.median(us), "us", spread, f"{device[_run_id(subject)].origin}, {mode}, empty caches")


def again_time(device: Device, subject: str, mode: str) -> Figure:
    """The time that the first calls lose where the caches on disk are full."""
    us = 1e6 * lost_s(probed_mode(device, subject, mode)["again_s"])
    return Figure(us, "us", origin=f"{device[_run_id(subject)].origin}, {mode}, full caches")


def saved(device: Device, subject: str, mode: str, kind: str = "from_python") -> Figure:
    """Time that a call saves against eager's, from pairs; below zero where it loses."""
    eager, compiled = (mode_timing(device, subject, variant, kind) for variant in ("eager", mode))
    pairs = tuple(a - b for a, b in zip(eager.samples_us, compiled.samples_us, strict=True))
    medians = [statistics.median(part) for part in timing_of_samples(pairs).parts]
    origin = f"{device[_run_id(subject)].origin}, eager less {mode}, {KINDS[kind]}"
    return Figure(statistics.median(pairs), "us", (min(medians), max(medians)), origin)


def break_even(device: Device, subject: str, mode: str, kind: str = "from_python") -> Figure:
    """Calls until what each saves adds up to the compilation; `never` where none is saved.

    Inconclusive where the spread of what a call saves contains nothing.
    """
    cost, gain = compile_time(device, subject, mode), saved(device, subject, mode, kind)
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


def guards(device: Device, subject: str, mode: str) -> Figure:
    """Guards of the newest graph of a mode."""
    return Figure(len(probed_mode(device, subject, mode)["guards"][0]), origin=device[_run_id(subject)].origin)


def guard_kinds(texts: Sequence[str]) -> dict[str, int]:
    """What guards look at -> their number, the most frequent first."""
    counts: dict[str, int] = {}
    for text in texts:
        kind = next((name for pattern, name in _GUARD_KINDS.items() if re.search(pattern, text)), "state of PyTorch")
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


_GUARD_KINDS: Mapping[str, str] = {
    r"check_tensor|_dynamo_|size\(\)|L\['x'\]": "the input",
    r"L\['self'\]": "the module and its parameters",
    r"G\['__import|G\['__builtins|hooks": "modules, functions and hooks of PyTorch",
}


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
    """Each mode's call against eager's, and how many calls pay for the compilation."""
    rows: list[list[Cell]] = [
        ["eager", *(figure_cell(mode_time(device, subject, "eager", kind)) for kind in KINDS), None, None]
    ]
    for mode in modes(device, subject):
        pays = break_even(device, subject, mode)
        rows.append(
            [
                code(NAMES.get(mode, mode)),
                figure_cell(mode_time(device, subject, mode)),
                None if mode in REPLAYED else figure_cell(mode_time(device, subject, mode, "interleaved")),
                figure_cell(saved(device, subject, mode)),
                _pays_cell(pays),
            ]
        )
    head = ["variant", *KINDS.values(), "saved by a call", "calls until it has paid"]
    return table(f"One call of {TITLES[subject]}, and what it saves from Python", head, rows)


def _pays_cell(pays: Figure) -> Cell:
    if pays.spread is None:
        return pays.text
    low, high = (rounded(int(end)) for end in pays.spread)
    return pays.text if low == high else f"{pays.text} ({low} to {high})"


def generated(device: Device, subject: str) -> Html:
    """What the generated code of each mode calls, and the source of its Triton kernels, folded."""
    rows: list[list[Cell]] = []
    sources: dict[str, str] = {}
    for mode in modes(device, subject):
        seen = probed_mode(device, subject, mode)
        names = Counter(re.sub(r"^extern_kernels\.|_\d+$", "", call) for call in seen["calls"])
        calls = ", ".join(f"{code(name)} {count} times" if count > 1 else code(name) for name, count in names.items())
        rows.append([code(NAMES.get(mode, mode)), Html(calls)])
        for name, source in seen["kernels"].items():
            sources.setdefault(source, f"{name}, {NAMES.get(mode, mode)}")
    folds = "".join(
        details(name, f'<div class="highlight"><pre><code>{escape(source)}</code></pre></div>')
        for source, name in sources.items()
    )
    caption = f"What the code calls: {TITLES[subject]}"
    return Html(table(caption, ["mode", "calls"], rows, text_columns=2) + folds)


def guard_table(device: Device) -> Html:
    """What the guards of the default mode look at, and all of them, folded."""
    texts = probed_mode(device, STACK, "default")["guards"][0]
    rows = [[kind, str(count)] for kind, count in guard_kinds(texts).items()]
    listed = "\n".join(escape(text) for text in texts)
    fold = details("All of them", f'<div class="highlight"><pre><code>{listed}</code></pre></div>')
    return Html(table("Guards of the stack's graph", ["they look at", "guards"], rows) + fold)


ASKED: Mapping[str, str] = {"static": "dynamic=False", "automatic": "default", "dynamic": "dynamic=True"}


def _shapes(device: Device) -> Mapping[str, Any]:
    found: Mapping[str, Any] = device["regimes/new_shapes"].data
    return found


def graphs(device: Device, asked: str) -> Figure:
    """Graphs after all calls, for a way to ask for shapes."""
    return Figure(_shapes(device)["asked"][asked]["graphs"][-1], origin=device["regimes/new_shapes"].origin)


def compiling_calls(device: Device, asked: str) -> list[tuple[int, float]]:
    """Tokens and microseconds of the calls that compiled."""
    data = _shapes(device)
    found = data["asked"][asked]
    new = [after > before for before, after in pairwise([0, *found["graphs"]])]
    calls = zip(data["tokens"], found["call_s"], new, strict=True)
    return [(tokens, 1e6 * seconds) for tokens, seconds, is_new in calls if is_new]


def shapes_table(device: Device) -> Html:
    """One call after the other with another number of tokens: whether it compiled, and how long it took."""
    data = _shapes(device)
    rows: list[list[Cell]] = []
    for index, tokens in enumerate(data["tokens"]):
        cells: list[Cell] = []
        for asked in ASKED:
            found = data["asked"][asked]
            before = found["graphs"][index - 1] if index else 0
            time = format_value(1e6 * found["call_s"][index], "us")
            cells.append(f"graph {found['graphs'][index]}: {time}" if found["graphs"][index] > before else time)
        rows.append([f"{tokens:,}", *cells])
    head = ["tokens", *(code(name) for name in ASKED.values())]
    return table("Calls in order; a call that compiled names its graph", head, rows)


def input_guards(device: Device) -> Html:
    """The guards on the shape of x, of each graph."""
    rows: list[list[Cell]] = []
    for asked, name in ASKED.items():
        guards_of_graphs = _shapes(device)["asked"][asked]["guards"]
        sizes = sorted(size for texts in guards_of_graphs for size in size_guards(texts))
        rows.append([code(name), Html("<br>".join(map(code, sizes)))])
    return table("What the graphs demand of the shape of x", ["asked for", "guards"], rows, text_columns=2)


def size_guards(texts: Sequence[str]) -> list[str]:
    """The sizes that guards demand: `size=[64, 1024]`, where None is any, and conditions on any."""
    found = [match[0] for text in texts if (match := re.search(r"size=\[[^\]]*\]", text))]
    return found + [text for text in texts if ".size()[" in text]


def tuned(device: Device, subject: str) -> list[Mapping[str, Any]]:
    """What max-autotune tried for each product of the stack, in order."""
    found: list[Mapping[str, Any]] = probed_mode(device, subject, TUNED)["tuned"]
    return found


def fastest(product: Mapping[str, Any], triton: bool) -> tuple[str, float]:
    """The fastest of a product's candidates from Triton's templates or from libraries, and its microseconds.

    Raises `NotTimed` without one.
    """
    times = {name: 1e3 * ms for name, ms in product["ms"].items() if name.startswith("triton") is triton}
    if not times:
        raise NotTimed(f"max-autotune tried no {'template' if triton else 'library'} for {product['name']}")
    return min(times.items(), key=lambda pair: pair[1])


def tuned_table(device: Device) -> Html:
    """What max-autotune tried for each product: how many kernels, and the fastest of both kinds by its own clock."""
    rows: list[list[Cell]] = []
    for subject, title in TITLES.items():
        for name, product in zip(PRODUCTS[subject], tuned(device, subject), strict=False):
            cells = [f"{format_value(us, 'us')}, {kernel}" for kernel, us in _fastest_two(product)]
            rows.append([title, name, str(len(product["ms"])), *cells])
    head = ["module", "product", "candidates", "fastest of cuBLAS", "fastest of Triton"]
    return table("What max-autotune timed for each product", head, rows, text_columns=2)


def _fastest_two(product: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [fastest(product, triton) for triton in (False, True)]


def default_pays(device: Device) -> Figure:
    """The order of magnitude of the calls that pay for the default mode with few tokens."""
    pays = break_even(device, STACK, "default")
    if isinstance(pays.value, str) or not pays.conclusive:
        return derived(NEVER, pays)
    return derived("thousands" if pays.number < 1e6 else "millions", pays)


FIGURES: Mapping[str, Measure] = {}
