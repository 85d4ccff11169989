"""The probes' data: two clocks, allocators, the cost of the profiler, its table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

from kinetoscope.html import Cell, Html, code, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, claim, format_value, timing_of_samples
from snippets.lab.finding.measure import percent, unpaired_ratio
from snippets.lab.page import show as show

CHAPTER = "training_step"
PHASES = ("forward", "backward", "optimizer", "item")
RECORDED_ITERATIONS = 3
"""Of the ten lines' schedule."""
OPTIONS = ("without", "none", "record_shapes", "profile_memory", "with_stack", "all three")
"""Of the profiler, in the order of the table; `without` is without a profiler."""


def _clock(device: Device, clock: str, phase: str) -> Figure:
    run = device[f"{CHAPTER}/clocks"]
    return Figure.from_timing(timing_of_samples(run.data[clock][phase]), f"{run.origin}, {clock} clock")


def _sum_us(device: Device, clock: str, phases: Sequence[str]) -> Figure:
    parts = [_clock(device, clock, phase) for phase in phases]
    low, high = (math.fsum(part.bounds[end] for part in parts) for end in (0, 1))
    return Figure(math.fsum(part.number for part in parts), "us", (low, high), parts[0].origin)


@claim("TS60", at_most(0.5), scope="timing")
def wrong_clock(device: Device) -> Figure:
    """By a clock that doesn't synchronize, forward, backward and optimizer seem to take at most half of their real
    time."""
    return unpaired_ratio(*(_sum_us(device, clock, PHASES[:3]) for clock in ("wrong", "right")))


@claim("TS61", at_least(50), scope="timing")
def item_blamed(device: Device) -> Figure:
    """By a clock that doesn't synchronize, the phase item seems to take most of the step."""
    whole = _sum_us(device, "wrong", PHASES)
    return percent(unpaired_ratio(_clock(device, "wrong", "item"), whole))


@claim("TS62", at_most(5), scope="timing")
def item_alone(device: Device) -> Figure:
    """By a clock that synchronizes, the phase item takes at most 5 % of the step."""
    return percent(unpaired_ratio(_clock(device, "right", "item"), _sum_us(device, "right", PHASES)))


def clocks(device: Device) -> Html:
    """Each phase by both clocks."""
    rows = [
        [code(phase), *(figure_cell(_clock(device, clock, phase)) for clock in ("wrong", "right"))] for phase in PHASES
    ]
    return table(
        "Time of each phase of one step, by two clocks",
        ["phase", "clock without synchronize", "clock with synchronize"],
        rows,
    )


def _allocator(device: Device, setting: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = device[f"{CHAPTER}/memory"].data[setting]
    return found


@claim("TS68", at_least(1))
def expandable_holds_less(device: Device) -> Figure:
    """If sequence lengths vary, PyTorch holds at least as much memory by default as with expandable segments."""
    held = [_allocator(device, setting)["held"][-1] for setting in ("default", "expandable segments")]
    return Figure(held[0] / held[1], "x", origin=device[f"{CHAPTER}/memory"].origin)


def allocators(device: Device) -> Html:
    """Memory held and used while lengths vary, with both settings of the allocator."""
    rows: list[list[Cell]] = []
    for setting in ("default", "expandable segments"):
        found = _allocator(device, setting)
        used, held = max(found["used"]), found["held"][-1]
        cells = (format_value(used, "bytes"), format_value(held, "bytes"), f"{found['allocations'][-1]:,}")
        rows.append([setting, *cells])
    head = ["allocator", "most memory in use", "memory held at the end", "allocations from the driver"]
    return table("Memory that PyTorch holds while sequence lengths vary", head, rows)


def _cost(device: Device, loop: str, option: str) -> Figure:
    run = device[f"{CHAPTER}/profiler_costs"]
    return Figure.from_timing(timing_of_samples(run.data[loop][option]["us"]), f"{run.origin}, {loop}, {option}")


@claim("TS69", at_least(1.5), scope="timing")
def profiled_tiny(device: Device) -> Figure:
    """Even without options, the profiler makes an iteration of tiny kernels take at least 1.5 times as long."""
    return unpaired_ratio(_cost(device, "tiny", "none"), _cost(device, "tiny", "without"))


@claim("TS70", at_least(1.02), scope="timing")
def stacks_cost(device: Device) -> Figure:
    """An iteration of tiny kernels takes at least 2 % longer recorded with stacks than recorded without options."""
    return unpaired_ratio(_cost(device, "tiny", "with_stack"), _cost(device, "tiny", "none"))


@claim("TS71", at_most(1.25), scope="timing")
def profiled_healthy(device: Device) -> Figure:
    """Without options, the profiler makes an iteration of the healthy loop take at most a quarter longer."""
    return unpaired_ratio(_cost(device, "healthy", "none"), _cost(device, "healthy", "without"))


def options(device: Device) -> Html:
    """An iteration while it is recorded, and its trace, by the profiler's options."""
    data = device[f"{CHAPTER}/profiler_costs"].data
    rows: list[list[Cell]] = []
    for option in OPTIONS:
        entry = data["healthy"][option]
        name = "no profiler" if option == "without" else "no options" if option == "none" else option
        costs = (figure_cell(_cost(device, loop, option)) for loop in ("healthy", "tiny"))
        size = format_value(entry["bytes"], "bytes") if entry["bytes"] else None
        rows.append([code(name) if "_" in name else name, *costs, size])
    head = ["recorded with", "healthy iteration", "iteration of tiny kernels", "trace size, three healthy iterations"]
    return table("Time of a recorded iteration, by the profiler's options", head, rows)


PRINTED = ("Name", "Self CPU", "CPU total", "Self CUDA", "CUDA total", "# of Calls")
"""Columns of the printed table that the page shows: those without averages and percentages."""
SHAPES = "Input Shapes"


def printed_rows(text: str) -> list[dict[str, str]]:
    """The rows of a printed table by its headings; two spaces or more stand between its columns.

    Raises `ValueError` if a row has more or fewer cells than the head.
    """
    _, head, body, _ = re.split(r"^-[- ]*\n", text, flags=re.MULTILINE)
    cells = [re.split(r" {2,}", line.strip()) for line in (head + body).splitlines()]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def printed(device: Device) -> Html:
    """The output of the ten lines, in columns that fit a page, with the shapes below the names."""
    rows: list[list[Cell]] = []
    for row in printed_rows(device[f"{CHAPTER}/ten_lines"].data["printed"]):
        shapes = row[SHAPES] if row[SHAPES] != "[]" else ""
        name = code(row["Name"]) + (f"<br><small>{escape(shapes)}</small>" if shapes else "")
        rows.append([Html(name), *(row[heading] for heading in PRINTED[1:])])
    return table("The printed table, without averages and percentages", list(PRINTED), rows)


def thousand_iterations(device: Device) -> Figure:
    """Bytes of a trace of a thousand iterations / the bytes of the ten lines' three."""
    size = trace_size(device)
    return Figure(size.number / RECORDED_ITERATIONS * 1000, "bytes", origin=size.origin)


def trace_size(device: Device) -> Figure:
    """Bytes of the trace that the ten lines write."""
    run = device[f"{CHAPTER}/ten_lines"]
    return Figure(run.data["trace_bytes"], "bytes", origin=run.origin)


FIGURES: Mapping[str, Measure] = {
    "wrong_forward": lambda device: _clock(device, "wrong", "forward"),
    "right_forward": lambda device: _clock(device, "right", "forward"),
}
