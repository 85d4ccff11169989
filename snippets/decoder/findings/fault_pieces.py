"""The pieces of the page on faults: a token before and after a fix, its GPU time by kernel, and all faults."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import busy_us, copies, count_launches
from snippets.decoder.findings.faults import FAULTS
from snippets.lab.charts.bar_charts import KINDS, stacked_bars
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Run
from snippets.lab.page import fault_bars, mend_diff, rule_cells, show as show, size_table, timeline, timing_bars

OPENING = ("item", "mask", "cat", "repeat_kv")
MAX_PARTS = 6
"""Kernels with a part of their own in a bar."""


def opening(device: Device) -> Html:
    """An iteration of four faults' loops, before and after the fix."""
    caption = "Time of a token or a prompt with one of four faults, before and after the fix"
    return fault_bars(device, map(FAULTS.__getitem__, OPENING), caption, "time of a token or a prompt")


def bars(device: Device, name: str) -> Html:
    """An iteration of a fault's loop, before and after the fix."""
    before, after = (device[loop].timing("iteration") for loop in FAULTS[name].loops)
    groups = {FAULTS[name].title: {"before": before, "after": after}}
    return timing_bars(
        device, groups, f"{FAULTS[name].title}: time before and after the fix", axis="time of a token or a prompt"
    )


def mend(device: Device, name: str) -> Html:
    """A fault's fix as a diff of the two loops that are measured; the same for every device."""
    return mend_diff(device, "decoder", *(loop.partition("/")[2] for loop in FAULTS[name].loops))


def lanes(device: Device, name: str) -> Html:
    """A token before and after the fix, on one time scale."""
    before, after = FAULTS[name].loops
    caption = f"{FAULTS[name].title}: a trace before and after the fix"
    return timeline(device, {"before": before, "after": after}, caption)


def kernels(device: Device, name: str) -> Html:
    """The GPU time of a step before and after the fix, by kernel."""
    runs = dict(zip(("before", "after"), (device[loop] for loop in FAULTS[name].loops), strict=True))
    caption = f"{FAULTS[name].title}: GPU time before and after the fix, by kernel"
    times = {state: _by_name(run) for state, run in runs.items()}
    kinds = {short: kind for each in times.values() for short, (_, kind) in each.items()}
    groups = {state: [(short, us) for short, (us, _) in each.items()] for state, each in times.items()}
    return stacked_bars(device, groups, caption, axis="GPU time of a token or a prompt", kinds=kinds)


def _by_name(run: Run) -> dict[str, tuple[float, str]]:
    """Short name of a kernel, or of a copy -> its time in the middle step and what it looks like, the longest first."""
    sums: dict[str, tuple[float, str]] = {}
    for activity in run.step.activities:
        decoded = decode_kernel_name(activity.name)
        us, kind = sums.get(decoded.short, (0.0, KINDS.get(decoded.operation, "other")))
        sums[decoded.short] = us + activity.duration_us, kind
    longest = sorted(sums.items(), key=lambda item: -item[1][0])
    rest = math.fsum(us for _, (us, _) in longest[MAX_PARTS:])
    return dict(longest[:MAX_PARTS]) | ({"all others": (rest, "other")} if rest else {})


def counts(device: Device, name: str) -> Html:
    """A step before and after the fix: time, the GPU's work, launches, kernels, copies to the CPU."""
    rows: list[list[Cell]] = []
    for state, loop in zip(("before", "after"), FAULTS[name].loops, strict=True):
        run = device[loop]
        figures = [
            run.time("iteration"),
            run.per_step(lambda step: busy_us(step.activities), "us"),
            run.per_step(count_launches),
            run.per_step(lambda step: len(step.kernels)),
            run.per_step(lambda step: len(copies(step, "DtoH"))),
        ]
        rows.append([state, *map(figure_cell, figures)])
    head = ["loop", "time of a token", "GPU time of a token", "launches", "kernels", "copies to the CPU"]
    return table(f"{FAULTS[name].title}: a token before and after the fix", head, rows)


def all_faults(device: Device) -> Html:
    """Every fault: an iteration before and after, how many times as fast, the ceiling of its rule."""
    rows: list[list[Cell]] = []
    for fault in FAULTS.values():
        before, after = (device[loop].time("iteration") for loop in fault.loops)
        rows.append(
            [fault.title, *map(figure_cell, (before, after, fault.speedup(device))), *rule_cells(device, fault)]
        )
    head = ["fault", "time before the fix", "time after the fix", "speedup", "rule", "ceiling of the rule"]
    return table(
        "Nine faults of token loops, and the time of a token or a prompt before and after each fix", head, rows
    )


SIZES: Mapping[str, str] = {
    "layers": "layers",
    "batch": "texts",
    "prompt": "tokens of the prompt",
    "answer": "tokens of an answer",
}
"""Parameter of a loop -> what the page calls it."""


def sizes(device: Device) -> Html:
    """The sizes of each fault's loops; the same for every device."""
    return size_table(FAULTS.values(), SIZES, "Sizes of the loops with faults")
