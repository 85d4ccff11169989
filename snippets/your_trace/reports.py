"""The reports that are published with the site: `make docs` runs `python -m snippets.your_trace.reports site`.

A report is made from a recording's trace by `python -m snippets.lab report`; here its addresses in the book are links.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.trace.queries import require_kernels
from snippets.lab.finding import Device, NotRecorded
from snippets.lab.finding.device import all_devices
from snippets.lab.recording.device import recordings_root

EXAMPLES: Mapping[str, str] = {
    "A product with .item()": "matmul_add/item_4096",
    "Attention, written out": "attention/naive",
    "An MLP, eager": "mlp/eager",
}
"""What it is -> the recording whose report is published."""


def report_of(device: Device, experiment: str) -> DiagnosedTrace:
    """What the report on a recording's trace shows; its name is the path in a clone, for the commands in the report.

    Raises `NotRecorded`, `TraceError`.
    """
    run = device[experiment]
    require_kernels(run.trace)
    return replace(
        read_diagnosed(device.root / run.trace_path),
        name=f"docs/recordings/{run.trace_path}",
        book="../../",
    )


def report_address(device: Device, experiment: str) -> str:
    """Where the report lies below the site."""
    return f"reports/{device.name}/{experiment.replace('/', '-')}.html"


def write_reports(site: Path, root: Path) -> list[Path]:
    """Write the examples of every recorded device below the site; what is not recorded has no report."""
    written = []
    for device in all_devices(root):
        for experiment in EXAMPLES.values():
            try:
                html = report_html(report_of(device, experiment))
            except NotRecorded:
                continue
            path = site / report_address(device, experiment)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(html, encoding="utf-8")
            written.append(path)
    return written


if __name__ == "__main__":
    print(f"{len(write_reports(Path(sys.argv[1]), recordings_root()))} reports")
