"""Steps for eight texts: the weights are read once for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Html
from snippets.decode_kernels.findings.names import EARLY, HEADINGS, ONE, REDUCE_OVERHEAD
from snippets.decode_kernels.findings.rung_pieces import shares, steady_bars
from snippets.decode_kernels.findings.rungs import (
    LARGE_MODEL,
    SMALL_MODEL,
    best_over_compiled,
    joules,
    model_floor,
    steady_us,
    tokens_per_s,
)
from snippets.decode_kernels.findings.waits import shared
from snippets.lab.finding import Device, Figure, Measure, at_most, claim, unpaired_ratio
from snippets.lab.page import Computation, prediction as prediction, show as show

TEXTS = 8


@claim("DK15", at_most(1), scope="timing")
def small_batch(device: Device) -> Figure:
    """With eight texts and 1.1 billion weights, the faster of the early-launch step and the one-kernel step takes no
    longer than the reduce-overhead step."""
    return best_over_compiled(device, SMALL_MODEL, TEXTS)


@claim("DK16", at_most(1), scope="timing")
def large_batch(device: Device) -> Figure:
    """With eight texts and 8 billion weights, the faster of the early-launch step and the one-kernel step takes no
    longer than the reduce-overhead step."""
    return best_over_compiled(device, LARGE_MODEL, TEXTS)


@claim("DK17", at_most(1.25), scope="timing")
def eight_texts(device: Device) -> Figure:
    """For the larger model, an early-launch step for eight texts takes at most a quarter longer than a step for one
    text."""
    return unpaired_ratio(*(steady_us(device, LARGE_MODEL, EARLY, batch) for batch in (TEXTS, 1)))


EIGHT = Computation(
    "How long does reading take for eight texts?",
    "decode_kernels.eight_floor_us",
    "the weights once, and eight caches, at {decode_kernels.read_rate}.",
    "Add the bytes of seven more caches to the bytes of a step for one text, and divide by the rate of reading.",
    {"decode_kernels.large_floor_us": "your result has the cache of one text."},
)


def opening(device: Device) -> Html:
    """The smaller model's steps for eight texts above their floor."""
    return steady_bars(device, SMALL_MODEL, TEXTS, HEADINGS, f"Time of a step with {SMALL_MODEL} weights")


def share_table(device: Device) -> Html:
    """The share of the highest rate of every step, by model and number of texts."""
    return shares(device, (1, TEXTS))


def eight_over_compiled(device: Device, variant: str = EARLY) -> Figure:
    """The time of a step of the smaller model for eight texts over the time of the reduce-overhead step."""
    return unpaired_ratio(*(steady_us(device, SMALL_MODEL, each, TEXTS) for each in (variant, REDUCE_OVERHEAD)))


FIGURES: Mapping[str, Measure] = {
    "eight_over_compiled": eight_over_compiled,
    "one_eight_over_compiled": lambda device: eight_over_compiled(device, ONE),
    "eight_floor_tokens_per_s": lambda device: tokens_per_s(model_floor(device, LARGE_MODEL, TEXTS), TEXTS),
    "small_eight_joules": lambda device: joules(device, SMALL_MODEL, EARLY, TEXTS),
    "small_eight_compiled_joules": lambda device: joules(device, SMALL_MODEL, REDUCE_OVERHEAD, TEXTS),
    "eight_joules": lambda device: joules(device, LARGE_MODEL, EARLY, TEXTS),
    "eight_compiled_joules": lambda device: joules(device, LARGE_MODEL, REDUCE_OVERHEAD, TEXTS),
    "eight_tokens_per_s": lambda device: tokens_per_s(steady_us(device, LARGE_MODEL, EARLY, TEXTS), TEXTS),
    "small_eight_tokens_per_s": lambda device: tokens_per_s(steady_us(device, SMALL_MODEL, EARLY, TEXTS), TEXTS),
    "small_one_tokens_per_s": lambda device: tokens_per_s(steady_us(device, SMALL_MODEL, EARLY)),
    "eight_floor_us": lambda device: model_floor(device, LARGE_MODEL, TEXTS),
    "eight_us": lambda device: steady_us(device, LARGE_MODEL, EARLY, TEXTS),
    "eight_token_us": lambda device: shared(steady_us(device, LARGE_MODEL, EARLY, TEXTS), TEXTS),
    "early_large_us": lambda device: steady_us(device, LARGE_MODEL, EARLY),
    "large_floor_us": lambda device: model_floor(device, LARGE_MODEL),
}
