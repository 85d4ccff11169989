"""Recordings to alter, and one process in which Triton interprets, for all chapters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from snippets.lab.recording.device import PROJECT
from tests.chapters.altered import AlteredDevice


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def device() -> AlteredDevice:
    """The default device's recordings, for a test to alter."""
    return AlteredDevice()


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """The data that the function `run_all` of a test module saves, with Triton interpreting.

    Triton reads TRITON_INTERPRET when it is imported, which takes seconds: one process imports, and each `run_all` runs
    in a process forked from it.
    """
    folder = tmp_path_factory.mktemp("interpreted")
    errors = folder / "errors.txt"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "tests.chapters.interpreting"],
            cwd=PROJECT,
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):

        def run(module: str) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            path = folder / f"{module}.pt"
            print(json.dumps([module, str(path)]), file=process.stdin, flush=True)
            assert process.stdout.readline() == "0\n", errors.read_text()
            return torch.load(path)

        yield run
        process.kill()
