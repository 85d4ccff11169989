"""Which step to take: what each asks of its user, and what it saves."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.in_transformers import COMPILED, OUR_LAYERS, layers_us
from snippets.decode_kernels.findings.names import (
    EARLY,
    GPT_FAST,
    HEADINGS,
    MAX_AUTOTUNE,
    MODELS,
    ONE,
    PLAIN,
    REDUCE_OVERHEAD,
    generate_of,
)
from snippets.decode_kernels.findings.rungs import LARGE_MODEL, SMALL_MODEL, steady_over, steady_us
from snippets.decoder.findings.probed import time
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    at_most,
    claim,
    percent_saved,
    unpaired_ratio,
)
from snippets.lab.page import show as show

GENERATE = "generate with a static cache"
"""The library transformers compiles the model by itself."""
GENERATE_OURS = "generate with a static cache and our layers"
GENERATING = {
    GENERATE: ('cache_implementation="static"', "any model of transformers, any GPU of torch.compile"),
    GENERATE_OURS: ("the same, and one function call", "a Llama in 16 bits, up to 16 texts, Ampere or later"),
}
WORK = {
    REDUCE_OVERHEAD: ("a static cache, and an argument of torch.compile", "any model, any GPU of torch.compile"),
    GPT_FAST: (
        "the same, with joined queries, keys and values, and tuning",
        "any model, any GPU of torch.compile",
    ),
    MAX_AUTOTUNE: ("joined projections and a CUDA graph, and minutes of tuning", "any model, any GPU of torch.compile"),
    PLAIN: ("use this chapter's kernels", "a Llama in bf16, up to 16 texts, Ampere or later"),
    EARLY: ("use this chapter's kernels", "the same, Hopper or later"),
    ONE: (
        "use this chapter's single kernel",
        "the same as the five-kernel step; all programs must run at the same time",
    ),
}
"""Variant -> what its user does, and where it runs. `GENERATING` is of the library transformers."""


@claim("DK29", at_most(0.85), scope="timing", is_advice=True)
def tuning_pays(device: Device) -> Figure:
    """For the smaller model, the max-autotune graph takes at least 15 % less time than the reduce-overhead step."""
    return steady_over(device, SMALL_MODEL, MAX_AUTOTUNE, REDUCE_OVERHEAD)


@claim("DK30", at_least(0.8), scope="timing", is_advice=True)
def little_left_to_save(device: Device) -> Figure:
    """For the larger model, the early-launch step saves at most a fifth of the max-autotune graph's time.

    The early-launch step reads the larger model at nearly the highest rate. So it saves nearly all of the max-autotune
    graph's time beyond reading, which is more than a fifth.
    """
    return steady_over(device, LARGE_MODEL, EARLY, MAX_AUTOTUNE)


def generate_us(device: Device, model: str) -> Figure:
    """The time of a token of `generate` with a static cache, which includes its stop check."""
    return time(device, generate_of(model), "variants", "static", "us")


def choices(device: Device) -> Html:
    """Every step: what its user does, where it runs, and its time over the reduce-overhead step's."""
    return _choices(device, WORK)


def generate_choices(device: Device) -> Html:
    """The same for `generate`, beside the steps that it compares with."""
    return _choices(device, GENERATING | {each: WORK[each] for each in (REDUCE_OVERHEAD, EARLY)})


def _choices(device: Device, work_of: Mapping[str, tuple[str, str]]) -> Html:
    rows: list[list[Cell]] = []
    for variant, work in work_of.items():
        heading = HEADINGS.get(variant, variant)
        rows.append([heading, *work, *(_over(device, model, variant) for model in MODELS)])
    head = ["step", "what you do", "where it runs", *(f"time, {model} weights" for model in MODELS)]
    return table("Time of each step, divided by the time of the reduce-overhead step", head, rows, text_columns=3)


def _over(device: Device, model: str, variant: str) -> Cell:
    try:
        if variant == GENERATE:
            return figure_cell(unpaired_ratio(generate_us(device, model), steady_us(device, model, REDUCE_OVERHEAD)))
        if variant == GENERATE_OURS:
            if model != SMALL_MODEL:
                return None
            own = layers_us(device, COMPILED, OUR_LAYERS)
            return figure_cell(unpaired_ratio(own, steady_us(device, model, REDUCE_OVERHEAD)))
        return figure_cell(steady_over(device, model, variant, REDUCE_OVERHEAD))
    except NotTimed:
        return None


FIGURES: Mapping[str, Measure] = {
    "autotuned_saves": lambda device: percent_saved(steady_over(device, SMALL_MODEL, MAX_AUTOTUNE, REDUCE_OVERHEAD)),
    "early_saves_large": lambda device: percent_saved(steady_over(device, LARGE_MODEL, EARLY, MAX_AUTOTUNE)),
    "early_saves_small": lambda device: percent_saved(steady_over(device, SMALL_MODEL, EARLY, MAX_AUTOTUNE)),
}
