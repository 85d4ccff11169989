"""Whether GELU reads from memory: its rate right after the product that wrote its input, and what fusing saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinetoscope.html import Cell, Html, table
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotRecorded,
    NotTimed,
    at_least,
    at_most,
    between,
    claim,
    timing_of_samples,
)
from snippets.lab.finding.measure import difference_of_pairs, largest, ratio_of_pairs, unpaired_ratio
from snippets.lab.page import figure_cell, show as show
from snippets.lab.recording.schema import Timing

BF16_BYTES = 2
HIDDEN = 4096
OPS: Mapping[str, str] = {"gelu": "GELU", "negation": "negation"}
"""What ran after the product -> its name on the page."""


def cache_data(device: Device) -> Mapping[str, Any]:
    """The data of the cache probe. Raises `NotRecorded` for data of an earlier form."""
    found: Mapping[str, Any] = device["regimes/in_cache"].data
    if "op_us" not in found:
        raise NotRecorded("regimes/in_cache has no 'op_us'; make record CHAPTER=regimes")
    return found


def cache_sizes(device: Device) -> list[int]:
    """Numbers of tokens of that probe."""
    return sorted(int(tokens) for tokens in cache_data(device)["op_us"]["gelu"])


def gelu_bytes(tokens: int) -> int:
    """The bytes that GELU reads and writes."""
    return 2 * BF16_BYTES * tokens * HIDDEN


def op_rate(device: Device, op: str, tokens: int, when: str) -> Figure:
    """The rate of GELU or of a negation right `after` the product that wrote its input, or with the cache `flushed`."""
    timing = timing_of_samples(cache_data(device)["op_us"][op][str(tokens)][when])
    low, high = (gelu_bytes(tokens) / us * 1e6 for us in reversed(timing.spread_us))
    origin = f"{device['regimes/in_cache'].origin}, {op}, {tokens} tokens, {when}"
    return Figure(gelu_bytes(tokens) / timing.median_us * 1e6, "bytes/s", (low, high), origin)


def copy_rate(device: Device) -> Figure:
    """The rate of a large copy in the same process."""
    copy = cache_data(device)["copy"]
    timing = timing_of_samples(copy["us"])
    low, high = (copy["bytes"] / us * 1e6 for us in reversed(timing.spread_us))
    origin = f"{device['regimes/in_cache'].origin}, copy"
    return Figure(copy["bytes"] / timing.median_us * 1e6, "bytes/s", (low, high), origin)


def of_copy(device: Device, op: str, tokens: int) -> Figure:
    """The rate of GELU or of a negation, right after its product / the rate of a large copy."""
    return unpaired_ratio(op_rate(device, op, tokens, "after"), copy_rate(device))


@claim("RG66", at_most(1), scope="timing")
def slower_than_a_negation(device: Device) -> Figure:
    """With 64 to 16,384 tokens, GELU moves its bytes no faster than a negation does, both right after its product and
    from memory."""
    return largest(
        *(
            unpaired_ratio(*(op_rate(device, op, tokens, when) for op in ("gelu", "negation")))
            for tokens in cache_sizes(device)
            for when in ("after", "flushed")
        )
    )


def step_timing(device: Device, tokens: int, step: str) -> Timing:
    """Times of a step of the layer: `linear`, `eager`, `epilogue` or `fused`."""
    return timing_of_samples(cache_data(device)["step_us"][str(tokens)][step])


def fused_over(device: Device, step: str, tokens: int) -> Figure:
    """The fused kernel's time / that of another step of the layer."""
    fused, other = (step_timing(device, tokens, name) for name in ("fused", step))
    return ratio_of_pairs(fused, other, f"{device['regimes/in_cache'].origin}, fused over {step}, {tokens} tokens")


def fused_loses_from(device: Device) -> Figure:
    """The smallest number of tokens at which the fused kernel takes longer than eager's two. Raises `NotTimed`."""
    for tokens in cache_sizes(device):
        ratio = fused_over(device, "eager", tokens)
        if ratio.number > 1:
            return Figure(tokens, origin=ratio.origin)
    raise NotTimed("regimes/in_cache: the fused kernel loses at no size")


def saved_by_epilogue(device: Device, tokens: int) -> Figure:
    """Time that cuBLAS's GELU epilogue saves of eager's two kernels."""
    eager, fused = (step_timing(device, tokens, step) for step in ("eager", "epilogue"))
    origin = f"{device['regimes/in_cache'].origin}, eager less epilogue, {tokens} tokens"
    return difference_of_pairs(eager, fused, origin)


def as_copy_us(device: Device, tokens: int) -> Figure:
    """The time of a large copy for the bytes that GELU reads and writes."""
    rate = copy_rate(device)
    low, high = (1e6 * gelu_bytes(tokens) / each for each in reversed(rate.bounds))
    return Figure(1e6 * gelu_bytes(tokens) / rate.number, "us", (low, high), rate.origin)


def cache_table(device: Device) -> Html:
    """The rates of GELU and of a negation right after their input was written, and from memory."""
    rows: list[list[Cell]] = []
    for tokens in cache_sizes(device):
        rates = (op_rate(device, op, tokens, when) for op in OPS for when in ("after", "flushed"))
        rows.append([f"{tokens:,}", Figure(gelu_bytes(tokens) / 2, "bytes").text, *map(figure_cell, rates)])
    headings = [f"{name}, {when}" for name in OPS.values() for when in ("right after", "from memory")]
    caption = (
        f"Rates of GELU and a negation, after the product and from memory (a large copy: {copy_rate(device).text})"
    )
    return table(caption, ["tokens", "input", *headings], rows)


def saved_table(device: Device) -> Html:
    """The saving of cuBLAS's epilogue, and the time of GELU's bytes at a large copy's rate."""
    rows = [
        [f"{tokens:,}", figure_cell(as_copy_us(device, tokens)), figure_cell(saved_by_epilogue(device, tokens))]
        for tokens in cache_sizes(device)
    ]
    head = ["tokens", "time of a large copy of GELU's bytes", "time saved by cuBLAS's epilogue"]
    return table("Time that fusing GELU saves", head, rows)


def step_table(device: Device) -> Html:
    """The Linear alone, and with its GELU in eager's two kernels, in cuBLAS's epilogue and in the chapter's kernel, on
    the GPU."""
    steps = {"linear": "product alone", "eager": "eager", "epilogue": "cuBLAS's epilogue", "fused": "fused kernel"}
    rows: list[list[Cell]] = [
        [f"{tokens:,}", *(figure_cell(Figure.from_timing(step_timing(device, tokens, step))) for step in steps)]
        for tokens in cache_sizes(device)
    ]
    return table("Interleaved times of a Linear and its GELU", ["tokens", *steps.values()], rows)


@claim("RG55", at_most(1), scope="timing")
def gelu_of_copy(device: Device) -> Figure:
    """With 64 to 16,384 tokens, eager's GELU moves its bytes no faster than a large copy, even right after the product
    that wrote its input."""
    return largest(*(of_copy(device, "gelu", tokens) for tokens in cache_sizes(device)))


@claim("RG56", at_least(1.1), scope="timing")
def negation_of_copy(device: Device) -> Figure:
    """With 2048 tokens, a negation right after the product that wrote its input moves its bytes at least a tenth faster
    than a large copy."""
    return of_copy(device, "negation", 2048)


@claim("RG57", at_least(1.05), scope="timing")
def cached_at_2048(device: Device) -> Figure:
    """With 2048 tokens, GELU is at least a twentieth faster right after its product than after other data has filled
    the L2 cache."""
    return cached_over_memory(device, "gelu", 2048)


@claim("RG58", between(0.95, 1.05), scope="timing")
def cached_at_8192(device: Device) -> Figure:
    """With 8192 tokens, GELU's rate right after its product is within a twentieth of its rate from memory."""
    return cached_over_memory(device, "gelu", 8192)


@claim("RG59", at_least(3), scope="timing")
def saved_over_copy(device: Device) -> Figure:
    """With 64 tokens, cuBLAS's GELU epilogue saves at least three times the time that GELU's bytes take at the rate of
    a large copy."""
    return unpaired_ratio(saved_by_epilogue(device, 64), as_copy_us(device, 64))


def cached_over_memory(device: Device, op: str, tokens: int) -> Figure:
    """The rate of GELU or of a negation right after its product over that with other data in the cache."""
    return unpaired_ratio(*(op_rate(device, op, tokens, when) for when in ("after", "flushed")))


FIGURES: Mapping[str, Measure] = {
    "fastest_gelu": lambda device: largest(
        *(op_rate(device, "gelu", tokens, "after") for tokens in cache_sizes(device))
    ),
    "gelu_of_negation": lambda device: unpaired_ratio(
        *(op_rate(device, op, 16384, "flushed") for op in ("gelu", "negation"))
    ),
    "l2_bytes": lambda device: Figure(int(cache_data(device)["l2_bytes"]), "bytes", origin=device.name),
    "large_copy_rate": copy_rate,
}
