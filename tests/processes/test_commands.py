"""Commands as processes: exit codes, closed pipes, and what is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.__main__ import COMMANDS
from snippets.lab.recording.device import PROJECT

TRACE = "tests/traces/linear_eager.json.gz"


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Its output is buffered, as it is for a reader: much of it is written only at the end."""
    package = "snippets.lab" if arguments[0] in (*COMMANDS, "--help") else "kinetoscope"
    command = [sys.executable, "-m", package, *arguments]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, cwd=PROJECT, env=env, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("arguments", [["list"], ["claims", "--json"], ["summary", TRACE], ["--help"]])
def test_a_closed_pipe_is_not_an_error(
    arguments: list[str], one_chapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read end is closed before the first write, so that every print or flush meets a broken pipe."""
    monkeypatch.setenv("RECORDINGS", str(one_chapter))
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = start(*arguments, stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == 0


def test_the_first_line_is_enough(one_chapter: Path) -> None:
    command = f"{sys.executable} -m snippets.lab claims --json | head -1"
    env = os.environ | {"RECORDINGS": str(one_chapter)}
    done = subprocess.run(command, shell=True, cwd=PROJECT, env=env, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_a_usage_error_exits_with_2() -> None:
    process = start("summary", "none.json", stdout=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("error: none.json: cannot be read")


def test_record_without_a_gpu() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}  # neither torch nor nvidia-smi finds one
    command = [sys.executable, "-m", "snippets.lab", "record", "linear/eager"]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
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
