"""Recording on two ranks where one fails: its own error is the cause, all ranks end, and the others go on."""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetoscope.ranks.joined import read_ranks
from snippets.lab.capture.recorder import record_experiments
from snippets.lab.capture.supervisor import Event, Group, run_worker
from snippets.lab.experiment import find
from snippets.lab.recording.loading import load_recording, trace_path
from tests.lab.samples import DEVICE

PACKAGE = "tests.lab.broken"
RANKS = [one for one in find("ranks", PACKAGE) if one.name not in ("second", "wrong")]


def run_until_it_hangs(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
    """Two workers on the CPU; the clock jumps past every limit as soon as ranks/hangs has begun."""
    jump_s = 0.0

    def clock() -> float:
        return time.monotonic() + jump_s

    for event in run_worker(batch, folder, number, package=PACKAGE, torch_device="cpu", clock=clock):
        if event == {"experiment": "ranks/hangs", "doing": "checking"}:
            jump_s = 1000.0
        yield event


def test_the_first_rank_that_fails_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One recording, since each process that starts takes seconds."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="pp-", dir="/tmp"))

    outcomes = list(record_experiments(tmp_path, DEVICE, RANKS, run_until_it_hangs))

    assert {outcome.experiment.name: outcome.failed for outcome in outcomes} == {
        "first": "",
        "raises": "ValueError: the first line (rank 1)",
        "dies": "killed by SIGKILL; last output: the last words (rank 1)",
        "hangs": "ran past its limit of 9 s",
        "probe": "",
    }
    out = capsys.readouterr().out
    assert "    | the second line\n" in out, "the traceback of the rank that raised"
    hung = out[out.index("ranks/hangs: checking") : out.index("ranks/hangs: failed")]
    assert re.findall(r"\| (rank \d):\n    \| (Stack)", hung) == [("rank 0", "Stack"), ("rank 1", "Stack")]
    assert "closed by peer" not in out, "not that of its neighbor"
    recording = load_recording(tmp_path, DEVICE, "ranks/first")
    assert (recording.has_trace, recording.environment.gpus) == (True, 2)
    assert [trace.rank for trace in read_ranks(trace_path(tmp_path, DEVICE, recording))] == [0, 1]
    assert load_recording(tmp_path, DEVICE, "ranks/probe").data["found"] == [
        {"rank": 0, "extra": "x"},
        {"rank": 1, "extra": "x"},
    ]
    assert multiprocessing.active_children() == [], "no rank is left"
