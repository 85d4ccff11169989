"""The lines that the page tells a reader to put around a loop run as they stand."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from kinetoscope.trace.kineto import read_trace
from snippets.lab.recording.device import PROJECT
from snippets.training_step.model import make_parts, train

SMALL = {"vocab": 64, "dim": 32, "heads": 2, "layers": 1, "seq": 16, "batch": 2}


def lines() -> str:
    """The shown section, as a reader pastes it."""
    text = (PROJECT / "snippets/training_step/record.py").read_text(encoding="utf-8")
    return dedent(text.partition("# --8<-- [start:record]\n")[2].partition("    # --8<-- [end:record]")[0])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_they_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, optimizer, loader = make_parts("cpu", **SMALL)
    exec(lines(), {"train": train, "model": model, "optimizer": optimizer, "loader": loader, "device": "cpu"})
    printed = capsys.readouterr().out
    assert "step 0: loss" in printed
    assert "Input Shapes" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]
    trace = read_trace(tmp_path / "trace.json.gz")
    assert [step.name for step in trace.steps] == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]
    assert all(step.find_annotation("backward") for step in trace.steps)


def test_they_are_about_ten_lines() -> None:
    assert len(lines().strip().splitlines()) <= 12
