"""The reports that are published with the site: `make docs` runs `python -m snippets.your_trace.reports site`.

A report is made from a recording's trace by `kinetoscope report`; here its addresses in the book are links.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.trace.queries import require_kernels
from snippets.lab.finding import Device, NotRecorded
from snippets.lab.finding.device import all_devices
from snippets.lab.page.kept import keep, kept, look
from snippets.lab.recording.device import recordings_root

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


def report_address(device: Device, experiment: str) -> str:
    """The report's address below the site."""
    return f"reports/{device.name}/{experiment.replace('/', '-')}.html"


def write_reports(site: Path, root: Path) -> list[Path]:
    """Write the example reports of every recorded device below the site; an experiment without a recording has no
    report."""
    written = []
    look(root)
    for device in all_devices(root):
        for experiment in EXAMPLES.values():
            try:
                html = kept(
                    ("report", device.name, experiment),
                    partial(_report, device, experiment),
                )
            except NotRecorded:
                continue
            path = site / report_address(device, experiment)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(html, encoding="utf-8")
            written.append(path)
    keep()
    return written


def _report(device: Device, experiment: str) -> str:
    return report_html(report_of(device, experiment))


if __name__ == "__main__":
    print(f"{len(write_reports(Path(sys.argv[1]), recordings_root()))} reports")
