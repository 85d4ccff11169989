"""Three ways to split the weights of a model, side by side: how much time splitting adds."""

from __future__ import annotations

from kinetoscope.html import Html
from snippets.lab.finding import Device
from snippets.lab.finding.probed import ratio
from snippets.lab.page import show as show, stacked_bars
from snippets.several_gpus.findings.pipeline import bubble
from snippets.several_gpus.findings.sharded import TOKENS
from snippets.several_gpus.findings.tensor_parallel import BOOK, rows_on

ALONE = "the same part of the work, without other GPUs"
ADDED = "transfers, copies and waiting that splitting adds"


def alone_percents(device: Device) -> dict[str, float]:
    """Way and size -> the time of the same work alone, in percent of the time with splitting.

    At most 100: noise can make the way with splitting the faster of the two.
    """
    mlp = ("widths", BOOK, "8192")
    percents = {
        f"sharded weights, {int(tokens):,} tokens": 100
        * ratio(device, TOKENS, (tokens, "alone"), (tokens, "per_block")).number
        for tokens in ("512", "8192")
    }
    split = ratio(device, rows_on(2), (*mlp, "alone", "us"), (*mlp, "reduced", "us"))
    percents["split MLP, hidden width 3,072"] = 100 * split.number
    percents |= {f"pipeline, {count} micro-batches": 100 - bubble(device, 2, count).number for count in (2, 8)}
    return {name: min(100.0, percent) for name, percent in percents.items()}


def opening(device: Device) -> Html:
    """How much of the time is the same work alone, by way to split the weights and by size."""
    groups = {name: [(ALONE, percent), (ADDED, 100 - percent)] for name, percent in alone_percents(device).items()}
    caption = "Time that splitting the weights adds, as a share of the time on two GPUs"
    kinds = {ALONE: "gemm", ADDED: "other"}
    return stacked_bars(device, groups, caption, unit="%", axis="share of the time", kinds=kinds)
