"""The pieces of the page on faults: steps before and after a fix, the parts of every rank's step, and all faults."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device
from snippets.lab.finding.fault import Fault
from snippets.lab.page import (
    fault_bars,
    mend_diff,
    rank_bars,
    rank_lanes,
    rule_cells,
    show as show,
    size_table,
    timing_bars,
)
from snippets.several_gpus.findings.fault_loops import (
    CHAPTER,
    FAULTS,
    LOOPS,
    PROFILED,
    calls,
    profiled,
    profiled_nccl,
    saved,
    speedup,
)

OPENING = ("late", "late_small", "one_bucket", "no_sync")
KINDS: Mapping[str, str] = {
    "allreduce": "all-reduces",
    "allgather": "all-gathers",
    "reducescatter": "reduce-scatters",
}
"""Kind of a collective -> heading of its count."""


def opening(device: Device) -> Html:
    """A step of the loops of three faults, before and after the fix."""
    caption = "Time of a step on two GPUs, before and after the fix of three of the faults"
    return fault_bars(device, map(FAULTS.__getitem__, OPENING), caption, "time of a step")


def bars(device: Device, name: str) -> Html:
    """A step of a fault's loops, before and after the fix, and of a fix that does not help."""
    runs = {label: device[loop].timing("iteration") for label, loop in LOOPS[name].items()}
    title = FAULTS[name].title
    # Labels of bars are cut, headings are not.
    is_pair = len(runs) == len(FAULTS[name].loops)
    groups = {title: runs} if is_pair else {label: {"step": run} for label, run in runs.items()}
    return timing_bars(device, groups, f"{title}: time of a step before and after the fix", axis="time of a step")


def mend(device: Device, before: str, after: str) -> Html:
    """A fix as a diff of two of the chapter's functions; the same for every device."""
    return mend_diff(device, CHAPTER, before, after)


def ranks(device: Device, name: str, *labels: str) -> Html:
    """The step of each rank in a fault's loops, or in those with these labels, and what the report says of the
    ranks."""
    loops = {label: LOOPS[name][label] for label in labels or LOOPS[name]}
    return rank_bars(device, loops, f"{FAULTS[name].title}: a step of each rank")


def lanes(device: Device, name: str) -> Html:
    """A step before the fix: the ranks on one time axis."""
    return rank_lanes(
        device, FAULTS[name].loops[0], f"{FAULTS[name].title}: a step of both ranks before the fix, on one time axis"
    )


def counts(device: Device, name: str) -> Html:
    """The collectives of a step of a fault's loops, by kind; the same on each rank."""
    rows: list[list[Cell]] = []
    for label, loop in LOOPS[name].items():
        name_of_loop = loop.partition("/")[2]
        rows.append([label, *(figure_cell(calls(device, name_of_loop, kind)) for kind in KINDS)])
    return table(f"{FAULTS[name].title}: number of collectives in a step", ["loop", *KINDS.values()], rows)


def profilers(device: Device) -> Html:
    """A step with a profiler on no rank, on rank 0 alone, and on each rank."""
    rows: list[list[Cell]] = [
        ["no rank", figure_cell(profiled(device, "none")), None, None],
        ["rank 0", figure_cell(profiled(device, "rank 0")), figure_cell(profiled_nccl(device, "rank 0", 0)), None],
        [
            "each rank",
            figure_cell(profiled(device, "all")),
            *(figure_cell(profiled_nccl(device, "all", rank)) for rank in (0, 1)),
        ],
    ]
    head = ["profiler on", "time of a step", "NCCL time on rank 0", "NCCL time on rank 1"]
    return table(
        "A small step with profilers: time on the slowest rank, and time of NCCL kernels in each profile", head, rows
    )


def all_faults(device: Device) -> Html:
    """Every fault: a step before and after, how many times as fast, what the fix saves, the ceiling of its rule."""
    rows: list[list[Cell]] = []
    for fault in FAULTS.values():
        before, after = (device[loop].time("iteration") for loop in fault.loops)
        figures = (before, after, speedup(device, fault.name), saved(device, fault.name))
        cells = map(figure_cell, figures)
        rows.append([fault.title, *cells, *rule_cells(device, fault)])
    head = [
        "fault",
        "step before the fix",
        "step after the fix",
        "speedup",
        "saved time",
        "rule",
        "ceiling of the rule",
    ]
    return table("Faults of training on two GPUs, and the time of a step before and after each fix", head, rows)


SIZES: Mapping[str, str] = {
    "width": "width",
    "blocks": "blocks",
    "batch": "sequences of a rank",
    "seq": "tokens of a sequence",
}
"""Parameter of a loop -> what the page calls it."""


def sizes(device: Device) -> Html:
    """The sizes of each fault's loops; the same for every device."""
    profilers = Fault("profilers", "A profile of rank 0 alone", (PROFILED, PROFILED))
    return size_table([*FAULTS.values(), profilers], SIZES, "Sizes of the loops with faults")
