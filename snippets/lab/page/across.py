"""The same figures on every recorded device, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from snippets.lab.drawing.numbers import figure_cell
from snippets.lab.finding.book import figure, is_mismatch
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.finding.spread import MISMATCHES
from snippets.lab.html import Cell, Html, table
from snippets.lab.recording.schema import NotRecorded, NotTimed


def devices_table(device: Device, figures: Mapping[str, str], caption: str) -> Html:
    """Figures on every recorded device, and of each further device the ratio to the first; the largest last ratio
    first."""
    devices = all_devices(device.root)
    rows: list[tuple[float, list[Cell]]] = []
    for heading, name in figures.items():
        first, *others = (_figure_or_none(name, each) for each in devices)
        ratios = [unpaired_ratio(other, first) if other and first else None for other in others]
        pairs = itertools.chain.from_iterable(zip(others, ratios, strict=True))
        cells: list[Cell] = [heading, *(figure_cell(each) if each else None for each in (first, *pairs))]
        rows.append((ratios[-1].number if ratios and ratios[-1] else 0.0, cells))
    names = [each.short_name for each in devices]
    head = ["", names[0], *itertools.chain.from_iterable((name, f"over {names[0]}") for name in names[1:])]
    rows.sort(key=lambda row: -row[0])
    return table(caption, head, [cells for _, cells in rows])


def _figure_or_none(name: str, device: Device) -> Figure | None:
    """A figure; None where a device has no recording of it, no time, or other kernels."""
    try:
        return figure(name, device)
    except (NotRecorded, NotTimed):
        return None
    except MISMATCHES as error:
        if not is_mismatch(error, device):
            raise
        return None
