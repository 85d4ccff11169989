"""The lines that the page tells a reader to put around a loop: they run, and `report` reads what they write."""

from __future__ import annotations

import json
from itertools import repeat
from pathlib import Path
from textwrap import dedent

import pytest

from kinetoscope.__main__ import main
from kinetoscope.trace.kineto import read_trace
from snippets.lab.recording.device import PROJECT
from snippets.your_trace.record import record

BEFORE_TRACE, KEPT = 4, 3
"""Calls that are skipped or warm up, and calls in the trace."""


def lines() -> str:
    """The shown section, as a reader pastes it."""
    text = (PROJECT / "snippets/your_trace/record.py").read_text(encoding="utf-8")
    return dedent(text.partition("# --8<-- [start:record]\n")[2].partition("    # --8<-- [end:record]")[0])


@pytest.mark.parametrize(
    "calls", [BEFORE_TRACE + KEPT, BEFORE_TRACE + KEPT + 20], ids=["ends with the trace", "goes on"]
)
def test_the_shown_lines_run_and_report_reads_their_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], calls: int
) -> None:
    import torch

    layer, seen = torch.nn.Linear(8, 8), list[torch.Tensor]()

    def step(batch: torch.Tensor) -> None:
        seen.append(layer(batch))

    monkeypatch.chdir(tmp_path)
    exec(lines(), {"step": step, "batches": repeat(torch.ones(4, 8), calls)})
    assert len(seen) == calls
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]
    found = read_trace(tmp_path / "trace.json.gz")
    assert [step.name for step in found.steps] == [f"ProfilerStep#{BEFORE_TRACE + index}" for index in range(KEPT)]
    assert all("aten::linear" in [op.name for op in step.ops] for step in found.steps)

    assert main(["report", "trace.json.gz"]) == 0
    assert (tmp_path / "trace.report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "the trace shows no work on a GPU" in capsys.readouterr().out
    assert main(["report", "trace.json.gz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps_from"] == "ProfilerStep"


def test_they_are_about_ten_lines() -> None:
    assert len(lines().strip().splitlines()) <= 12


def test_the_function_around_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record(abs, range(BEFORE_TRACE + KEPT))
    assert len(read_trace(tmp_path / "trace.json.gz").steps) == KEPT
