"""What the caching allocator rounds to and keeps, how it runs out of memory that is free, and what shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from snippets.lab.drawing.memory import Segment
from snippets.lab.drawing.memory_charts import memory_map
from snippets.lab.finding import Device, Figure, Run, Source, at_least, claim, equals
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page import show as show
from snippets.lab.trace.units import format_value

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
CACHED = "cached"
SUMMARIZED = ("Allocated memory", "GPU reserved memory", "Non-releasable memory", "Non-releasable allocs")
"""Rows of memory_summary() that tell."""
PREFIXES = ("B", "KiB", "MiB", "GiB")


def allocators(device: Device) -> Run:
    """The run of the probe."""
    return device["training_memory/allocators"]


def setting(device: Device, name: str) -> Mapping[str, Any]:
    """What the probe found with one setting."""
    found: Mapping[str, Any] = allocators(device).data[name]
    return found


def fragmented(device: Device, name: str = "default", kept: str = HARMFUL) -> Mapping[str, Any]:
    """What became of the segment with blocks kept in it."""
    found: Mapping[str, Any] = setting(device, name)["fragmented"][kept]
    return found


def figure(device: Device, value: float | str | bool, unit: str = "", name: str = "default") -> Figure:
    """A figure of a setting."""
    return Figure(value, unit, origin=f"{allocators(device).origin}, {name}")


@claim("TM46", equals(True))
def rounds_to_512(device: Device) -> Figure:
    """The allocator rounds a request of up to 1 MiB up to a multiple of 512 bytes."""
    rounded = (
        each["block"] == -(-each["request"] // SMALLEST) * SMALLEST
        for each in setting(device, "default")["rounding"]
        if each["request"] <= MIB
    )
    return figure(device, all(rounded))


@claim("TM47", equals(True))
def segments_by_size(device: Device) -> Figure:
    """A segment has 2 MiB for a request of up to 1 MiB, 20 MiB below 10 MiB, and else a multiple of 2 MiB."""
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
    """By default, the large request fails where blocks of 2 MiB are kept."""
    return figure(device, fails(device, "default", HARMFUL))


def free_bytes(device: Device) -> Figure:
    """Bytes that are reserved and not allocated when the request fails."""
    before = fragmented(device)["interleaved"]
    return figure(device, before["reserved"] - before["allocated"], "bytes")


def requested_bytes(device: Device) -> Figure:
    """Bytes of the request that fails."""
    match = re.search(r"Tried to allocate ([\d.]+) MiB", fragmented(device)["error"])
    return figure(device, int(float(match[1]) * MIB) if match else 0, "bytes")


def largest_hole(device: Device) -> Figure:
    """The largest free block when the request fails."""
    blocks = (block for segment in segments(device, "default", HARMFUL) for block in segment.blocks)
    return figure(device, max(size for size, is_used in blocks if not is_used), "bytes")


@claim("TM49", at_least(3))
def free_over_requested(device: Device) -> Figure:
    """When the request fails, at least three times its bytes are free."""
    free, asked = free_bytes(device), requested_bytes(device)
    return figure(device, free.number / asked.number if asked.number else 0.0, "x")


def _cures(device: Device, name: str, kept: str) -> Figure:
    """Whether the request fails by default where blocks of 2 MiB are kept, and succeeds here."""
    return figure(device, fails(device, "default", HARMFUL) and not fails(device, name, kept), name=name)


@claim("TM50", equals(True))
def small_blocks_do_no_harm(device: Device) -> Figure:
    """Where blocks of 1 MiB are kept instead, the same request succeeds."""
    return _cures(device, "default", HARMLESS)


@claim("TM51", equals(True))
def expandable_segments_help(device: Device) -> Figure:
    """With expandable segments, the request that failed succeeds."""
    return _cures(device, "expandable segments", HARMFUL)


@claim("TM52", equals(True))
def whole_blocks_help(device: Device) -> Figure:
    """Where blocks above 100 MiB are not split, the request that failed succeeds."""
    return _cures(device, "large blocks whole", HARMFUL)


def printed(device: Device, state: str) -> dict[str, str]:
    """Row of what memory_summary() printed -> what is in use now: of the `cached` segment, or with blocks of a size."""
    found = fragmented(device, "default", HARMFUL if state == CACHED else state)
    text = found["cached_summary" if state == CACHED else "summary"]
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    return {row[1]: row[2] for row in cells if len(row) > 3 and row[1] in SUMMARIZED}


def bytes_printed(text: str) -> int:
    """`532480 KiB` -> bytes."""
    number, unit = text.split()
    return int(number) << 10 * PREFIXES.index(unit)


def non_releasable(device: Device, state: str) -> float:
    """The share of the reserved memory that memory_summary() calls non-releasable, in percent."""
    rows = printed(device, state)
    sizes = [bytes_printed(rows[name]) for name in ("Non-releasable memory", "GPU reserved memory")]
    return 100 * sizes[0] / sizes[1]


@claim("TM53", at_least(90), source=Source(ARTICLE, "memory_summary() can reveal fragmentation", device=""))
def summary_tells(device: Device) -> Figure:
    """memory_summary() tells a fragmented segment from a free one, as an article says: of the fragmented segment's
    bytes, at least 90 % more are non-releasable.
    """
    fragmented_share, *others = (non_releasable(device, state) for state in (HARMFUL, CACHED, HARMLESS))
    return figure(device, fragmented_share - max(others), "%")


def profiled(device: Device, kept: str) -> dict[str, tuple[int, int]]:
    """Name in the profiler's table -> calls and bytes, of the program that keeps blocks of a size."""
    rows = setting(device, "default")["profiled"][kept]
    return {row["name"]: (row["calls"], row["bytes"]) for row in rows}


@claim(
    "TM54",
    equals(True),
    source=Source(ARTICLE, "with the profiler, if certain operations are creating many small allocations", device=""),
)
def profiler_counts(device: Device) -> Figure:
    """The profiler's table counts the allocations of the operation that keeps small blocks, as the article has it."""
    blocks = [owner for segment in fragmented(device)["segments"] for owner in segment["owners"] if owner]
    calls, held = profiled(device, HARMFUL)["keep"]
    return figure(device, calls == len(blocks) and held == len(blocks) * 2 * MIB)


@claim("TM55", equals(True))
def profiler_is_blind(device: Device) -> Figure:
    """The profiler's table has the same calls for the program whose request fails and for the one whose succeeds."""
    calls = [{name: row[0] for name, row in profiled(device, kept).items()} for kept in (HARMFUL, HARMLESS)]
    outcomes = [fails(device, "default", kept) for kept in (HARMFUL, HARMLESS)]
    return figure(device, calls[0] == calls[1] and outcomes == [True, False])


@claim("TM56", equals("keep"))
def snapshot_names(device: Device) -> Figure:
    """The snapshot names the function that allocated each block in the way."""
    owners = {owner for segment in fragmented(device)["segments"] for owner in segment["owners"] if owner}
    return figure(device, ", ".join(sorted(owners)))


@claim("TM57", equals(True))
def cached_stays_reserved(device: Device) -> Figure:
    """A released segment stays reserved as a whole, although nothing in it is allocated."""
    cached, later = (fragmented(device)[moment] for moment in ("cached", "interleaved"))
    return figure(device, cached["allocated"] == 0 and cached["reserved"] == later["reserved"])


def context(device: Device) -> Figure:
    """What the driver takes for a process before PyTorch asks for anything."""
    return figure(device, setting(device, "default")["context"], "bytes")


def segments(device: Device, name: str, kept: str, moment: str = "segments") -> list[Segment]:
    """The segments of a setting with their blocks."""
    return [
        Segment("", tuple((size, bool(owner)) for size, owner in zip(each["blocks"], each["owners"], strict=True)))
        for each in fragmented(device, name, kept)[moment]
    ]


def map_of_segments(device: Device) -> Html:
    """The largest segment with blocks of each size kept, and the request."""
    shown = [
        replace(max(segments(device, "default", kept), key=lambda each: each.size), heading=f"blocks of {kept} kept")
        for kept in (HARMFUL, HARMLESS)
    ]
    request = Segment("the request", ((int(requested_bytes(device).number), True),))
    return memory_map(device, [*shown, request], "The segment after every other block is released")


def outcomes(device: Device) -> Html:
    """What becomes of the request with each setting."""
    rows: list[list[Cell]] = []
    for name, written in SETTINGS.items():
        found = fragmented(device, name)
        states = (found["interleaved"], found["asked"])
        sizes = (format_value(state["reserved"], "bytes") for state in states)
        outcome = "out of memory" if fails(device, name, HARMFUL) else "succeeds"
        rows.append([code(written) if name != "default" else written, outcome, *sizes])
    head = ["allocator", "the request", "reserved before it", "reserved after it"]
    return table("One request with three settings of the allocator, blocks of 2 MiB kept", head, rows, text_columns=2)


def rounding(device: Device) -> Html:
    """What requests of some sizes take, by setting."""
    default, expandable = (setting(device, name)["rounding"] for name in ("default", "expandable segments"))
    rows: list[list[Cell]] = [
        [
            f"{one['request']:,}",
            f"{one['block']:,}",
            *(format_value(each["segments"], "bytes") for each in (one, other)),
        ]
        for one, other in zip(default, expandable, strict=True)
    ]
    head = ["bytes requested", "bytes of the block", "reserved", "reserved, expandable"]
    return table("What one request takes from an empty cache", head, rows, text_columns=0)


def summaries(device: Device) -> Html:
    """What memory_summary() says is in use, in three states."""
    states = {"one free segment": CACHED, "2 MiB kept": HARMFUL, "1 MiB kept": HARMLESS}
    columns = [printed(device, state) for state in states.values()]
    rows: list[list[Cell]] = [[code(row), *(column[row] for column in columns)] for row in SUMMARIZED]
    return table("memory_summary() in three states: its column Cur Usage", ["", *states], rows)


def error_message(device: Device) -> Html:
    """The message of the failed request."""
    return Html(f"<pre data-search-exclude><code>{escape(fragmented(device)['error'])}</code></pre>")


def profiler_rows(device: Device) -> Html:
    """The profiler's table for both programs."""
    both = [profiled(device, kept) for kept in (HARMFUL, HARMLESS)]
    rows: list[list[Cell]] = [
        [code(name), *(cell for found in both for cell in _cells(found.get(name)))] for name in both[0]
    ]
    head = ["name", "calls, 2 MiB", "bytes, 2 MiB", "calls, 1 MiB", "bytes, 1 MiB"]
    return table("The profiler's table for both programs", head, rows)


def _cells(row: tuple[int, int] | None) -> tuple[Cell, Cell]:
    return (row[0], format_value(row[1], "bytes")) if row else (None, None)
