"""The examples that are published with the site run: the gate in a workflow, ranks in a Slurm array without Slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kinetoscope.__main__ import main
from tests.tool.compare.test_diff import written
from tests.tool.events import kernel, launch, step, trace_bytes
from tests.tool.runs import ALL_REDUCE, GEMM

PROJECT = Path(__file__).parents[2]
ASSETS = PROJECT / "docs" / "assets"


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.05, 1)])
def test_the_gate_of_the_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    workflow = yaml.safe_load((ASSETS / "trace-gate.yml").read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    (command,) = [each["run"] for each in workflow["jobs"]["gate"]["steps"] if each.get("name") == "gate"]
    program, *arguments = shlex.split(command)
    assert program == "kinetoscope"
    (tmp_path / "traces").mkdir()
    for run in (1, 2, 3):
        written(tmp_path / "traces" / f"before{run}.json", 1 + run / 1000)
        written(tmp_path / "traces" / f"after{run}.json", factor * (1 + run / 1000))
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    assert ("REGRESSION" in capsys.readouterr().out) is bool(code)


@pytest.mark.slow
@pytest.mark.slow
def test_ranks_without_slurm(tmp_path: Path) -> None:
    for rank in range(3):
        late = 200.0 if rank == 1 else 0.0
        events = []
        for number in range(3):
            at, first = number * 1000.0, number * 2 + 1
            events += [step(number, at, 900), launch(first, at + 1), launch(first + 1, at + 5)]
            events += [
                kernel(GEMM, first, at + 10, 700 + late),
                kernel(ALL_REDUCE, first + 1, at + 710 + late, 280 - late),
            ]
        (tmp_path / f"rank{rank}.json").write_bytes(trace_bytes(*events))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("SLURM")}
    environment |= {"TRACES": str(tmp_path), "RANKS": "3", "PATTERN": "rank%d.json"}
    environment |= {"COMMAND": f"{sys.executable} -m kinetoscope"}
    script = ["bash", str(ASSETS / "ranks.sbatch")]
    done = subprocess.run(script, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Rank 1 is late" in (tmp_path / "digests" / "ranks.html").read_text("utf-8")
    (tmp_path / "rank2.json").unlink()
    done = subprocess.run(script, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "rank2.json: cannot be read" in done.stderr
