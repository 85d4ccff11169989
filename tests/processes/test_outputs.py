"""Commands whose outputs fail, or cannot have every character: one line, an exit code, no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snippets.lab.__main__ import COMMANDS as BOOK
from snippets.lab.recording.device import PROJECT

TRACE = "tests/traces/linear_eager.json.gz"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
COMMANDS = (
    f"summary {TRACE}",
    f"report {TRACE} -o -",
    f"diff {TRACE} {TRACE}",
    f"doctor {TRACE}",
    "decode nvjet_sm90_tst_128x64",
    "claims --device nvidia-h200",
    "list",
)


def lab(arguments: str, redirect: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    package = "snippets.lab" if arguments.split()[0] in BOOK else "kinetoscope"
    command = f"{sys.executable} -m {package} {arguments} {redirect}"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | environment
    return subprocess.run(command, shell=True, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[1], "claims --json --device nvidia-h200", "--help"])
def test_a_full_output(command: str, one_chapter: Path) -> None:
    done = lab(command, ">/dev/full", RECORDINGS=str(one_chapter))
    assert done.returncode == 1
    assert re.fullmatch(r"error: (standard output: )?No space left on device; free some space.*\n", done.stderr)


def test_a_closed_output() -> None:
    done = lab("decode x", ">&-")
    line = "error: standard output: Bad file descriptor; it is closed; redirect it to a file, or to /dev/null\n"
    assert (done.returncode, done.stderr) == (1, line)


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_errors_that_cannot_be_printed_are_an_exit_code(redirect: str) -> None:
    done = lab("summary none.json", redirect)
    assert (done.returncode, done.stdout, done.stderr) == (1 if ">&- 2" in redirect else 2, "", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_ascii_terminal(command: str, one_chapter: Path) -> None:
    done = lab(command, **ASCII, RECORDINGS=str(one_chapter))
    assert done.stderr == ""
    assert done.returncode == (1 if command.startswith("doctor") and "failed" in done.stdout else 0)
    if "-o -" not in command:
        assert done.stdout.isascii()


def test_an_error_on_an_ascii_terminal() -> None:
    done = lab("summary 'näme\u202e.json'", **ASCII)
    assert done.returncode == 2
    assert done.stderr.isascii()
    assert done.stderr.startswith("error: n")


def test_a_report_into_a_full_device(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    done = lab(f"report {TRACE} -o {full}")
    line = f"error: cannot write {full} (No space left on device); choose another file with -o\n"
    assert (done.returncode, done.stderr) == (1, line)
    assert full.is_symlink()
    assert list(tmp_path.iterdir()) == [full]


def test_a_report_of_a_pipe(tmp_path: Path) -> None:
    done = lab(f"report /dev/stdin -o {tmp_path / 'x.html'}", f"< {TRACE}")
    piped = subprocess.run(
        f"cat {TRACE} | {sys.executable} -m kinetoscope report /dev/stdin -o {tmp_path / 'y.html'}",
        shell=True, cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, piped.returncode, piped.stderr) == (0, 0, "")
    assert (tmp_path / "x.html").read_bytes() == (tmp_path / "y.html").read_bytes()


def test_odd_bytes_of_nvidia_smi(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(b"#!/bin/sh\nprintf 'GPU 0: NVIDIA \\377\\033[2J H200 (UUID: GPU-1)\\n'\n")
    program.chmod(0o755)
    code = "from snippets.lab.recording.device import this_device; print(this_device())"
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "nvidia-2j-h200\n"
