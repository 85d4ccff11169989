"""docs/labs/<chapter>.ipynb: a chapter's experiment to take away, with outputs that were recorded on the builder.

A lab's outputs are made as a recording is: by `record`, in a process of its own, written only after success and
atomically, stale as soon as its code or its chapter's has changed. They are text and simple HTML, so that a page can
show them as they are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import msgspec

from snippets.lab.html import Html, code, table
from snippets.lab.notebooks.cells import CellFailed, code_cells, run_notebooks
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT, RECORDINGS, short_name, slug
from snippets.lab.recording.digest import code_digest, source_digest
from snippets.lab.recording.saving import write_file
from snippets.lab.recording.schema import Environment, RecordingError

PREFIX = "labs/"
"""Before the name of a lab on the command line: `labs/linear`; `labs` is all of them."""
NOTEBOOK_PROTOCOL = 1
"""Part of every lab's digest: raise it when `cells` or `notebook` change what a lab shows."""
LIMIT_BYTES = 200_000
TIME_LIMIT_S = 300
SETUP = """\
# The book's code is found around this notebook, or installed. In Colab, name the address of its repository.
REPOSITORY = ""

import importlib.util
import subprocess
import sys
from pathlib import Path

sys.path += [str(path) for path in (Path.cwd(), *Path.cwd().parents) if (path / "snippets" / "lab").is_dir()]
if importlib.util.find_spec("snippets") is None:
    if not REPOSITORY:
        raise ModuleNotFoundError("start Jupyter in a clone of the book, or write its address into REPOSITORY above")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"git+{REPOSITORY}"], check=True)

from snippets.lab import notebook

notebook.here()
"""
"""The first code cell of every lab."""
TAGS = {"br", "caption", "code", "details", "div", "p", "small", "span", "strong", "summary"}
TAGS |= {"table", "tbody", "td", "th", "thead", "tr"}
ATTRIBUTES = {"aria-label", "class", "data-search-exclude", "role", "scope", "tabindex", "title"}


class NotebookError(RecordingError):
    """A lab that cannot be read, or outputs that a page could not show; the message says how it is cured."""


class RunInfo(msgspec.Struct, frozen=True):
    """How the outputs of a lab came to be; in the notebook's metadata under `recording`."""

    digest: str
    seconds: float
    circumstances: Environment


class _Cell(msgspec.Struct):
    """What has to be there of a cell."""

    cell_type: Literal["code", "markdown"]
    source: list[str]
    outputs: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Notebook:
    """A notebook of this book."""

    path: Path
    content: dict[str, Any]

    @property
    def name(self) -> str:
        """The chapter's, and the file's."""
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
    def made(self) -> RunInfo | None:
        """How its outputs came to be; None when it was never recorded. Raises `LabError`."""
        try:
            return msgspec.convert(self.content["metadata"].get("recording"), RunInfo | None)
        except msgspec.ValidationError as error:
            raise NotebookError(f"{self.id}: {error}; run {record_command(self.name)}") from error

    @property
    def device(self) -> str:
        """The slug of the device that it was recorded on; empty when it never was. Raises `LabError`."""
        return slug(self.made.circumstances.device) if self.made else ""

    @property
    def digest(self) -> str:
        """Hash of what it runs: its own code less the set-up, its chapter's, and the protocol."""
        cells = {f"cell {number}": source for number, source in enumerate(code_cells(self.content)[1:])}
        return code_digest(f"lab {NOTEBOOK_PROTOCOL} {source_digest(self.name)}", cells)

    @property
    def state(self) -> str:
        """`recorded`, `stale`, `missing`, or `unreadable: ...`."""
        try:
            made, digest, problems = self.made, self.digest, list(output_problems(self.content))
        except (NotebookError, SyntaxError) as error:
            return f"unreadable: {error}"
        if made is None:
            return "missing"
        return f"unreadable: {problems[0]}" if problems else "recorded" if made.digest == digest else "stale"


def record_command(name: str) -> str:
    """The command that records a lab."""
    return f"make record CHAPTER={PREFIX}{name}"


def load_notebook(path: Path) -> Notebook:
    """Read one lab. Raises `LabError` when it is no notebook."""
    try:
        return _read(path, path.read_bytes())
    except OSError as error:
        raise NotebookError(f"{path.name} cannot be read: {error.strerror}") from error


def _read(path: Path, written: bytes) -> Notebook:
    try:
        content = msgspec.json.decode(written, type=dict[str, Any])
        nbformat, cells = msgspec.convert((content.get("nbformat"), content.get("cells")), tuple[int, list[_Cell]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotebookError(f"{path.name} is no notebook: {error}") from error
    if nbformat != 4 or not cells or not isinstance(content.get("metadata"), dict):
        raise NotebookError(f"{path.name} is no notebook of format 4 with cells")
    return Notebook(path, content)


def notebooks(root: Path | None = None) -> tuple[Notebook, ...]:
    """The labs beside the recordings in `root`, in the order of the chapters in nav. Raises `LabError`."""
    folder = (root or RECORDINGS).parent / "labs"
    config = PROJECT / "mkdocs.yml"
    nav = config.read_text("utf-8") if config.is_file() else ""
    return tuple(
        map(load_notebook, sorted(folder.glob("*.ipynb"), key=lambda path: (nav.find(f" {path.stem}.md"), path.name)))
    )


def find_notebooks(names: list[str]) -> tuple[Notebook, ...]:
    """The labs that names on the command line mean: all when there is none, and a chapter's with its chapter."""
    meant = {name.removeprefix(PREFIX) for name in names}
    return tuple(lab for lab in notebooks() if not names or lab.name in meant or PREFIX.strip("/") in meant)


def is_notebook(name: str) -> bool:
    """Whether a name on the command line means labs alone. Raises `LabError` for a lab that does not exist."""
    if not f"{name}/".startswith(PREFIX):
        return False
    if name != PREFIX.strip("/") and not find_notebooks([name]):
        raise NotebookError(f"no lab {name!r}; there are {' '.join(lab.id for lab in notebooks())}")
    return True


class _Tags(HTMLParser):
    """Counts the tags, and collects those that are no simple HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.count = 0
        self.foreign: list[str] = []
        self.feed(html)
        if self.count != html.count("<"):  # a comment, or a tag that is never closed and takes in what comes next
            self.foreign.append("a < that begins no tag")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += 1
        strange = sorted({name for name, _ in attrs} - ATTRIBUTES)
        if tag not in TAGS or strange:
            self.foreign.append(" ".join([f"<{tag}", *strange]))

    def handle_endtag(self, tag: str) -> None:
        self.count += 1


def output_problems(content: dict[str, Any]) -> Iterator[str]:
    """Outputs that are neither text nor simple HTML, and size."""
    for output in (one for cell in content["cells"] for one in cell.get("outputs", ())):
        kind = output.get("output_type")
        if kind == "stream" and output.get("name") == "stdout":
            continue
        if kind != "execute_result" or not output.get("data", {}).keys() <= {"text/plain", "text/html"}:
            yield f"an output that is neither text nor HTML: {kind} {' '.join(output.get('data', {}))}"
            continue
        reader = _Tags("".join(output["data"].get("text/html", "")))
        yield from (f"not the simple HTML of a lab: {foreign}" for foreign in reader.foreign)
    names = Counter(re.findall(r'aria-label=\\"([^"]*)\\"', json.dumps(content, ensure_ascii=False)))
    yield from (f"two tables of one name, which cannot be told apart: {name}" for name in names if names[name] > 1)
    size = len(dumped(content))
    if size > LIMIT_BYTES:
        yield f"{size:,} bytes; at most {LIMIT_BYTES:,}: show less, or profile a smaller step"


def dumped(content: dict[str, Any]) -> bytes:
    """A notebook as Jupyter writes it."""
    return (json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def fill(lab: Notebook, outputs: list[list[dict[str, Any]]], made: RunInfo) -> dict[str, Any]:
    """The notebook with these outputs. Raises `LabError` when they do not fit it, or a page could not show them."""
    cells = [cell for cell in lab.content["cells"] if cell["cell_type"] == "code"]
    if len(outputs) != len(cells):
        raise NotebookError(f"{lab.id}: {len(outputs)} outputs for {len(cells)} code cells")
    fresh = {id(cell): {**cell, "outputs": found} for cell, found in zip(cells, outputs, strict=True)}
    for number, cell in enumerate(fresh.values(), 1):
        cell["execution_count"] = number
    metadata = {**lab.content["metadata"], "recording": msgspec.to_builtins(made)}
    content = {
        **lab.content,
        "cells": [fresh.get(id(cell), cell) for cell in lab.content["cells"]],
        "metadata": metadata,
    }
    for problem in output_problems(content):
        raise NotebookError(f"{lab.id}: {problem}")
    return content


def adopt(lab: Notebook, archived: bytes, device: str) -> dict[str, Any]:
    """The notebook with the outputs of the same notebook from elsewhere. Raises `LabError` when it is another one."""
    theirs = _read(lab.path, archived)
    if theirs.made is None or theirs.device != device:
        raise NotebookError(f"{lab.id} was not recorded on {device}")
    if code_cells(theirs.content) != code_cells(lab.content):
        raise NotebookError(f"{lab.id} has other cells than the one here; record it again from this checkout")
    return fill(lab, [cell["outputs"] for cell in theirs.content["cells"] if cell["cell_type"] == "code"], theirs.made)


def record_notebook(lab: Notebook, device: str, time_limit_s: float = TIME_LIMIT_S) -> str:
    """Run one lab on this machine's GPU and write its outputs into it; the cause when that fails."""
    try:
        told = run_notebooks([lab.path.resolve()], time_limit_s)
        found = told["labs"][lab.name]
        if found["failed"]:
            return "\n".join(found["failed"].strip().splitlines()[:20])
        circumstances = msgspec.convert(told["circumstances"], Environment)
        if slug(circumstances.device) != device:
            return f"it ran on {circumstances.device}, not on {device}"
        content = fill(lab, found["outputs"], RunInfo(lab.digest, found["seconds"], circumstances))
        write_file(lab.path, dumped(content))
    except (CellFailed, NotebookError, OSError) as error:
        return str(error)
    return ""


def notebook_list() -> Html:
    """The labs of the site: what each is about, where and when it was recorded, the file to take away."""
    rows = [
        [
            Html(f'<a href="{lab.name}/">{escape(lab.title)}</a>'),
            Html(f'<a href="../{lab.name}/">{code(lab.name)}</a>'),
            _recorded(lab),
            Html(f'<a href="{lab.name}/{lab.path.name}" download>{escape(lab.path.name)}</a>'),
        ]
        for lab in notebooks()
    ]
    return table("Labs", ["lab", "chapter", "its outputs", "to take away"], rows, text_columns=4)


def _recorded(lab: Notebook) -> Html:
    """Where and when, or what is to be done about it."""
    state = lab.state
    if state == "missing":
        return Html(f"not recorded yet: on the {short_name(DEFAULT_DEVICE)} run {code(record_command(lab.name))}")
    if state.startswith("unreadable") or lab.made is None:
        return Html(escape(state))
    where = lab.made.circumstances
    line = f'{escape(where.device)}, <time datetime="{escape(where.date)}">{escape(where.date[:10])}</time>'
    if state == "recorded":
        return Html(line)
    return Html(f"{line}: <strong>stale</strong>, its code has changed since; run {code(record_command(lab.name))}")
