"""Longer texts: cache against weights, keys split over blocks, and kinds of caches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kinetoscope.html import Cell, Html, table
from snippets.decoder.findings.probed import entry, ratio, time
from snippets.decoder.findings.reading import SMALL, floor_of
from snippets.lab.charts.bar_charts import stacked_bars, timing_bars, with_rest
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    at_most,
    between,
    claim,
    equals,
    format_value,
    percent,
    timing_of_samples,
    unpaired_ratio,
)
from snippets.lab.page import Computation, kernel_name_html, prediction as prediction, show as show

CONTEXTS, SPLITS, CACHES = "decoder/contexts", "decoder/split_keys", "decoder/cache_kinds"
LONGEST = "65536"
LARGE_HEADS = (32, 8, 128)
"""Query heads of the larger model, heads of keys and values, and numbers of a head."""
COMBINE = ("combine", "lean_reduction")
"""In the name of the kernel that adds up the parts of a split: of flash attention's, or of cuDNN's."""
KINDS = {
    "cat": "growing cache, read to its end",
    "static": "static cache, read to its end",
    "sliced": "static cache, read through a view",
    "paged": "paged cache, only the written part read",
}


def context_us(device: Device, tokens: str, kind: str = "sliced_us") -> Figure:
    """A decode step behind so many tokens."""
    return time(device, CONTEXTS, tokens, kind)


def floor_behind(device: Device, tokens: str) -> Figure:
    """The time of reading weights and cache behind so many tokens."""
    return floor_of(device, entry(device, CONTEXTS, tokens, "bytes"))


def even_context(device: Device) -> Figure:
    """The number of tokens whose cache has as many bytes as the weights."""
    return Figure(round(2 * SMALL.read_weights / SMALL.cache_bytes), origin="the sizes of the model")


@claim("DE36", at_least(1.1), scope="timing")
def long_context(device: Device) -> Figure:
    """A decode step takes at least a tenth longer after 65,536 earlier tokens than after 128 earlier tokens."""
    return unpaired_ratio(context_us(device, LONGEST), context_us(device, "128"))


@claim("DE37", between(1, 1.25), scope="timing")
def masked_over_sliced(device: Device) -> Figure:
    """After 65,536 earlier tokens, a mask adds at most a quarter to the time of a decode step."""
    return ratio(device, CONTEXTS, (LONGEST, "masked_us"), (LONGEST, "sliced_us"))


def points(device: Device, variant: str, batch: int = 1, kv_heads: int = 8) -> dict[int, Mapping[str, Any]]:
    """Tokens -> a point of the probe of split keys."""
    found = device[SPLITS].data["points"]
    chosen = [
        each for each in found if (each["variant"], each["batch"], each["kv_heads"]) == (variant, batch, kv_heads)
    ]
    if not chosen:
        raise NotTimed(f"{SPLITS} on {device.name} has no {variant} at batch {batch}")
    return {each["tokens"]: each for each in chosen}


def blocks(point: Mapping[str, Any]) -> int:
    """Blocks of the longest kernel of a point."""
    longest = max(point["kernels"], key=lambda kernel: float(kernel["us"]))
    return math.prod(longest["grid"] or (0,))


def combines(point: Mapping[str, Any]) -> bool:
    """Whether a second kernel adds up the parts of a split."""
    return any(part in kernel["name"] for kernel in point["kernels"] for part in COMBINE)


def growth_of_blocks(device: Device) -> Figure:
    """Blocks of attention at 16,384 tokens over those at 256."""
    each = points(device, "shared")
    return Figure(blocks(each[16384]) / blocks(each[256]), "x", origin=device[SPLITS].origin)


@claim("DE38", at_least(4))
def splits_grow(device: Device) -> Figure:
    """For one text, attention runs at least four times as many blocks after 16,384 tokens as after 256 tokens."""
    return growth_of_blocks(device)


def kernels_of_a_mask(device: Device) -> Figure:
    """How many kernels more attention of one query runs behind a mask, at 16,384 tokens."""
    masked, shared = (len(points(device, variant)[16384]["kernels"]) for variant in ("masked", "shared"))
    return Figure(masked - shared, origin=device[SPLITS].origin)


@claim("DE39", at_least(2))
def mask_adds_kernels(device: Device) -> Figure:
    """Attention of one query runs at least two kernels more with a mask than without a mask."""
    return kernels_of_a_mask(device)


@claim("DE40", equals(True))
def shared_heads_split(device: Device) -> Figure:
    """For one text of 16,384 tokens, attention splits the shared keys and values into parts, and a second kernel adds
    up the results."""
    return Figure(combines(points(device, "shared")[16384]), origin=device[SPLITS].origin)


@claim("DE78", equals(0))
def full_grid_without_split(device: Device) -> Figure:
    """For 32 texts of 1,024 tokens, attention runs no kernel that adds up partial results."""
    return Figure(int(combines(points(device, "shared", 32)[1024])), origin=device[SPLITS].origin)


@claim("DE41", at_least(1.5), scope="timing")
def cat_over_view(device: Device) -> Figure:
    """After 8,192 tokens, attention takes at least 1.5 times as long with a cache grown by `cat` as with a view of a
    static cache."""
    return ratio(device, CACHES, ("8192", "cat", "us"), ("8192", "sliced", "us"))


@claim("DE42", at_least(2), scope="timing")
def masked_cache(device: Device) -> Figure:
    """After 1,024 tokens, attention over all 16,384 positions of a cache takes at least twice as long as attention over
    the written part."""
    return ratio(device, CACHES, ("1024", "static", "us"), ("1024", "sliced", "us"))


@claim("DE43", at_most(3), scope="timing")
def pages(device: Device) -> Figure:
    """After 8,192 tokens, attention over pages takes at most three times as long as attention over a cache in one
    piece."""
    return ratio(device, CACHES, ("8192", "paged", "us"), ("8192", "sliced", "us"))


LONG = Computation(
    "How long does the GPU take to read the weights and the cache after 65,536 earlier tokens?",
    "decoder.long_floor_us",
    "{decoder.read_weight_bytes} of weights and {decoder.long_cache_bytes} of cache, at {decoder.read_rate}.",
    "Multiply the cache of a token by the number of tokens, add the weights, and divide the bytes by the rate.",
    {
        "decoder.long_cache_us": "your result is the time of reading the cache alone.",
        "decoder.short_floor_us": "your result is the time of reading the weights alone.",
    },
)


def opening(device: Device) -> Html:
    """One layer's attention behind 1,024 and 8,192 tokens, by the kind of cache."""
    groups = {
        heading: {
            f"{int(tokens):,} tokens": timing_of_samples(entry(device, CACHES, tokens, kind, "us"))
            for tokens in sorted(device[CACHES].data, key=int)
        }
        for kind, heading in KINDS.items()
    }
    caption = "Time of one layer's attention for eight texts, after 1,024 and after 8,192 tokens"
    return timing_bars(device, groups, caption, axis="time of attention")


def context_bars(device: Device) -> Html:
    """A step's time by context: reading weights, reading the cache, and the rest."""
    groups: dict[str, Sequence[tuple[str, float]]] = {}
    weights_us = floor_of(device, 2 * SMALL.read_weights).number
    for tokens in sorted(device[CONTEXTS].data, key=int):
        cache_us = floor_of(device, entry(device, CONTEXTS, tokens, "cache_bytes")).number
        computed = [("reading weights", weights_us), ("reading the cache", cache_us)]
        groups[f"{int(tokens):,} tokens"] = with_rest(context_us(device, tokens).number, computed, "the rest")
    kinds = {"reading weights": "copy", "reading the cache": "gemm", "the rest": "other"}
    return stacked_bars(
        device, groups, "Time of a decode step, by number of earlier tokens", axis="time of a step", kinds=kinds
    )


def context_table(device: Device) -> Html:
    """Steps by context, with a mask and with a view."""
    rows: list[list[Cell]] = []
    for tokens in sorted(device[CONTEXTS].data, key=int):
        view, masked = context_us(device, tokens), context_us(device, tokens, "masked_us")
        floor = floor_behind(device, tokens)
        share = percent(unpaired_ratio(floor, view))
        moved = format_value(entry(device, CONTEXTS, tokens, "cache_bytes"), "bytes")
        rows.append([f"{int(tokens):,}", moved, *map(figure_cell, (floor, view, masked, share))])
    head = [
        "earlier tokens",
        "bytes of the cache",
        "time of reading alone",
        "time of a step, with a view",
        "time of a step, with a mask",
        "rate of reading with a view, as a share of the highest rate",
    ]
    return table(
        "A decode step for one text, by number of earlier tokens, as a CUDA graph of eager kernels", head, rows
    )


def splits(device: Device) -> Html:
    """Attention of one query with the larger model's heads, by text: kernel, blocks, whether it splits, time, rate."""
    heads, kv_heads, head_dim = LARGE_HEADS
    rows: list[list[Cell]] = []
    for variant in ("shared", "repeated", "masked"):
        for tokens, point in points(device, variant).items():
            us = Figure.from_timing(timing_of_samples(point["us"]))
            moved = 2 * 2 * tokens * head_dim * (heads if variant == "repeated" else kv_heads)
            longest = max(point["kernels"], key=lambda kernel: float(kernel["us"]))
            split, reads = "yes" if combines(point) else "no", format_value(1e6 * moved / us.number, "bytes/s")
            cells = [f"{blocks(point):,}", split, figure_cell(us), reads]
            rows.append([variant, kernel_name_html(longest["name"]), f"{tokens:,}", *cells])
    head = ["keys and values", "longest kernel", "tokens", "blocks", "splits the keys", "time", "rate of reading"]
    return table(
        "Attention of one query, with 32 query heads and 8 heads of keys and values", head, rows, text_columns=2
    )


def caches(device: Device) -> Html:
    """Kinds of caches, behind short and long texts."""
    rows: list[list[Cell]] = []
    for kind, heading in KINDS.items():
        cells: list[Cell] = []
        for tokens in sorted(device[CACHES].data, key=int):
            found = device[CACHES].data[tokens][kind]
            if "us" not in found:
                cells += [str(found.get("stopped", "")), None]
                continue
            cells += [figure_cell(time(device, CACHES, tokens, kind, "us")), format_value(found["error"])]
        rows.append([heading, *cells])
    lengths = sorted(device[CACHES].data, key=int)
    head = [
        "cache",
        *(name for n in lengths for name in (f"time after {int(n):,} tokens", f"error after {int(n):,} tokens")),
    ]
    return table("One layer's attention for eight texts, by kind of cache", head, rows)


FIGURES: Mapping[str, Measure] = {
    "even_context": even_context,
    "even_context_of_hundred": lambda device: Figure(
        round(even_context(device).number / 100), origin="the sizes of the model, a hundred texts"
    ),
    "long_floor_us": lambda device: floor_behind(device, LONGEST),
    "short_floor_us": lambda device: floor_of(device, 2 * SMALL.read_weights),
    "long_cache_bytes": lambda device: Figure(
        int(LONGEST) * SMALL.cache_bytes, "bytes", origin="the sizes of the model"
    ),
    "long_cache_us": lambda device: floor_of(device, int(LONGEST) * SMALL.cache_bytes),
    "long_us": lambda device: context_us(device, LONGEST),
    "long_masked_us": lambda device: context_us(device, LONGEST, "masked_us"),
    "cache_rate_share": lambda device: percent(
        unpaired_ratio(floor_behind(device, LONGEST), context_us(device, LONGEST))
    ),
    "kernels_of_a_mask": kernels_of_a_mask,
    "blocks_of_32": lambda device: Figure(blocks(points(device, "shared", 32)[1024]), origin=device[SPLITS].origin),
    "multiprocessors": lambda device: Figure(device[SPLITS].environment.multiprocessors, origin=device.name),
}
