"""Reports of traces that others recorded: each is written, small, sound, and sends the reader to what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.report.trace_report import report_data
from tests.tool.report.samples import Page
from tests.tool.trace.public import PUBLIC_TRACES, needs_public_traces

LARGE = ("kineto_", "astra_", "hta_nccl")
"""Names of those that take seconds: one of them is read in the largest test."""


@needs_public_traces
@pytest.mark.parametrize(
    "path", [path for path in PUBLIC_TRACES if not path.name.startswith(LARGE)], ids=lambda path: path.name[:24]
)
def test_a_report_of_it(path: Path) -> None:
    diagnosed = read_diagnosed(path)
    html = report_html(diagnosed)
    found = Page(html)
    assert len(html.encode()) < 700_000
    assert found.open_elements == found.wrong == []
    ids = found.of("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in found.of("href") if link.startswith("#")} <= set(ids)
    data = report_data(diagnosed)
    assert len(data["findings"]) == found.elements.count("article")
    assert data["steps"] == len(diagnosed.trace.steps)
