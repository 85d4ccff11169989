"""Our summary beside HolisticTraceAnalysis and TraceLens on one synthetic file of 55 MB: seconds and peak memory.

Neither is among the packages of this project. The variable PEERS_PYTHON names a Python that has them:

    python3 -m venv /tmp/peers && /tmp/peers/bin/pip install HolisticTraceAnalysis
    git clone https://github.com/AMD-AGI/TraceLens /tmp/tracelens && /tmp/peers/bin/pip install /tmp/tracelens
    PEERS_PYTHON=/tmp/peers/bin/python .venv/bin/python -m pytest -s tests/processes/test_speed_of_readers.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from snippets.lab.recording.device import PROJECT
from tests.tool.events import synthetic_trace

MEGABYTES = 55
PEERS_PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
OURS = ("-m", "snippets.lab", "summary", "TRACE", "--json")
PEERS = {
    "hta": (
        "-c",
        "import sys; from hta.trace_analysis import TraceAnalysis; "
        "TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='').get_gpu_kernel_breakdown(visualize=False)",
        "TRACE",
    ),
    "TraceLens": (
        "-c",
        "import sys; from TraceLens.Reporting.generate_perf_report_pytorch import main; "
        "sys.argv[1:] = ['--profile_json_path', sys.argv[1], '--output_xlsx_path', sys.argv[1] + '.xlsx']; main()",
        "TRACE",
    ),
}
"""Module -> arguments of a Python that computes with it what our summary does, and more."""


class Cost(NamedTuple):
    """Of a whole process."""

    seconds: float
    peak_mb: float


def measure(python: str, arguments: tuple[str, ...], path: Path, folder: Path) -> Cost:
    """Run a command with this trace. The child's own peak, not the largest of all children."""
    command = [python, *(str(path) if argument == "TRACE" else argument for argument in arguments)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "err").read_text(errors="replace")[-2000:]
    return Cost(seconds, usage.ru_maxrss / 1000)


def has(module: str) -> bool:
    script = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([PEERS_PYTHON, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("module", PEERS)
def test_ours_is_not_slower(module: str, tmp_path: Path) -> None:
    if not has(module):
        pytest.skip(f"{module} is not installed; PEERS_PYTHON names a Python that has it")
    path = tmp_path / "synthetic.json"
    synthetic_trace(path, MEGABYTES)
    ours = measure(sys.executable, OURS, path, tmp_path)
    theirs = measure(PEERS_PYTHON, PEERS[module], path, tmp_path)
    for name, cost in (("summary", ours), (module, theirs)):
        print(f"\n{name}: {cost.seconds:.1f} s, {cost.peak_mb:.0f} MB", end="")
    assert ours.seconds <= theirs.seconds
    assert ours.peak_mb <= theirs.peak_mb
