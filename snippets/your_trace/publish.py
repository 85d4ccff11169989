"""The reports that are published with the site."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kinetoscope.report.document import report_html
from snippets.lab.finding import Device, NotRecorded
from snippets.lab.finding.device import all_devices
from snippets.lab.page.kept import keep, kept, look
from snippets.your_trace.reports import EXAMPLES, report_address, report_of


def publish(site: Path, root: Path) -> list[Path]:
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
