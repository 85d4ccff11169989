"""The faults side by side: an iteration before and after each mend, and the ceiling of its rule."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import CpuOp
from kinetoscope.trace.queries import step_us
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.experiment import find
from snippets.lab.finding import Device, format_value
from snippets.lab.page import fault_bars, mend_diff, show as show
from snippets.training_step.findings.hints import ceiling_share
from snippets.training_step.findings.loops import FAULTS, TIMED
from snippets.training_step.findings.pictures import PHASES, phases_timeline as phases_timeline
from snippets.training_step.findings.rows import rows as rows

BETWEEN: Mapping[str, Mapping[str, str]] = {
    "pageable": {"pinned memory": "pageable_pinned", "pinned memory, separate stream": "pageable_after"},
    "tensor_cores": {"TF32": "tensor_cores_after", "autocast to bf16": "tensor_cores_autocast"},
    "optimizer": {"foreach": "optimizer_foreach", "fused": "optimizer_after"},
    "tiny": {"compiled": "tiny_compiled", "compiled, with CUDA graphs": "tiny_after"},
}
"""Fault -> heading of a variant -> its experiment, where there are more than two."""


def all_faults(device: Device) -> Html:
    """Every timed fault: an iteration before and after its mend, the ceiling and its share, the share that was lost."""
    lines: list[list[Cell]] = []
    for name in TIMED:
        before, after = (device[loop].time("iteration") for loop in FAULTS[name].loops)
        figures = (before, after, FAULTS[name].ceiling(device), ceiling_share(device, name), FAULTS[name].lost(device))
        lines.append([FAULTS[name].title, *map(figure_cell, figures)])
    head = [
        "fault",
        "iteration before",
        "iteration after",
        "ceiling of the rule",
        "ceiling / recorded step",
        "lost time / iteration",
    ]
    return table("Ten faults, and the time that each fix saves", head, lines)


OPENING = ("item", "loader", "tiny", "tensor_cores")
"""From the smallest gain to the largest, on the H200."""


def opening(device: Device) -> Html:
    """An iteration of four faults' loops, before and after the mend."""
    caption = "Time of an iteration with one of four faults, before and after the fix"
    return fault_bars(device, map(FAULTS.__getitem__, OPENING), caption, "time of an iteration")


def mend(device: Device, before: str, after: str) -> Html:
    """A mend as a diff of two of the chapter's functions; the same for every device."""
    return mend_diff(device, "training_step", before, after)


def times(device: Device, fault: str) -> Html:
    """Iterations of a fault's loops, every variant, and the ceiling of its rule."""
    before, after = FAULTS[fault].loops
    between = BETWEEN.get(fault, {})
    lines: list[list[Cell]] = [["before the fix", figure_cell(device[before].time("iteration"))]]
    lines += [[name, figure_cell(device[f"training_step/{loop}"].time("iteration"))] for name, loop in between.items()]
    if after not in {f"training_step/{loop}" for loop in between.values()}:
        lines.append(["after the fix", figure_cell(device[after].time("iteration"))])
    lines.append(["ceiling: the most that a fix can save", figure_cell(FAULTS[fault].ceiling(device))])
    return table(f"{FAULTS[fault].title}: time of an iteration", ["loop", "time"], lines)


def gain(device: Device, fault: str, variants: Mapping[str, str], caption: str) -> Html:
    """What a mend saves: the times of a fault's loops, and their middle steps as a picture."""
    return Html(times(device, fault) + phases_timeline(device, variants, caption))


def first_steps(device: Device) -> Html:
    """The CPU's time for each phase of the first and of the third iteration of a process."""
    first, _, third = device[FAULTS["cold"].loops[0]].trace.steps
    lines: list[list[Cell]] = []
    for name in ("enumerate(DataLoader)", *PHASES):
        times = [sum(op.duration_us for op in step.ops if _is_phase(op, name)) for step in (first, third)]
        lines.append([code(name), *(format_value(us, "us") for us in times)])
    lines.append(["the whole step", *(format_value(step_us(step), "us") for step in (first, third))])
    head = ["phase", "first iteration", "third iteration"]
    return table("CPU time of the first and the third iteration of a process", head, lines)


def _is_phase(op: CpuOp, name: str) -> bool:
    return op.is_annotation and op.name.partition("#")[0] == name


SIZES: Mapping[str, str] = {
    "vocab": "vocabulary",
    "dim": "width",
    "heads": "heads",
    "layers": "layers",
    "seq": "length",
    "batch": "batch",
}
"""Parameter of a loop -> what the page calls it."""


def sizes(device: Device) -> Html:
    """The sizes of the healthy loop, and for each fault its different sizes; the same for every device."""
    (healthy,) = (loop.parameters for loop in find("training_step/healthy"))
    loops: dict[str, list[str]] = {}
    for fault in FAULTS.values():
        (own,) = (loop.parameters for loop in find(fault.loops[0]))
        different = [f"{name} {own[key]:,}" for key, name in SIZES.items() if own[key] != healthy[key]]
        loops.setdefault(", ".join(different), []).append(fault.title)
    lines: list[list[Cell]] = [["the healthy loop", ", ".join(f"{SIZES[key]} {healthy[key]:,}" for key in SIZES)]]
    lines += [["; ".join(titles), text] for text, titles in loops.items()]
    return table(
        "Sizes of the healthy loop, and the different sizes of the loops with faults",
        ["loop", "sizes"],
        lines,
        text_columns=2,
    )
