"""The reports that are published with the site, the JSON Schemas and the agents' skill."""

from __future__ import annotations

from pathlib import Path

from kinetoscope.schema import DOCUMENTS, schema
from kinetoscope.skill import skill_text
from kinetoscope.trace.text import json_text
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.mismatch import NOT_SHOWN, reading
from snippets.lab.page.kept import keep, look
from snippets.your_trace.reports import EXAMPLES, report_address, report_page


def publish(site: Path, root: Path) -> list[Path]:
    """Write the example reports, and the files for programs and agents, below the site."""
    return [*publish_reports(site, root), *publish_contract(site)]


def publish_reports(site: Path, root: Path) -> list[Path]:
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


def publish_contract(site: Path) -> list[Path]:
    """The JSON Schema of each command, and SKILL.md."""
    texts = {
        f"schema/{name}.json": json_text(schema(name)) + "\n"
        for name in DOCUMENTS
    }
    texts["SKILL.md"] = skill_text()
    for name, text in texts.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    return [site / name for name in texts]
