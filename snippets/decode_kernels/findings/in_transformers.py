"""transformers' `generate` with the decode kernels in its decoder layers, and without."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import EARLY, MODELS, REDUCE_OVERHEAD, tokens_of, transformers_of
from snippets.decode_kernels.findings.rungs import SMALL_MODEL, steady_us
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    at_most,
    claim,
    paired_difference,
    percent_saved,
    unpaired_ratio,
)
from snippets.lab.finding.probed import difference, entry, ratio, time
from snippets.lab.page import floor_bars, show as show

DYNAMIC, STATIC, COMPILED = "dynamic", "static eager", "static"
CACHES = {DYNAMIC: "dynamic cache", STATIC: "static cache, not compiled", COMPILED: "static cache, compiled"}
"""How `generate` runs -> its name on the page."""
PLAIN_LAYERS, OUR_LAYERS = "plain", "ours"
LAYERS = {PLAIN_LAYERS: "plain layers", OUR_LAYERS: "our layers"}
"""Whose decoder layers run -> their name on the page."""


def layers_us(device: Device, way: str, layers: str) -> Figure:
    """The time of a token of `generate`, from calls for few and for many tokens."""
    return time(device, transformers_of(way), "ways", way, layers, "us")


def kernel_count(device: Device, way: str, layers: str) -> Figure:
    """Kernels of a token of `generate`, of the layers and of all else."""
    count = float(entry(device, transformers_of(way), "ways", way, layers, "kernels"))
    return Figure(int(count) if count.is_integer() else count, origin=device[transformers_of(way)].origin)


def equal_tokens(device: Device, way: str) -> int:
    """Tokens from the first on that both kinds of layers choose."""
    _require_both(device, way)
    return int(entry(device, transformers_of(way), "ways", way, "equal"))


def _require_both(device: Device, way: str) -> None:
    """Raise `NotTimed` with the reason of layers that did not run."""
    for layers in LAYERS:
        entry(device, transformers_of(way), "ways", way, layers, "us")


def gap_over_error(device: Device, way: str) -> float:
    """The gap between the float32 logits of the first two tokens that differ, over the largest error of plain layers;
    0 if all tokens are equal."""
    _require_both(device, way)
    gap, error = (float(entry(device, transformers_of(way), "ways", way, key)) for key in ("gap", "largest_error"))
    if gap and not error:
        raise NotTimed("the logits of the plain layers don't differ from float32")
    return gap / error if gap else 0.0


@claim("DK38", at_most(2))
def same_answers(device: Device) -> Figure:
    """With our layers, `generate` writes the same tokens as with plain layers, or first differs at two tokens whose
    float32 logits are at most twice the largest error of the plain layers apart."""
    way = max(CACHES, key=lambda each: gap_over_error(device, each))
    return Figure(gap_over_error(device, way), "x", origin=device[transformers_of(way)].origin)


@claim("DK39", at_most(0.25))
def fewer_kernels(device: Device) -> Figure:
    """With the dynamic cache, a token of `generate` runs at most a quarter of the kernels with our layers."""
    return unpaired_ratio(*(kernel_count(device, DYNAMIC, layers) for layers in (OUR_LAYERS, PLAIN_LAYERS)))


@claim("DK40", at_most(0.75), scope="timing")
def dynamic_over_plain(device: Device) -> Figure:
    """With the dynamic cache, a token of `generate` takes at least a quarter less time with our layers."""
    return over_plain(device, DYNAMIC)


@claim("DK41", at_least(0.5), scope="timing")
def saves_what_the_step_saves(device: Device) -> Figure:
    """With the compiled static cache, our layers save at least half of the time that the early-launch step saves
    compared with the reduce-overhead step."""
    ways = (["ways", COMPILED, layers, "us"] for layers in (PLAIN_LAYERS, OUR_LAYERS))
    saved = difference(device, transformers_of(COMPILED), *ways)
    return unpaired_ratio(saved, step_saves(device))


def step_saves(device: Device) -> Figure:
    """The time that the early-launch step saves for a token, compared with the reduce-overhead step."""
    return paired_difference(device[tokens_of(REDUCE_OVERHEAD)], device[tokens_of(EARLY)], "iteration")


def over_plain(device: Device, way: str) -> Figure:
    """The time of a token with our layers over the time with plain layers."""
    upper, lower = (["ways", way, layers, "us"] for layers in (OUR_LAYERS, PLAIN_LAYERS))
    return ratio(device, transformers_of(way), upper, lower)


def fewer_of_a_layer(device: Device) -> Figure:
    """The kernels that our layers save for a token with the dynamic cache, of each layer."""
    counts = [kernel_count(device, DYNAMIC, layers) for layers in LAYERS]
    layers = MODELS[SMALL_MODEL][1].layers
    return Figure(round((counts[0].number - counts[1].number) / layers), origin=counts[0].origin)


def opening(device: Device) -> Html:
    """A token of `generate` with plain layers and with our layers, by cache, above the early-launch step."""
    tokens: dict[str, Figure] = {}
    for way, cache in CACHES.items():
        tokens |= {f"{heading}: {cache}": layers_us(device, way, each) for each, heading in LAYERS.items()}
    step = ("early-launch step: without transformers", steady_us(device, SMALL_MODEL, EARLY))
    return floor_bars(device, step, tokens, "Time of a token of generate, with 1.1 billion weights")


def transformers_table(device: Device) -> Html:
    """A token of `generate` by the kind of cache and of layers: time, kernels, and the answer."""
    rows: list[list[Cell]] = []
    for way, cache in CACHES.items():
        for layers, heading in LAYERS.items():
            rows.append([cache, heading, *_cells(device, way, layers)])
    head = ["cache", "layers", "time of a token", "kernels", "same token as float32", "equal first tokens"]
    return table("A token of generate with our layers and with plain layers", head, rows, text_columns=2)


def _cells(device: Device, way: str, layers: str) -> list[Cell]:
    try:
        figures = [of(device, way, layers) for of in (layers_us, kernel_count)]
        likely = entry(device, transformers_of(way), "ways", way, layers, "likely")
        equal = equal_tokens(device, way) if layers == OUR_LAYERS else None
    except NotTimed as error:
        return [str(error), None, None, None]
    tokens = int(entry(device, transformers_of(way), "tokens"))
    answers = [f"{likely} of {tokens}", None if equal is None else f"{equal} of {tokens}"]
    return [*map(figure_cell, figures), *answers]


FIGURES: Mapping[str, Measure] = {
    "generate_plain_kernels": lambda device: kernel_count(device, DYNAMIC, PLAIN_LAYERS),
    "generate_our_kernels": lambda device: kernel_count(device, DYNAMIC, OUR_LAYERS),
    "generate_fewer_of_a_layer": fewer_of_a_layer,
    "generate_compiled_saves": lambda device: percent_saved(over_plain(device, COMPILED)),
}
