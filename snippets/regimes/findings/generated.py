"""What the compiler made: guards, generated code, and what max-autotune chose from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, claim, equals, format_value
from snippets.lab.finding.measure import derived, unpaired_ratio
from snippets.lab.html import Cell, Html, code, details, table
from snippets.lab.page import show as show
from snippets.regimes.findings.compiling import GEGLU, NAMES, STACK, TITLES, TUNED, modes, probed_mode, run_id
from snippets.regimes.findings.spilling import FEW, tile_timing

PRODUCTS: Mapping[str, tuple[str, ...]] = {STACK: ("up", "down"), GEGLU: ("gate", "down")}
"""Subject -> products of different shapes, in the order in which they are tuned."""

def guards(device: Device, subject: str, mode: str) -> Figure:
    """Guards of the newest graph of a mode."""
    return Figure(len(probed_mode(device, subject, mode)["guards"][0]), origin=device[run_id(subject)].origin)


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
    listed = "".join(
        f'<p>{escape(name)}</p><div class="language-text highlight"><pre><code>{escape(source)}</code></pre></div>'
        for source, name in sources.items()
    )
    caption = f"What the code calls: {TITLES[subject]}"
    return Html(table(caption, ["mode", "calls"], rows, text_columns=2) + details("The Triton kernels", listed))


def guard_table(device: Device) -> Html:
    """What the guards of the default mode look at, and all of them, folded."""
    texts = probed_mode(device, STACK, "default")["guards"][0]
    rows = [[kind, str(count)] for kind, count in guard_kinds(texts).items()]
    listed = "\n".join(escape(text) for text in texts)
    fold = details("All of them", f'<div class="language-text highlight"><pre><code>{listed}</code></pre></div>')
    return Html(table("Guards of the stack's graph", ["they look at", "guards"], rows) + fold)


def tuned(device: Device, subject: str, mode: str = TUNED) -> list[Mapping[str, Any]]:
    """What max-autotune tried for each product of another shape, in order; it looks up what it has tried before."""
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


@claim("RG39", equals(True))
def equal_guards(device: Device) -> Figure:
    """All modes check the same number of guards at each call of eight blocks."""
    found = [guards(device, STACK, mode) for mode in modes(device, STACK)]
    return derived(len({figure.value for figure in found}) == 1, *found, display=f"{found[0].text} in each mode")


def tuned_over_replay(device: Device) -> Figure:
    """cuBLAS's product up by the clock of max-autotune over its time in CUDA graphs, with 64 tokens."""
    _, us = fastest(tuned(device, STACK)[0], triton=False)
    alone = Figure.from_timing(tile_timing(device, FEW, "linear"), device["regimes/spills"].origin)
    return unpaired_ratio(Figure(us, "us", origin=device[run_id(STACK)].origin), alone)


@claim("RG41", at_least(1.2), scope="timing")
def slow_clock(device: Device) -> Figure:
    """By the clock of max-autotune, cuBLAS's first product with 64 tokens takes at least a fifth longer than in a CUDA
    graph."""
    return tuned_over_replay(device)


def down_by_clock(device: Device, mode: str) -> Figure:
    """cuBLAS's product down by the clock of a compilation with max-autotune, with 64 tokens."""
    _, us = fastest(tuned(device, STACK, mode)[1], triton=False)
    return Figure(us, "us", origin=f"{device[run_id(STACK)].origin}, {mode}")


FIGURES: Mapping[str, Measure] = {
    "down_by_one_clock": lambda device: down_by_clock(device, TUNED),
    "down_by_another_clock": lambda device: down_by_clock(device, "max-autotune"),
    "candidates": lambda device: Figure(
        len(tuned(device, STACK)[0]["ms"]), origin=device[run_id(STACK)].origin
    ),
}
