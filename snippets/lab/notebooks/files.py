"""docs/labs/<chapter>.ipynb: a chapter's experiments to download, with outputs recorded on the default device.

`record` writes a notebook's outputs as it writes a recording: it runs the notebook in a new process and writes the file
atomically, and only after success. The outputs are stale once the notebook's or its chapter's code changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec

from kinetoscope.files import write_whole
from kinetoscope.html import Html, code, table
from snippets.lab.experiment import nearest
from snippets.lab.finding.device import Device
from snippets.lab.notebooks.cells import CellFailed, NotebookRuns, code_cells
from snippets.lab.notebooks.outputs import OutputError, clean_outputs, dumped, output_problems, without_outputs
from snippets.lab.page.frame import show as show  # for the fence of docs/labs/index.md
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT, short_name, slug
from snippets.lab.recording.fingerprint import text_fingerprint
from snippets.lab.recording.schema import Environment, RecordingError

RunNotebooks = Callable[[list[Path], float], NotebookRuns]
"""Runs notebooks within a time limit in seconds, as `cells.run_notebooks` does. Raises `CellFailed`."""
PREFIX = "labs/"
"""Prefix of a notebook's name on the command line: `labs/linear`; `labs` selects all notebooks."""
NOTEBOOK_PROTOCOL = 1
"""Part of every notebook's fingerprint: raise it when `cells` or `notebook` change what a notebook measures."""
TIME_LIMIT_S = 300
SETUP = """\
# The book's code is found around this notebook. Elsewhere, as in Colab, name the address of its repository.
REPOSITORY = ""

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

BOOK = Path.cwd() / "book"
sys.path += [str(path) for path in (BOOK, *BOOK.parents) if (path / "snippets" / "lab").is_dir()]
if importlib.util.find_spec("snippets") is None:
    if not REPOSITORY:
        raise ModuleNotFoundError("start Jupyter in a clone of the book, or write its address into REPOSITORY above")
    subprocess.run(["git", "clone", "--quiet", "--depth=1", REPOSITORY, BOOK], check=True)
    content = tomllib.loads((BOOK / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*content["project"]["dependencies"], *content["dependency-groups"]["book"]]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *needed], check=True)
    sys.path.append(str(BOOK))

from snippets.lab import notebook

notebook.here()
"""
"""The first code cell of every notebook."""


class NotebookError(RecordingError):
    """A notebook is unreadable, or a page cannot show its outputs; the message names the cure."""


class RunInfo(msgspec.Struct, frozen=True):
    """How the outputs of a notebook were made; in its metadata under `recording`."""

    fingerprint: str = msgspec.field(name="digest")
    seconds: float
    environment: Environment = msgspec.field(name="circumstances")


class _Cell(msgspec.Struct):
    """The fields that every cell needs."""

    cell_type: Literal["code", "markdown"]
    source: list[str]


@dataclass(frozen=True)
class Notebook:
    """A notebook of this book."""

    path: Path
    content: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the chapter and the stem of the file."""
        return self.path.stem

    @property
    def id(self) -> str:
        """`labs/linear`, as on the command line."""
        return PREFIX + self.name

    @property
    def title(self) -> str:
        """Its first heading."""
        match = re.search(r"^# (.+)$", "".join(self.content["cells"][0]["source"]), re.MULTILINE)
        return match[1] if match else self.name

    @property
    def run_info(self) -> RunInfo | None:
        """How its outputs were made; None if it is not recorded. Raises `NotebookError`."""
        try:
            return msgspec.convert(self.content["metadata"].get("recording"), RunInfo | None)
        except msgspec.ValidationError as error:
            raise NotebookError(f"{self.id}: {error}; run {record_command(self.name)}") from error

    @property
    def device(self) -> str:
        """The slug of the device that recorded it; empty if it is not recorded. Raises `NotebookError`."""
        return slug(self.run_info.environment.device) if self.run_info else ""

    def fingerprint(self, gpu: str) -> str:
        """Hash of its code without the set-up cell, of what that reaches on a GPU, and of the protocol."""
        code = "\n".join(code_cells(self.content)[1:])
        return text_fingerprint(code, f"lab {NOTEBOOK_PROTOCOL}", gpu=gpu)

    @property
    def state(self) -> str:
        """`recorded`, `stale`, `missing`, or `unreadable: ...`."""
        try:
            run_info, problems = self.run_info, list(output_problems(self.content))
            fingerprint = self.fingerprint(run_info.environment.device if run_info else "")
        except (NotebookError, SyntaxError, ValueError, RecursionError) as error:
            return f"unreadable: {error}"
        if run_info is None:
            return "missing"
        if any(cell.get("execution_count") is None for cell in _code_cells_of(self.content)):
            problems.append(f"its outputs are missing; run {record_command(self.name)}")
        return (
            f"unreadable: {problems[0]}" if problems else "recorded" if run_info.fingerprint == fingerprint else "stale"
        )


def _code_cells_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def record_command(name: str) -> str:
    """The command that records a notebook."""
    return f"make record CHAPTER={PREFIX}{name}"


def load_notebook(path: Path) -> Notebook:
    """Read one notebook. Raises `NotebookError` if the file is not a notebook."""
    try:
        return _parse(path, path.read_bytes())
    except OSError as error:
        raise NotebookError(f"{path.name} cannot be read: {error.strerror}") from error


def _parse(path: Path, written: bytes) -> Notebook:
    try:
        content = msgspec.json.decode(written, type=dict[str, Any])
        nbformat, cells = msgspec.convert((content.get("nbformat"), content.get("cells")), tuple[int, list[_Cell]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotebookError(f"{path.name} is not a notebook: {error}") from error
    if nbformat != 4 or not cells or not isinstance(content.get("metadata"), dict):
        raise NotebookError(f"{path.name} is not a notebook of format 4 with cells")
    return Notebook(path, content)


def notebooks(root: Path) -> tuple[Notebook, ...]:
    """The notebooks next to the recordings in `root`, in the order of the chapters in nav. Raises `NotebookError`."""
    config = PROJECT / "mkdocs.yml"
    nav = config.read_text("utf-8") if config.is_file() else ""
    paths = sorted((root.parent / "labs").glob("*.ipynb"), key=lambda path: (nav.find(f" {path.stem}.md"), path.name))
    return tuple(map(load_notebook, paths))


def find_notebooks(root: Path, names: Sequence[str]) -> tuple[Notebook, ...]:
    """Select notebooks by names on the command line: a chapter's name selects its notebook; no names select all."""
    selected = {name.removeprefix(PREFIX) for name in names}
    is_all = not names or PREFIX.strip("/") in selected
    return tuple(notebook for notebook in notebooks(root) if is_all or notebook.name in selected)


def find_notebook(root: Path, name: str) -> Notebook:
    """A notebook by its id, `labs/linear`. Raises `NotebookError` if there is none."""
    known = {notebook.id: notebook for notebook in notebooks(root)}
    if name not in known:
        raise NotebookError(f"no notebook {name!r}{nearest(name, known)}")
    return known[name]


def is_notebook(root: Path, name: str) -> bool:
    """Whether a name on the command line selects only notebooks. Raises `NotebookError` for an unknown notebook."""
    if not f"{name}/".startswith(PREFIX):
        return False
    return name == PREFIX.strip("/") or find_notebook(root, name) is not None


def fill(notebook: Notebook, outputs: Sequence[object], run_info: RunInfo) -> dict[str, Any]:
    """Put outputs into a notebook. Raises `NotebookError` if their number is wrong or a page cannot show them."""
    cells = _code_cells_of(notebook.content)
    if len(outputs) != len(cells):
        raise NotebookError(f"{notebook.id}: {len(outputs)} outputs for {len(cells)} code cells")
    try:
        cleaned = [clean_outputs(own) for own in outputs]
    except OutputError as error:
        raise NotebookError(f"{notebook.id}: {error}") from error
    filled = {
        id(cell): {**cell, "outputs": own, "execution_count": number}
        for number, (cell, own) in enumerate(zip(cells, cleaned, strict=True), 1)
    }
    content = {
        **notebook.content,
        "cells": [filled.get(id(cell), cell) for cell in notebook.content["cells"]],
        "metadata": {**notebook.content["metadata"], "recording": msgspec.to_builtins(run_info)},
    }
    for problem in output_problems(content):
        raise NotebookError(f"{notebook.id}: {problem}")
    return content


def adopt(notebook: Notebook, archived: bytes, device: str) -> dict[str, Any]:
    """Put the outputs of an archived copy into a notebook. Raises `NotebookError` if the device or code differs."""
    copy = _parse(notebook.path, archived)
    if copy.run_info is None or copy.device != device:
        raise NotebookError(f"{notebook.id} was not recorded on {device}")
    if code_cells(copy.content) != code_cells(notebook.content):
        raise NotebookError(f"{notebook.id} has different cells than this checkout; record it again from this checkout")
    return fill(notebook, [cell.get("outputs") for cell in _code_cells_of(copy.content)], copy.run_info)


def record_notebook(root: Path, notebook: Notebook, device: str, run: RunNotebooks) -> str:
    """Run one notebook on this machine's GPU and write its outputs into it; return the cause of a failure."""
    try:
        results = run([notebook.path.resolve()], TIME_LIMIT_S)
        own = results.by_name[notebook.name]
        if own.failed:
            return "\n".join(own.failed.strip().splitlines()[:20])
        if slug(results.environment.device) != device:
            return f"the notebook ran on {results.environment.device}, not on {device}"
        fingerprint = notebook.fingerprint(results.environment.device)
        content = fill(notebook, own.outputs, RunInfo(fingerprint, own.seconds, results.environment))
        write_whole(notebook.path, dumped(content))
    except (CellFailed, RecordingError, OSError) as error:
        return str(error)
    return ""


def move_unshowable(notebook: Notebook, folder: Path) -> str:
    """Move a notebook into `folder` if a page cannot show its outputs; its cells stay, without outputs.

    Return the problem and the new place; empty if a page can show it.
    """
    problem = next(output_problems(notebook.content), "")
    if not problem:
        return ""
    try:
        run_info = notebook.run_info
    except NotebookError:
        run_info = None
    moved = folder / notebook.path.name
    moved.parent.mkdir(parents=True, exist_ok=True)
    write_whole(moved, notebook.path.read_bytes())
    write_whole(notebook.path, dumped(without_outputs(notebook.content, msgspec.to_builtins(run_info))))
    return f"{notebook.id}: {problem}; shown without outputs, the file as it was is {moved}"


def notebook_list(device: Device) -> Html:
    """The notebooks of the site: title, chapter, device and date of the recording, and the file to download."""
    rows = [
        [
            Html(f'<a href="{notebook.name}/">{escape(notebook.title)}</a>'),
            Html(f'<a href="../{notebook.name}/">{code(notebook.name)}</a>'),
            _recorded(notebook),
            Html(f'<a href="{notebook.name}/{notebook.path.name}" download>{escape(notebook.path.name)}</a>'),
        ]
        for notebook in notebooks(device.root)
    ]
    return table("The labs", ["lab", "chapter", "stored outputs are from", "notebook file"], rows, text_columns=4)


def _recorded(notebook: Notebook) -> Html:
    """Device and date of a notebook's recording, or the command that records it."""
    state, cure = notebook.state, code(record_command(notebook.name))
    if state == "missing":
        return Html(f"not recorded yet: on the {short_name(DEFAULT_DEVICE)} run {cure}")
    if state.startswith("unreadable") or notebook.run_info is None:
        return Html(escape(state))
    where = notebook.run_info.environment
    line = f'{escape(where.device)}, <time datetime="{escape(where.date)}">{escape(where.date[:10])}</time>'
    return Html(
        line if state == "recorded" else f"{line}: <strong>stale</strong>, its code has changed since; run {cure}"
    )
