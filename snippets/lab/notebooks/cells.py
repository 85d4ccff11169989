"""Runs the code cells of notebooks in a process: python -m snippets.lab.notebooks.cells --result FILE NOTEBOOK...

It replaces Jupyter: the printed text and the value of the last expression become a cell's outputs. Standard error goes
to the log of the process. A cell that raises ends its notebook, and the next notebook runs.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.schema import Environment
from snippets.lab.recording.scrub import scrub

Output = dict[str, Any]


class CellFailed(Exception):
    """A cell raised, or the process died; the message names the cell and the cause."""


class NotebookRun(msgspec.Struct, frozen=True):
    """The outputs of one notebook."""

    outputs: list[list[Output]]
    """One list for each code cell."""
    seconds: float
    failed: str = ""
    """The cause of a failure; empty if every cell ran."""


class NotebookRuns(msgspec.Struct, frozen=True):
    """The outputs of all notebooks of one process."""

    by_name: dict[str, NotebookRun]
    environment: Environment


def execute_cells(sources: list[str], name: str) -> list[list[Output]]:
    """Run code cells in order in a new namespace and return their outputs. Raises `CellFailed`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [
        _outputs(source, f"{name}, code cell {number}", number, namespace) for number, source in enumerate(sources, 1)
    ]


def _outputs(source: str, where: str, number: int, namespace: dict[str, Any]) -> list[Output]:
    """Run one cell and return its outputs in the notebook's format."""
    linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)  # for tracebacks
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            value = _execute(ast.parse(source, where), where, namespace)
    except (Exception, SystemExit) as error:
        lines = "".join(traceback.format_exception(error))
        raise CellFailed(f"{where}: {type(error).__name__}: {error}\n{lines}") from error
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = str(value._repr_html_())
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
        outputs.append(result)
    return outputs


def _execute(tree: ast.Module, where: str, namespace: dict[str, Any]) -> object:
    """Execute a cell; return the value of its last statement if that is an expression."""
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, where, "exec"), namespace)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), where, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), where, "eval"), namespace)


def code_cells(notebook: dict[str, Any]) -> list[str]:
    """The sources of a notebook's code cells."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_notebooks(paths: list[Path], time_limit_s: float) -> NotebookRuns:
    """Run notebooks in a new process. Raises `CellFailed` if it crashes or exceeds the time limit."""
    with tempfile.TemporaryDirectory(prefix="profiling-pytorch-") as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "snippets.lab.notebooks.cells", "--result", str(result), *map(str, paths)]
        python_path = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with (Path(folder) / "log").open("w+b") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(python_path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                process.wait(time_limit_s)
            except subprocess.TimeoutExpired as error:
                raise CellFailed(f"ran past its limit of {time_limit_s:g} s") from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # ends the compilers that it started, too
                    process.wait()
            if process.returncode or not result.is_file():
                log.seek(0)
                last = (log.read().decode(errors="replace").strip().splitlines() or ["none"])[-1]
                raise CellFailed(f"the process ended with code {process.returncode}; last output: {last[:300]}")
        return msgspec.json.decode(result.read_bytes(), type=NotebookRuns)


def main() -> None:
    """Run each notebook and write a `NotebookRuns`."""
    from snippets.lab.capture.environment import environment, host_names
    from snippets.lab.notebook import on_gpu

    parser = argparse.ArgumentParser(description="Runs notebooks; started by `run_notebooks`.")
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--result", type=Path, required=True)
    arguments = parser.parse_args()
    runs: dict[str, NotebookRun] = {}
    for path in arguments.notebooks:
        begin = time.monotonic()
        outputs: list[list[Output]] = []
        failed = ""
        try:
            outputs = execute_cells(code_cells(json.loads(path.read_text("utf-8"))), path.stem)
        except CellFailed as error:
            failed = str(error)
        runs[path.stem] = NotebookRun(outputs, round(time.monotonic() - begin, 1), failed)
    results = NotebookRuns(runs, environment("cuda" if on_gpu() else "cpu"))
    clean = scrub(msgspec.to_builtins(results), host_names())
    arguments.result.write_bytes(msgspec.json.encode(clean))


if __name__ == "__main__":
    main()
