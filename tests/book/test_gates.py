"""Requirements of `make setup` and PYTHON= on an environment, and the content of the locks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from snippets.lab.tools import environment


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
        [sys.executable, "-m", "snippets.lab.tools.environment", "test"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_only_torch_with_cuda_needs_has_a_lock_of_its_own() -> None:
    resolved = ["cuda-toolkit==13.0.3", "nvidia-cublas==13.4 ; sys_platform == 'linux'", "nvidia-ml-py==13.615.71"]
    resolved += ["pyyaml==6.0.3", "torch==2.13.0", "triton==3.7.1"]
    hashed = "".join(f"{requirement} \\\n    --hash=sha256:{'0' * 64}\n" for requirement in resolved)
    found = {file: list(environment.pins(text)) for file, text in environment.locks(hashed, hashed).items()}
    assert found == {
        "requirements.lock": ["nvidia-ml-py==13.615.71", "pyyaml==6.0.3", "triton==3.7.1"],
        "requirements-cpu.lock": ["torch==2.13.0+cpu"],
        "requirements-cuda.lock": [
            "cuda-toolkit==13.0.3",
            "nvidia-cublas==13.4 ; sys_platform == 'linux'",
            "torch==2.13.0",
        ],
        "requirements-tools.lock": resolved,
    }
