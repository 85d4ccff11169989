"""Files made to mislead or to end a command: damaged durations, times, sizes and digests, and gzip bombs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.__main__ import main
from tests.tool.trace.public import PROJECT

ATTACK = PROJECT.parent / "shared" / "attack"
pytestmark = pytest.mark.skipif(not ATTACK.is_dir(), reason="no files in ../shared/attack")
SIZE = "damaged: 1 event without a size in bytes, or with an impossible one, left out: [memory]"
FAR = "damaged: 1 event at time 0, or days away from all other events, left out: x"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """The exit code and what is printed as JSON."""
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["g1-after-null", "g2-after-text", "g3-after-negative"])
def test_lost_durations_pass_no_gate(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run(capsys, "diff", str(ATTACK / "g-before.json"), str(ATTACK / f"{name}.json"), "--gate", "3")
    assert (code, data["gate"]["is_whole"]) == (3, False)
    assert data["damage"][0] == ("after: damaged: 15 events without a duration, or with an impossible one, left out: k")
    assert data["notes"][:2] == data["damage"]


@pytest.mark.parametrize(
    ("name", "notes"),
    [("t1-one-far-op", [FAR]), ("t3-read-as-ns", []), ("n1-memory-bytes", [SIZE]), ("n2-base-time", [])],
)
@pytest.mark.parametrize("command", ["summary", "report"])
def test_one_event_or_number_changes_no_sum(
    name: str, notes: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, data = run(capsys, command, str(ATTACK / f"{name}.json"))
    assert (code, data["gpu_busy_us_per_step"], data["kernels_per_step"], data["step_us"]) == (0, 75.0, 3, 180.0)
    assert data["notes"] == notes


def test_a_gzip_bomb_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(ATTACK / "b1-16MB.json.gz")]) == 2
    assert "its text is over 100 times as long as the gzip file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x1-calls", "x3-collective-sum", "x3-rank1"])
def test_digests_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(ATTACK / f"{name}.digest.json"), "-o", str(tmp_path / "x.html")]) == 2
    assert "a digest of version 1" in capsys.readouterr().err
