"""What `make setup` and PYTHON= ask of an environment, and what a lock holds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import environment


@pytest.mark.parametrize(
    ("requirement", "version", "met"),
    [
        ("torch>=2.11", "2.11.0+cu130", True),
        ("torch>=2.11", "2.9.1", False),
        ("torch>=2.11", "2.11.0a0+git", True),
        ("mkdocs>=1.6.1,<2", "1.6.1", True),
        ("mkdocs>=1.6.1,<2", "2.0", False),
        ("mkdocs>=1.6.1,<2", "1.6", False),
        ("x", "0", True),
        ("x==1.2", "1.2.0", True),
    ],
)
def test_ranges(requirement: str, version: str, met: bool) -> None:
    assert environment.within(version, environment.split(requirement)[1]) is met


def test_what_is_missing_is_named() -> None:
    lines = environment.problems(["no-such-distribution>=3", "pytest>=999", "pytest>=1"])
    assert lines[0] == "no-such-distribution>=3: not installed"
    assert lines[1].startswith("pytest>=999: ")
    assert len(lines) == 2


def test_the_environment_of_these_tests_is_complete() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.environment", "test"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lock_holds_nothing_of_one_machine() -> None:
    names = {
        "torch": "2.13.0+cpu",
        "PyYAML": "6.0.3",
        "markdown_exec": "1.12.6",
        "nvidia-cublas": "13.4",
        "nvidia-ml-py": "13.615.71",
        "nvidia-ml-py-extras": "1",
        "triton": "3.9.0",
    }
    report = {"install": [{"metadata": {"name": name, "version": version}} for name, version in names.items()]}
    pins = [line for line in environment.lock(json.dumps(report)).splitlines() if not line.startswith("#")]
    assert pins == ["markdown-exec==1.12.6", "nvidia-ml-py==13.615.71", "pyyaml==6.0.3", "torch==2.13.0"]
