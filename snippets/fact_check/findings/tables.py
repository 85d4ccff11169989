"""The tables of the page: an article's Linear, and the block at every size."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kinetoscope.html import Cell, Html, code, note, table
from snippets.fact_check.findings.block import BLOCK_US, FUSED_US, GELU_US, LINEAR_US, table_tokens
from snippets.fact_check.findings.sweep import PRECISIONS, block_timing, gain, gain_at, sizes, time_at
from snippets.lab.finding import Device, NotRecorded, NotTimed, format_value
from snippets.lab.finding.mismatch import reading
from snippets.lab.finding.other_device import H100, recorded
from snippets.lab.page import figure_cell, kernel_name_html, show as show


def article_rows(device: Device) -> Html:
    """The rows of the table that the article prints: what each is, and its time on the GPU."""
    rows: list[Sequence[Cell]] = []
    for row in device["fact_check/article_table"].data["rows"]:
        if row["device_us"]:
            name = str(row["name"])
            kind = _kind(name, row["is_kernel"])
            shown = kernel_name_html(name) if kind == "kernel" else code(name)
            times = (format_value(row[key], "us") for key in ("self_device_us", "device_us"))
            rows.append([shown, kind, *times])
    head = ["row", "what it is", "Self CUDA", "CUDA total"]
    return table(
        "The profiler's table of the first call of the tutorial's Linear: its rows with GPU time",
        head,
        rows,
        text_columns=2,
    )


def _kind(name: str, is_kernel: bool) -> str:
    """The kind of a table row, from its name and from whether the GPU ran it."""
    if name == "linear_forward":
        return "annotation, on the GPU" if is_kernel else "annotation"
    if is_kernel:
        return "kernel"
    return "operator" if name.startswith("aten::") else "CUDA call" if name.startswith("cuda") else "overhead"


def h100_table(device: Device) -> Html:
    """The rows of the article's table, and the same parts on the recorded H100 where the Linear takes as long.

    The same on every tab; without an H100, the parts on this device.
    """
    try:
        there = recorded(device, H100)
    except NotRecorded:
        return _h100_table(device)
    with reading(there) as noted:
        return _h100_table(noted)


def _h100_table(device: Device) -> Html:
    rows: list[Sequence[Cell]] = [
        [
            "the article, on an H100",
            "not said",
            *(format_value(us, "us") for us in (LINEAR_US, GELU_US, BLOCK_US, FUSED_US)),
            format_value(BLOCK_US / FUSED_US, "x"),
        ]
    ]
    for arithmetic, name in PRECISIONS.items():
        try:
            tokens = table_tokens(device, arithmetic)
        except NotTimed:
            continue
        times = [
            figure_cell(time_at(device, arithmetic, tokens, each)) for each in ("linear", "gelu", "block", "fused")
        ]
        rows.append([name, f"{round(tokens, -2):,.0f}", *times, figure_cell(gain_at(device, arithmetic, tokens))])
    head = ["", "tokens", "Linear", "GELU", "block", "fused block", "speedup"]
    ours = f"our times on the {device.short_name} where the Linear takes the article's time"
    caption = f"The article's times on an H100, and {ours}"
    pairs = note(
        "Each speedup is a median over pairs of times, so it can differ from the ratio of the two times next to it."
    )
    return Html(table(caption, head, rows) + pairs)


def gains(device: Device) -> Html:
    """The block's time and the gain of fusing GELU, by tokens and arithmetic."""
    rows: list[Sequence[Cell]] = []
    for tokens in sorted({tokens for arithmetic in PRECISIONS for tokens in sizes(device, arithmetic)}):
        rows.append([f"{tokens:,}", *(_gain_cell(device, arithmetic, tokens) for arithmetic in PRECISIONS)])
    head = ["tokens", *PRECISIONS.values()]
    return table(
        "GPU time of the eager block (Linear, GELU, Linear), and speedup of the block with fused GELU", head, rows
    )


def _gain_cell(device: Device, arithmetic: str, tokens: int) -> Cell:
    """The eager block's time, and below it the speedup of the fused block; None without times."""
    try:
        us, ratio = block_timing(device, arithmetic, tokens, "block").median_us, gain(device, arithmetic, tokens)
    except NotTimed:
        return None
    return Html(f"{escape(format_value(us, 'us'))}<small>fused: {escape(ratio.text)}</small>")
