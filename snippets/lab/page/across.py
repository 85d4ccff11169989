"""The same figures on every recorded device, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding.book import figure
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.finding.mismatch import NOT_SHOWN, reading


def devices_table(device: Device, figures: Mapping[str, str], caption: str) -> Html:
    """Figures on every recorded device, and of each further device the ratio to the first; the largest last ratio
    first."""
    devices = all_devices(device.root)
    rows: list[tuple[float, list[Cell]]] = []
    for heading, name in figures.items():
        first = _figure_or_none(name, devices[0])
        cells: list[Cell] = [heading, figure_cell(first) if first else None]
        last = 0.0
        for each in devices[1:]:
            figure_html, ratio_html, last = _beside(name, each, first)
            cells += [figure_html, ratio_html]
        rows.append((last, cells))
    names = [each.short_name for each in devices]
    head = ["", names[0], *(heading for name in names[1:] for heading in (name, f"ratio to {names[0]}"))]
    rows.sort(key=lambda row: -row[0])
    return table(caption, head, [cells for _, cells in rows])


def _figure_or_none(name: str, device: Device) -> Figure | None:
    """A figure; None if a device has no recording of it, no time, or other kernels."""
    try:
        with reading(device) as noted:
            return figure(name, noted)
    except NOT_SHOWN:
        return None


def _beside(name: str, device: Device, first: Figure | None) -> tuple[Cell, Cell, float]:
    """The cells of a further device, the figure and its ratio to the first, and this ratio; 0 without one."""
    try:
        with reading(device) as noted:
            measured = figure(name, noted)
            ratio = unpaired_ratio(measured, first) if first else None
            return figure_cell(measured), figure_cell(ratio) if ratio else None, ratio.number if ratio else 0.0
    except NOT_SHOWN:
        return None, None, 0.0
