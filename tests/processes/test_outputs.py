"""Commands as processes: exit codes, outputs that fail or cannot have every character, and what is imported."""

from __future__ import annotations

import json
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


def lab(
    arguments: str, redirect: str = "", stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The output is buffered, as it is for a reader: much of it is written only at the end."""
    package = "snippets.lab" if arguments.split()[0] in (*BOOK, "--help") else "kinetoscope"
    command = f"{sys.executable} -m {package} {arguments} {redirect}"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | environment
    return subprocess.run(
        command, shell=True, cwd=PROJECT, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


def test_a_summary_and_a_usage_error() -> None:
    done = lab(f"summary {TRACE} --json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["kernels_per_step"] == 1
    done = lab("summary none.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: none.json: cannot be read")


def test_record_without_a_gpu() -> None:
    done = lab("record linear/eager", CUDA_VISIBLE_DEVICES="", PATH="")  # neither torch nor nvidia-smi finds one
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: no CUDA GPU here, and recordings are only ever made on one. To see an experiment on this machine's "
        "CPU: python -m snippets.lab run CHAPTER/EXPERIMENT\n"
    )


def test_a_command_imports_only_what_it_needs() -> None:
    """Help of every command needs neither torch nor MkDocs, and a summary needs no other room than one."""
    script = """
import sys
from kinetoscope.__main__ import main
main(["summary", "tests/traces/linear_eager.json.gz"])
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("kinetoscope.")}
print(*sorted(rooms), "snippets" in sys.modules)
from snippets.lab.__main__ import BOOK, COMMANDS
for command in COMMANDS:
    BOOK.build_parser(command)
print(*{"torch", "triton", "mkdocs"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["__main__ program terminal trace False", ""]


@pytest.mark.parametrize("command", ["list", "claims --json", f"summary {TRACE}", "--help"])
def test_a_closed_pipe_is_not_an_error(command: str, one_chapter: Path) -> None:
    """The read end is closed before the first write, so that every print or flush meets a broken pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = lab(command, stdout=write_end, RECORDINGS=str(one_chapter))
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_line_is_enough(one_chapter: Path) -> None:
    done = lab("claims --json", "| head -1", RECORDINGS=str(one_chapter))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


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
