"""The reports that are published with the site."""

from __future__ import annotations

from pathlib import Path

from snippets.lab.finding.device import all_devices
from snippets.lab.finding.mismatch import NOT_SHOWN, reading
from snippets.lab.page.kept import keep, look
from snippets.your_trace.reports import EXAMPLES, report_address, report_page


def publish(site: Path, root: Path) -> list[Path]:
    """Write the example reports of every recorded device below the site.

    An experiment without a recording has no report, and neither has another GPU's trace that has none to show.
    """
    written = []
    look(root)
    for device in all_devices(root):
        for experiment in EXAMPLES.values():
            try:
                with reading(device, f"the report on {experiment}") as noted:
                    html = report_page(noted, experiment)
            except NOT_SHOWN:
                continue
            path = site / report_address(device, experiment)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(html, encoding="utf-8")
            written.append(path)
    keep()
    return written
