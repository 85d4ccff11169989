"""The reports of memory_summary(), the profiler and a snapshot on a fragmented segment: an article's tip, tested."""

from __future__ import annotations

from kinetoscope.html import Cell, Html, code, details, table
from snippets.lab.finding import Device, Figure, Source, at_least, claim, equals
from snippets.lab.page import show as show
from snippets.training_memory.findings.allocator import (
    ARTICLE,
    HARMFUL,
    HARMLESS,
    MIB,
    fails,
    figure,
    fragmented,
    in_mib,
    segments,
    setting,
)

CACHED = "cached"
SUMMARIZED = ("Allocated memory", "GPU reserved memory", "Non-releasable memory", "Non-releasable allocs")
"""Rows of memory_summary() that tell."""
COLUMNS = 5
"""Of the table that memory_summary() prints."""
PREFIXES = ("B", "KiB", "MiB", "GiB")


def printed(device: Device, state: str) -> dict[str, str]:
    """Row of memory_summary()'s output -> bytes in use now: of the `cached` segment, or with blocks of a size."""
    found = fragmented(device, "default", HARMFUL if state == CACHED else state)
    return printed_rows(found["cached_summary" if state == CACHED else "summary"])


def printed_rows(text: str) -> dict[str, str]:
    """Row of memory_summary()'s output -> bytes in use now."""
    cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    return {row[1]: row[2] for row in cells if len(row) > 3 and row[1] in SUMMARIZED}


def all_printed(text: str) -> Html:
    """The table of memory_summary(), in a form that fits a phone: its lines for a pool name their metric."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    head, *found = (row for row in cells if len(row) == COLUMNS)
    metric, rows = "", list[list[Cell]]()
    for name, *values in found:
        is_part = name.startswith("from ")
        metric = metric if is_part else name
        rows.append([f"{metric}, {name}" if is_part else name, *values])
    return table("What memory_summary() prints", head, rows)


def bytes_printed(text: str) -> int:
    """`532480 KiB` -> bytes."""
    number, unit = text.split()
    return int(number) << 10 * PREFIXES.index(unit)


def non_releasable(device: Device, state: str) -> float:
    """The share of the reserved memory that memory_summary() calls non-releasable, in percent."""
    rows = printed(device, state)
    sizes = [bytes_printed(rows[name]) for name in ("Non-releasable memory", "GPU reserved memory")]
    return 100 * sizes[0] / sizes[1]


@claim("TM53", at_least(90), source=Source(ARTICLE, "profiling helps identify memory fragmentation", device=""))
def summary_tells(device: Device) -> Figure:
    """As an article says, memory_summary() tells fragmented segments from other segments: at least 90 % of a fragmented
    segment is non-releasable, and at most 10 % of other segments."""
    fragmented_share, *others = (non_releasable(device, state) for state in (HARMFUL, CACHED, HARMLESS))
    return figure(device, min(fragmented_share, 100 - max(others)), "%")


def profiled(device: Device, kept: str) -> dict[str, tuple[int, int]]:
    """Name in the profiler's table -> calls and bytes, of the program that keeps blocks of a size."""
    rows = setting(device, "default")["profiled"][kept]
    return {row["name"]: (row["calls"], row["bytes"]) for row in rows}


@claim(
    "TM54",
    equals(True),
    source=Source(ARTICLE, "if certain operations are creating many small, non-contiguous allocations", device=""),
)
def profiler_counts(device: Device) -> Figure:
    """The profiler's table counts the allocations of the operation that keeps small blocks, as an article says."""
    blocks = [owner for segment in fragmented(device)["segments"] for owner in segment["owners"] if owner]
    calls, held = profiled(device, HARMFUL)["keep"]
    return figure(device, calls == len(blocks) and held == len(blocks) * 2 * MIB)


@claim("TM55", equals(True))
def profiler_is_blind(device: Device) -> Figure:
    """The profiler's table has the same calls for the program whose request fails and for the program whose request
    succeeds."""
    calls = [{name: row[0] for name, row in profiled(device, kept).items()} for kept in (HARMFUL, HARMLESS)]
    outcomes = [fails(device, "default", kept) for kept in (HARMFUL, HARMLESS)]
    return figure(device, calls[0] == calls[1] and outcomes == [True, False])


@claim("TM56", equals("keep"))
def snapshot_names(device: Device) -> Figure:
    """A memory snapshot names the function that allocated each small block between the free blocks."""
    owners = {owner for segment in fragmented(device)["segments"] for owner in segment["owners"] if owner}
    return figure(device, ", ".join(sorted(owners)))


@claim("TM60", equals(0))
def summary_misses(device: Device) -> Figure:
    """With expandable segments, memory_summary() calls no memory non-releasable, although free blocks remain."""
    found = fragmented(device, "expandable segments")
    holes = sum(not is_used for each in segments(device, "expandable segments", HARMFUL) for _, is_used in each.blocks)
    rows = printed_rows(found["summary"])
    return figure(device, bytes_printed(rows["Non-releasable memory"]) if holes > 1 else -1, "bytes")


def summaries(device: Device) -> Html:
    """The bytes in use by memory_summary(), in three states."""
    states = {"one free segment": CACHED, "blocks of 2 MiB kept": HARMFUL, "blocks of 1 MiB kept": HARMLESS}
    columns = [printed(device, state) for state in states.values()]
    rows: list[list[Cell]] = [[code(row), *(column[row] for column in columns)] for row in SUMMARIZED]
    whole = details("All rows of memory_summary(), kept blocks of 2 MiB", all_printed(fragmented(device)["summary"]))
    return Html(table("The column Cur Usage of memory_summary(), by state of memory", ["", *states], rows) + whole)


def profiler_rows(device: Device) -> Html:
    """The profiler's table for both programs."""
    both = [profiled(device, kept) for kept in (HARMFUL, HARMLESS)]
    rows: list[list[Cell]] = [
        [code(name), *(cell for found in both for cell in _cells(found.get(name)))] for name in both[0]
    ]
    head = ["name", "calls, 2 MiB", "bytes, 2 MiB", "calls, 1 MiB", "bytes, 1 MiB"]
    return table("Calls and bytes in the profiler's table, with kept blocks of 2 MiB and of 1 MiB", head, rows)


def _cells(row: tuple[int, int] | None) -> tuple[Cell, Cell]:
    return (row[0], in_mib(row[1])) if row else (None, None)
