"""How the caching allocator rounds, what it keeps, and how it runs out of memory that is free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from kinetoscope.html import Cell, Html, code, table
from snippets.lab.finding import Device, Figure, Run, at_least, claim, equals
from snippets.lab.page import show as show
from snippets.training_memory.findings.charts import memory_map
from snippets.training_memory.findings.drawn import Segment

ARTICLE = "Profiling in PyTorch: From nn.Linear to Fused MLP Optimization"
MIB = 1 << 20
SMALLEST, SMALL_SEGMENT, MIDDLE_SEGMENT = 512, 2 * MIB, 20 * MIB
SETTINGS: Mapping[str, str] = {
    "default": "default",
    "expandable segments": "expandable_segments:True",
    "large blocks whole": "max_split_size_mb:100",
}
"""Setting in the recording -> what a reader writes."""
HARMFUL, HARMLESS = "2 MiB", "1 MiB"
"""Sizes of the blocks that are kept: the first fragments memory."""
LISTED = (1, 513, MIB, MIB + 1, 10 * MIB, 39 * MIB // 2, 100 * MIB + 1)
"""Requests that the table lists."""


def allocators(device: Device) -> Run:
    """The run of the probe."""
    return device["training_memory/allocators"]


def setting(device: Device, name: str) -> Mapping[str, Any]:
    """The probe's data with one setting."""
    found: Mapping[str, Any] = allocators(device).data[name]
    return found


def fragmented(device: Device, name: str = "default", kept: str = HARMFUL) -> Mapping[str, Any]:
    """The data of the segment with blocks kept in it."""
    found: Mapping[str, Any] = setting(device, name)["fragmented"][kept]
    return found


def figure(device: Device, value: float | str | bool, unit: str = "", name: str = "default") -> Figure:
    """A figure of a setting."""
    return Figure(value, unit, origin=f"{allocators(device).origin}, {name}")


@claim("TM46", equals(True))
def rounds_to_512(device: Device) -> Figure:
    """The allocator rounds each request of up to 1 MiB up to the next multiple of 512 bytes."""
    rounded = (
        each["block"] == -(-each["request"] // SMALLEST) * SMALLEST
        for each in setting(device, "default")["rounding"]
        if each["request"] <= MIB
    )
    return figure(device, all(rounded))


def smallest_block(device: Device) -> Figure:
    """The block of a request for one byte."""
    return _size(device, setting(device, "default")["rounding"][0]["block"])


@claim("TM47", equals(True))
def segments_by_size(device: Device) -> Figure:
    """Requests of up to 1 MiB get segments of 2 MiB, requests below 10 MiB get segments of 20 MiB, and larger requests
    get segments of a multiple of 2 MiB."""
    right = (each["segments"] == segment_bytes(each["request"]) for each in setting(device, "default")["rounding"])
    return figure(device, all(right))


def segment_bytes(request: int) -> int:
    """The bytes of a new segment for a request, as PyTorch documents them."""
    if request <= MIB:
        return SMALL_SEGMENT
    return MIDDLE_SEGMENT if request < 10 * MIB else -(-request // (2 * MIB)) * 2 * MIB


def fails(device: Device, name: str, kept: str) -> bool:
    """Whether the large request ran out of memory."""
    return "out of memory" in fragmented(device, name, kept)["error"]


@claim("TM48", equals(True))
def fails_fragmented(device: Device) -> Figure:
    """By default, a large request fails if the program keeps blocks of 2 MiB between the free blocks."""
    return figure(device, fails(device, "default", HARMFUL))


def in_mib(size: int) -> str:
    """Bytes in the units of an allocator: `2 MiB`, `1 MiB + 1`, `513 bytes`."""
    whole, rest = divmod(size, MIB)
    if not whole:
        return f"{size:,} byte{'s' * (size != 1)}"
    if rest and rest * 10 % MIB == 0:
        return f"{size / MIB:.1f} MiB"
    return f"{whole} MiB" + (f" + {rest:,}" if rest else "")


def _size(device: Device, size: int) -> Figure:
    """A figure in mebibytes, as messages have them."""
    return replace(figure(device, size, "bytes"), display=in_mib(size))


def free_bytes(device: Device) -> Figure:
    """Bytes that are reserved and not allocated when the request fails."""
    before = fragmented(device)["interleaved"]
    return _size(device, before["reserved"] - before["allocated"])


def requested_bytes(device: Device) -> Figure:
    """Bytes of the request that fails."""
    match = re.search(r"Tried to allocate ([\d.]+) MiB", fragmented(device)["error"])
    return _size(device, int(float(match[1]) * MIB) if match else 0)


def largest_hole(device: Device) -> Figure:
    """The largest free block when the request fails."""
    blocks = (block for segment in segments(device, "default", HARMFUL) for block in segment.blocks)
    return _size(device, max(size for size, is_used in blocks if not is_used))


@claim("TM49", at_least(3))
def free_over_requested(device: Device) -> Figure:
    """When the large request fails, at least three times the requested bytes are free."""
    free, asked = free_bytes(device), requested_bytes(device)
    return figure(device, free.number / asked.number if asked.number else 0.0, "x")


def _cures(device: Device, name: str, kept: str) -> Figure:
    """Whether the request fails by default where blocks of 2 MiB are kept, and succeeds here."""
    return figure(device, fails(device, "default", HARMFUL) and not fails(device, name, kept), name=name)


@claim("TM50", equals(True))
def small_blocks_do_no_harm(device: Device) -> Figure:
    """If the program keeps blocks of 1 MiB instead of 2 MiB, the same large request succeeds."""
    return _cures(device, "default", HARMLESS)


@claim("TM51", equals(True))
def expandable_segments_help(device: Device) -> Figure:
    """With expandable segments, the large request that fails by default succeeds."""
    return _cures(device, "expandable segments", HARMFUL)


@claim("TM52", equals(True))
def whole_blocks_help(device: Device) -> Figure:
    """If the allocator doesn't split blocks above 100 MiB, the large request that fails by default succeeds."""
    return _cures(device, "large blocks whole", HARMFUL)


@claim("TM57", equals(True))
def cached_stays_reserved(device: Device) -> Figure:
    """When all blocks of a segment are released, the whole segment stays reserved."""
    cached, later = (fragmented(device)[moment] for moment in ("cached", "interleaved"))
    return figure(device, cached["allocated"] == 0 and cached["reserved"] == later["reserved"])


def segments(device: Device, name: str, kept: str) -> list[Segment]:
    """The segments of a setting with their blocks."""
    return [
        Segment("", tuple((size, bool(owner)) for size, owner in zip(each["blocks"], each["owners"], strict=True)))
        for each in fragmented(device, name, kept)["segments"]
    ]


def map_of_segments(device: Device) -> Html:
    """The largest segment with blocks of each size kept, and the request."""
    shown = [
        replace(
            max(segments(device, "default", kept), key=lambda each: each.size),
            heading=f"segment with blocks of {kept} kept",
        )
        for kept in (HARMFUL, HARMLESS)
    ]
    request = Segment("the request", ((int(requested_bytes(device).number), True),))
    return memory_map(device, [*shown, request], "The segment after every other block is released", size_text=in_mib)


def outcomes(device: Device) -> Html:
    """The outcome of the request with each setting."""
    rows: list[list[Cell]] = []
    for name in ("default", "expandable segments"):
        written = SETTINGS[name]
        found = fragmented(device, name)
        states = (found["interleaved"], found["asked"])
        sizes = (in_mib(state["reserved"]) for state in states)
        outcome = "out of memory" if fails(device, name, HARMFUL) else "succeeds"
        rows.append([code(written) if name != "default" else written, outcome, *sizes])
    head = ["allocator setting", "the request", "reserved before the request", "reserved after the request"]
    return table(
        "The same request with two settings of the allocator, between kept blocks of 2 MiB", head, rows, text_columns=2
    )


def rounding(device: Device) -> Html:
    """The bytes that requests of some sizes take, by setting."""
    default, expandable = (setting(device, name)["rounding"] for name in ("default", "expandable segments"))
    rows: list[list[Cell]] = [
        [in_mib(one["request"]), in_mib(one["block"]), *(in_mib(each["segments"]) for each in (one, other))]
        for one, other in zip(default, expandable, strict=True)
        if one["request"] in LISTED
    ]
    head = ["request", "block", "segment, by default", "expandable segment"]
    return table(
        "Block and segment of one request from an empty cache",
        head,
        rows,
        text_columns=0,
    )


def error_message(device: Device) -> Html:
    """The message of the failed request."""
    return as_printed(fragmented(device)["error"])


def as_printed(text: str) -> Html:
    """PyTorch's output, wrapped."""
    return Html(f'<div class="language-text highlight"><pre><code>{escape(text)}</code></pre></div>')
