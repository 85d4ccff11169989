"""make itself: what it lists, and what it tells whoever lacks something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.book.test_project import LOCKS, ROOT, targets

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def run_make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = ("PYTHON", "PYTHONPATH")  # the one under test; where a GPU machine keeps what its image lacks
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name not in own}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True, check=False
    )


def set_up_with(folder: Path, script: str, *pythons: str) -> str:
    """The errors of `make setup` in a folder, where this script stands in for some interpreters."""
    (folder / "bin").mkdir()
    for name in pythons:
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", folder)
    for name in (*LOCKS, "pyproject.toml"):
        (folder / name).touch()
    done = run_make("-C", str(folder), "setup", PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    assert done.returncode != 0
    return done.stderr


def test_make_alone_lists_the_targets() -> None:
    done = run_make()
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(targets())


def test_an_environment_of_ones_own_is_checked_and_left_alone(tmp_path: Path) -> None:
    """`-S` leaves an interpreter without site-packages: everything is missing."""
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    done = run_make("docs", f"PYTHON={bare}")
    assert done.returncode != 0
    assert "lacks what this target needs:" in done.stderr
    assert "\n  mkdocs>=1.6.1,<2: not installed\n" in done.stderr
    assert done.stdout == ""


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    errors = set_up_with(tmp_path, "exit 1", "python3", "python3.13", "python3.12", "python3.11")
    assert "Python 3.11 or newer is needed. On Debian or Ubuntu: sudo apt install python3 python3-venv" in errors


def test_a_python_without_venv_is_named_with_its_cure(tmp_path: Path) -> None:
    errors = set_up_with(tmp_path, 'case "$*" in *ensurepip*) exit 1;; esac', "python3")
    assert "python3 cannot create virtual environments. On Debian or Ubuntu: sudo apt install python3-venv" in errors
    assert not (tmp_path / ".venv").exists()
