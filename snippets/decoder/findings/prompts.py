"""Prefill: from how many tokens a prompt is compute-bound, and what its kernels do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.kernel_names import decode_kernel_name
from snippets.decoder.findings.ladder import token_us
from snippets.decoder.findings.probed import entry, rate, time
from snippets.decoder.findings.reading import ceiling, floor_of
from snippets.lab.charts.bar_charts import stacked_bars
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    claim,
    format_value,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import floor_bars, show as show

PROMPTS = "decoder/prefill_lengths"
KINDS: Mapping[str, str] = {"gemm": "products", "gemv": "products", "attention": "attention"}
LOOKS = {"products": "gemm", "attention": "other", "the rest": "pointwise"}


def lengths(device: Device) -> list[str]:
    """The prompts' tokens, from few to many."""
    return sorted(device[PROMPTS].data, key=int)


def prompt_us(device: Device, tokens: str) -> Figure:
    """The time of a prompt of so many tokens."""
    return time(device, PROMPTS, tokens, "us")


def flops_share(device: Device, tokens: str) -> Figure:
    """The rate at which a prompt is multiplied, in percent of a large product's."""
    reached = rate(entry(device, PROMPTS, tokens, "flops"), prompt_us(device, tokens), "flop/s")
    return percent(unpaired_ratio(reached, ceiling(device, "matmul")))


def share_of(device: Device, tokens: str, kind: str) -> Figure:
    """The share of a prompt's GPU time that kernels of a kind take."""
    times = by_kind(entry(device, PROMPTS, tokens, "kernels"))
    share = 100 * times.get(kind, 0.0) / math.fsum(times.values())
    return Figure(share, "%", origin=f"{device[PROMPTS].origin}, {tokens} tokens")


def by_kind(kernels: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Kind -> time of a prompt's kernels, which are counted and summed by name."""
    times = dict.fromkeys(LOOKS, 0.0)
    for name, found in kernels.items():
        times[KINDS.get(decode_kernel_name(name).operation, "the rest")] += found["us"]
    return times


@claim("DE30", at_most(2), scope="timing")
def short_prompt(device: Device) -> Figure:
    """In CUDA graphs of eager kernels, a prompt of 16 tokens takes at most twice the time of one token."""
    return unpaired_ratio(prompt_us(device, "16"), token_us(device, "graph"))


@claim("DE31", at_least(50), scope="timing")
def long_prompt(device: Device) -> Figure:
    """For a prompt of 2048 tokens, the GPU multiplies at half or more of the rate of a large product."""
    return flops_share(device, "2048")


@claim("DE32", at_least(50), scope="timing")
def mostly_products(device: Device) -> Figure:
    """In prompts of 1024 and of 2048 tokens, products take at least half of the GPU's time."""
    shares = [share_of(device, tokens, "products") for tokens in ("1024", "2048")]
    low, high = sorted(share.number for share in shares)
    return Figure(low, "%", (low, high), shares[0].origin)


def prompt_token_us(device: Device) -> Figure:
    """The time of a prompt of 2048 tokens, for each of its tokens."""
    us = prompt_us(device, "2048")
    low, high = us.bounds
    return Figure(us.number / 2048, "us", (low / 2048, high / 2048), us.origin)


def opening(device: Device) -> Html:
    """A token of a prompt and a token of an answer."""
    read = ("a token of a prompt of 2,048 tokens", prompt_token_us(device))
    written = {"a token of an answer of one text": token_us(device, "graph")}
    return floor_bars(device, read, written, "Time of one token in a prompt and in an answer, with 1.1 billion weights")


def table_of_prompts(device: Device) -> Html:
    """Prompts of more and more tokens: time, time of a token, and both floors."""
    rows: list[list[Cell]] = []
    for tokens in lengths(device):
        us = prompt_us(device, tokens)
        reading = floor_of(device, entry(device, PROMPTS, tokens, "bytes"))
        flops = entry(device, PROMPTS, tokens, "flops")
        arithmetic = 1e6 * flops / ceiling(device, "matmul").number
        per_token = format_value(us.number / int(tokens), "us")
        floors = [format_value(reading.number, "us"), format_value(arithmetic, "us")]
        rows.append([f"{int(tokens):,}", figure_cell(us), per_token, *floors, figure_cell(flops_share(device, tokens))])
    head = [
        "tokens",
        "time of the prompt",
        "time per token",
        "time of reading alone",
        "time of multiplying alone",
        "share of a large product's rate",
    ]
    return table("Time of a prompt, by number of tokens", head, rows)


def kinds_bars(device: Device) -> Html:
    """What the kernels of a short and of a long prompt do."""
    groups = {
        f"{int(tokens):,} tokens": list(by_kind(entry(device, PROMPTS, tokens, "kernels")).items())
        for tokens in ("16", "512", "2048")
    }
    caption = "GPU time of a prompt, by kind of kernel"
    return stacked_bars(device, groups, caption, axis="GPU time of a prompt", kinds=LOOKS)


FIGURES: Mapping[str, Measure] = {
    "prompt_token_us": prompt_token_us,
    "prompt_16_us": lambda device: prompt_us(device, "16"),
    "prompt_16_over_token": lambda device: unpaired_ratio(prompt_us(device, "16"), token_us(device, "graph")),
    "prompt_2048_us": lambda device: prompt_us(device, "2048"),
    "prompt_2048_share": lambda device: flops_share(device, "2048"),
    "prompt_2048_products": lambda device: share_of(device, "2048", "products"),
}
