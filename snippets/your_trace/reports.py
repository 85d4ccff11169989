"""The example reports: of which recordings, and where they are in the site. publish.py writes them.

A report is made from a recording's trace by `kinetoscope report`; here its addresses in the book are links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.trace.queries import require_kernels
from snippets.lab.finding import Device
from snippets.lab.page.kept import kept

EXAMPLES: Mapping[str, str] = {
    "A product with .item()": "matmul_add/item_4096",
    "Attention, written out": "attention/naive",
    "An MLP, eager": "mlp/eager",
}
"""What it is -> the recording whose report is published."""


def report_of(device: Device, experiment: str) -> DiagnosedTrace:
    """The report on a recording's trace; its name is the path in a clone, for the commands in the report.

    Raises `NotRecorded`, `TraceError`.
    """
    run = device[experiment]
    require_kernels(run.whole.trace)
    return replace(
        read_diagnosed(device.root / run.trace_path),
        name=f"docs/recordings/{run.trace_path}",
        book="../../",
    )


def report_page(device: Device, experiment: str) -> str:
    """The report as a file, kept from one build to the next. Raises what a stranger's trace makes it raise."""
    return kept(
        ("report", device.name, experiment),
        lambda: report_html(report_of(device, experiment)),
    )


def report_address(device: Device, experiment: str) -> str:
    """The report's address below the site."""
    return f"reports/{device.name}/{experiment.replace('/', '-')}.html"
