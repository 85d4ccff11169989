"""The compiler's output: guards, generated code, and the candidates of max-autotune."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kinetoscope.html import Cell, Html, code, details, table
from kinetoscope.trace.events import Step
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, claim, equals, format_value
from snippets.lab.finding.measure import derived, smallest, unpaired_ratio
from snippets.lab.page import show as show
from snippets.regimes.findings.compiling import (
    GEGLU,
    NAMES,
    STACK,
    TITLES,
    TUNED,
    modes,
    over,
    probed_mode,
    run_id,
)
from snippets.regimes.findings.spilling import FEW, tile_timing

PRODUCTS: Mapping[str, tuple[str, ...]] = {STACK: ("up", "down"), GEGLU: ("gate", "down")}
"""Subject -> products of different shapes, in the order in which they are tuned."""
AUTOTUNED = (TUNED, "max-autotune")
"""The modes that tune: without CUDA graphs, and with them."""


def guards(device: Device, subject: str, mode: str) -> Figure:
    """Guards of the newest graph of a mode."""
    return Figure(len(probed_mode(device, subject, mode)["guards"][0]), origin=device[run_id(subject)].origin)


def guard_kinds(texts: Sequence[str]) -> dict[str, int]:
    """Kind of guard -> its number, the most frequent first."""
    counts: dict[str, int] = {}
    for text in texts:
        kind = next((name for pattern, name in _GUARD_KINDS.items() if re.search(pattern, text)), "state of PyTorch")
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


_GUARD_KINDS: Mapping[str, str] = {
    r"check_tensor|size\(\)|L\['x'\]": "the input",
    r"L\['self'\]": "the module",
    r"G\['__import|G\['__builtins|hooks": "modules, functions and hooks of PyTorch",
}


def generated(device: Device, subject: str) -> Html:
    """The calls of each mode's generated code, and the source of its Triton kernels, folded."""
    rows: list[list[Cell]] = []
    sources: dict[str, str] = {}
    for mode in modes(device, subject):
        seen = probed_mode(device, subject, mode)
        names = Counter(re.sub(r"^extern_kernels\.|_\d+$", "", call) for call in seen["calls"])
        calls = ", ".join(f"{code(name)} {count} times" if count > 1 else code(name) for name, count in names.items())
        rows.append([code(NAMES.get(mode, mode)), Html(calls)])
        for name, source in seen["kernels"].items():
            sources.setdefault(source, f"{name}, {NAMES.get(mode, mode)}")
    listed = "".join(
        f'<p>{escape(name)}</p><div class="language-text highlight"><pre><code>{escape(source)}</code></pre></div>'
        for source, name in sources.items()
    )
    caption = f"Calls in the generated code: {TITLES[subject]}"
    return Html(table(caption, ["mode", "calls"], rows, text_columns=2) + details("The Triton kernels", listed))


def guard_table(device: Device) -> Html:
    """The kinds of guards of the default mode, and all guards, folded."""
    texts = probed_mode(device, STACK, "default")["guards"][0]
    rows = [[kind, str(count)] for kind, count in guard_kinds(texts).items()]
    listed = "\n".join(escape(text) for text in texts)
    fold = details("All guards", f'<div class="language-text highlight"><pre><code>{listed}</code></pre></div>')
    return Html(table("Guards of the graph of eight blocks", ["what the guards check", "guards"], rows) + fold)


def lookup(device: Device) -> Figure:
    """Dynamo's time to find a graph whose guards hold, in the trace of eight blocks with 64 tokens."""

    def lookup_us(step: Step) -> float:
        return math.fsum(op.duration_us for op in step.ops if op.name.startswith("TorchDynamo Cache Lookup"))

    return device["regimes/small_compiled"].per_step(lookup_us, "us")


def tuned(device: Device, subject: str, mode: str = TUNED) -> list[Mapping[str, Any]]:
    """The candidates of max-autotune for each product of a new shape, in order; known shapes are looked up."""
    found: dict[tuple[float, ...], Mapping[str, Any]] = {}
    for product in probed_mode(device, subject, mode)["tuned"]:
        found.setdefault(tuple(sorted(product["ms"].values())), product)
    return list(found.values())


def fastest(product: Mapping[str, Any], triton: bool) -> tuple[str, float]:
    """The fastest of a product's candidates from Triton's templates or from libraries, and its microseconds.

    Raises `NotTimed` without one.
    """
    times = {name: 1e3 * ms for name, ms in product["ms"].items() if name.startswith("triton") is triton}
    if not times:
        raise NotTimed(f"max-autotune tried no {'template' if triton else 'library'} for {product['name']}")
    return min(times.items(), key=lambda pair: pair[1])


def winner(product: Mapping[str, Any]) -> str:
    """The origin of the fastest kernel by max-autotune's clock: `cuBLAS` or `Triton`."""
    return "Triton" if min(product["ms"], key=product["ms"].__getitem__).startswith("triton") else "cuBLAS"


def tuned_table(device: Device) -> Html:
    """The fastest kernel of both kinds for each product, by the clock of each compilation with max-autotune."""
    rows: list[list[Cell]] = []
    for subject, title in TITLES.items():
        tuning = {mode: tuned(device, subject, mode) for mode in AUTOTUNED if mode in modes(device, subject)}
        for index, name in enumerate(PRODUCTS[subject]):
            for mode, products in tuning.items():
                times = [fastest(products[index], triton) for triton in (False, True)]
                cells = [f"{format_value(us, 'us')}, {kernel}" for kernel, us in times]
                rows.append([title, name, "no" if mode == TUNED else "yes", *cells])
    head = ["module", "product", "CUDA graphs", "fastest kernel of cuBLAS", "fastest kernel of Triton"]
    return table("The fastest kernels of each product, as max-autotune timed them", head, rows, text_columns=3)


@claim("RG39", equals(True))
def equal_guards(device: Device) -> Figure:
    """At each call of a stack of eight blocks, Dynamo checks the same number of guards in all modes."""
    found = [guards(device, STACK, mode) for mode in modes(device, STACK)]
    return derived(len({figure.value for figure in found}) == 1, *found, display=f"{found[0].text} in each mode")


def tuned_over_replay(device: Device, mode: str = TUNED) -> Figure:
    """cuBLAS's product up by the clock of max-autotune over its time in CUDA graphs, with 64 tokens."""
    _, us = fastest(tuned(device, STACK, mode)[0], triton=False)
    alone = Figure.from_timing(tile_timing(device, FEW, "linear"), device["regimes/spills"].origin)
    return unpaired_ratio(Figure(us, "us", origin=device[run_id(STACK)].origin), alone)


@claim("RG41", at_least(1.2), scope="timing")
def slow_clock(device: Device) -> Figure:
    """With 64 tokens, both compilations with max-autotune measure at least a fifth more time for cuBLAS's kernel of the
    first product than this kernel takes in a CUDA graph."""
    return smallest(*(tuned_over_replay(device, mode) for mode in AUTOTUNED))


@claim("RG63", at_least(1), scope="timing")
def tuned_on_gpu(device: Device) -> Figure:
    """With 64 tokens, a stack of eight blocks with the products that max-autotune chose takes at least as long on the
    GPU as in the default mode."""
    return over(device, STACK, TUNED, "default", "interleaved")


@claim("RG64", equals(True), scope="this-gpu")
def choice_varies(device: Device) -> Figure:
    """With 64 tokens, max-autotune chooses cuBLAS for the second product of each block in one compilation, and a Triton
    template in another compilation."""
    found = [down_winner(device, mode) for mode in AUTOTUNED]
    display = f"{found[0].text} without CUDA graphs, {found[1].text} with them"
    return derived({figure.value for figure in found} == {"cuBLAS", "Triton"}, *found, display=display)


def down_winner(device: Device, mode: str) -> Figure:
    """The origin of the kernel that a compilation with max-autotune chose for the product down, with 64 tokens."""
    return Figure(winner(tuned(device, STACK, mode)[1]), origin=f"{device[run_id(STACK)].origin}, {mode}")


def geglu_winners(device: Device, mode: str) -> Figure:
    """The origins of the kernels that max-autotune chose for the GeGLU block's products, with 8192 tokens."""
    chosen = dict(zip(PRODUCTS[GEGLU], map(winner, tuned(device, GEGLU, mode)), strict=True))
    whose = set(chosen.values())
    each = ", ".join(f"{kernel} for {product}" for product, kernel in chosen.items())
    display = f"{whose.pop()} for both products" if len(whose) == 1 else each
    return Figure(display, origin=f"{device[run_id(GEGLU)].origin}, {mode}")


def gelus_in_templates(device: Device) -> Figure:
    """How many GELUs of eight blocks max-autotune let a template of a product compute: those with a tanh in them."""
    seen = probed_mode(device, STACK, TUNED)
    joined = {name for name, source in seen["kernels"].items() if name.startswith("triton_tem") and "tanh" in source}
    return Figure(sum(call in joined for call in seen["calls"]), origin=device[run_id(STACK)].origin)


FIGURES: Mapping[str, Measure] = {
    "geglu_chosen": lambda device: geglu_winners(device, TUNED),
    "geglu_chosen_with_graphs": lambda device: geglu_winners(device, "max-autotune"),
    "down_chosen": lambda device: down_winner(device, TUNED),
    "down_chosen_with_graphs": lambda device: down_winner(device, "max-autotune"),
    "tuned_from_python": lambda device: over(device, STACK, TUNED, "default"),
    "tuned_without_graphs_over_replay": tuned_over_replay,
    "tuned_with_graphs_over_replay": lambda device: tuned_over_replay(device, "max-autotune"),
    "candidates": lambda device: Figure(len(tuned(device, STACK)[0]["ms"]), origin=device[run_id(STACK)].origin),
}
