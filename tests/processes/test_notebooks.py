"""Notebooks in the process that runs their cells; each of the book's runs on a CPU, so that none rots."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from snippets.lab.notebooks.cells import CellFailed, NotebookRuns, code_cells, run_notebooks
from snippets.lab.notebooks.files import SETUP, TIME_LIMIT_S, Notebook, RunInfo, fill, notebooks
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.recording.device import PROJECT
from tests.book.test_recordings import PRIVATE
from tests.lab import copies
from tests.lab.notebooks.test_files import valid
from tests.lab.samples import environment

ALL = notebooks(PROJECT / "docs/recordings")
COMPILERS = ("g++", "clang++")


def write_cells(folder: Path, *sources: str, name: str = "mlp") -> Path:
    """A notebook of these code cells."""
    cells = [
        {"cell_type": "code", "id": f"c{number}", "metadata": {}, "outputs": [], "source": [source]}
        for number, source in enumerate(sources)
    ]
    path = folder / f"{name}.ipynb"
    path.write_bytes(dumped({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_notebooks_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    sound = write_cells(tmp_path, "import os, pathlib", "print(pathlib.Path.home() / 'a' / 'b.txt')", "os.getpid()")
    failing = write_cells(tmp_path, "import os", "x = 1", "os.nothing", name="linear")
    results = run_notebooks([sound, failing], 60)
    assert results.by_name["mlp"].failed == ""
    assert results.by_name["mlp"].outputs[1][0]["text"] == "b.txt\n", "no folder of this machine"
    assert results.by_name["linear"].failed.startswith("linear, code cell 3: AttributeError: module 'os' has no")
    assert results.environment.versions["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("source", "limit_s", "cause"),
    [
        ("import os; os.write(2, b'last words'); os._exit(7)", 60, r"ended with code 7; last output: last words"),
        ("import time; time.sleep(60)", 1, r"ran past its limit of 1 s"),
    ],
)
def test_a_process_that_dies_or_hangs_is_reported(tmp_path: Path, source: str, limit_s: float, cause: str) -> None:
    with pytest.raises(CellFailed, match=cause):
        run_notebooks([write_cells(tmp_path, source)], limit_s)


@pytest.fixture(scope="module")
def results() -> NotebookRuns:
    """What came of all notebooks on the CPU, in one process: importing torch is most of the time."""
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip(f"torch.compile on a CPU needs one of {', '.join(COMPILERS)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        return run_notebooks([notebook.path for notebook in ALL], TIME_LIMIT_S)


@pytest.mark.parametrize("notebook", ALL, ids=lambda notebook: notebook.name)
def test_a_notebook_runs_on_a_cpu(results: NotebookRuns, notebook: Notebook) -> None:
    run = results.by_name[notebook.name]
    assert run.failed == ""
    content = fill(
        notebook, run.outputs, RunInfo(notebook.fingerprint(environment().device), run.seconds, environment())
    )
    assert Notebook(notebook.path, content).state == "recorded"
    assert not PRIVATE.search(json.dumps(content))
    texts = [output["data"]["text/plain"] for cell in run.outputs for output in cell if "data" in output]
    assert texts[0].startswith("Run on a CPU: torch ")
    asked = [source for source in code_cells(notebook.content) if "notebook.check(" in source]
    answered = [text for text in texts if text.startswith("No guess yet. Measured: ")]
    assert len(answered) == len(asked)
    assert not [text for text in answered if text.endswith((": nan", ": None"))]
    valid(content)


@pytest.mark.gpu
@pytest.mark.parametrize("notebook", ALL, ids=lambda notebook: notebook.name)
def test_a_notebook_runs_on_a_gpu(notebook: Notebook) -> None:
    run = run_notebooks([notebook.path], TIME_LIMIT_S).by_name[notebook.name]
    assert run.failed == ""
    texts = [output["data"]["text/plain"] for cell in run.outputs for output in cell if "data" in output]
    assert not texts[0].startswith("Run on a CPU")


def test_the_set_up_cell_clones_the_book_where_there_is_none(tmp_path: Path) -> None:
    """As in Colab. pip finds what the book needs installed already: it asks no index."""
    (tmp_path / "repository").mkdir()
    repository = copies.project(tmp_path / "repository")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    for command in (["init"], ["add", "."], ["commit", "--message", "The book"]):
        subprocess.run([*git, *command], cwd=repository, check=True, capture_output=True)
    cell = SETUP.replace('REPOSITORY = ""', f'REPOSITORY = "{repository.as_uri()}"')
    finding, _ = cell.split("\nfrom snippets.lab import notebook\n")
    first = f"{cell}print(notebook.__file__)\n"
    again = f"{finding}\nprint(importlib.util.find_spec('snippets.lab.notebook').origin)\n"  # importing takes seconds
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PIP_NO_INDEX": "1"}
    for code in (first, again):  # the second time, the clone is there
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=elsewhere, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == str(elsewhere / "book/snippets/lab/notebook.py")
