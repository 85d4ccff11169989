"""What pages on planted faults share: the opening bars, the cells of a fault's rule, and the sizes of its loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import TraceError
from snippets.lab.charts.bar_charts import timing_bars
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.experiment import find
from snippets.lab.finding.device import Device
from snippets.lab.finding.fault import Fault


def fault_bars(device: Device, faults: Iterable[Fault], caption: str, axis: str) -> Html:
    """Bars of the time of one iteration of each fault's loop, before and after the fix."""
    groups = {
        fault.title: {
            label: device[loop].timing("iteration")
            for label, loop in zip(("before", "after"), fault.loops, strict=True)
        }
        for fault in faults
    }
    return timing_bars(device, groups, caption, axis=axis)


def rule_cells(device: Device, fault: Fault) -> list[Cell]:
    """The name of a fault's rule and the rule's ceiling. Both are empty if no rule finds the fault."""
    if not fault.rule:
        return [None, None]
    try:
        return [code(fault.rule), figure_cell(fault.ceiling(device))]
    except TraceError:
        return [code(fault.rule), None]


def size_table(faults: Iterable[Fault], names: Mapping[str, str], caption: str) -> Html:
    """The sizes of each fault's loops.

    Args:
        faults: the rows.
        names: parameter of a loop -> heading of its column.
        caption: of the table.
    """
    rows: list[list[Cell]] = []
    for fault in faults:
        (own,) = (loop.parameters for loop in find(fault.loops[0]))
        rows.append([fault.title, *(f"{own[key]:,}" for key in names)])
    return table(caption, ["fault", *names.values()], rows)
