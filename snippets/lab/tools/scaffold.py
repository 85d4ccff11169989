"""`make chapter NAME=rmsnorm`: write the files of a new chapter and its lines in nav, or nothing after an error.

scaffold.txt has the files: a working example to replace piece by piece.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from contextlib import suppress
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Any

from kinetoscope.files import write_whole
from kinetoscope.terminal import CommandError
from snippets.lab.notebooks.cells import code_cells
from snippets.lab.notebooks.files import SETUP, load_notebook
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.page.nav import OTHER_PARTS, chapter_parts, chapters_in_nav
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT

FILES = Path(__file__).with_suffix(".txt")
FORM = "make chapter NAME=rmsnorm: lower-case letters, digits and underscores, a letter first, at most 24 in all"
RESERVED = {"assets", "docs", "lab", "labs", "recordings", "search", "site", "snippets", "test", "tests"}
"""Folders of the project or of the site."""
PACKAGES = {"kinetoscope", "msgspec", "numpy", "pytest", "torch", "transformers", "triton"}
YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
"""Words that YAML reads as truth values."""
DESCRIPTION = """\
Write the files of a new chapter, a working example to replace piece by piece, and its lines in mkdocs.yml.

  python -m snippets.lab chapter rmsnorm
"""
_FILE = re.compile(r"^===== (.+)\n", re.MULTILINE)
_CELL = re.compile(r"^%% (markdown|code)\n", re.MULTILINE)
_OUR_IMPORTS = re.compile(r"(?:^from (?:snippets|tests)\.?\S* import .*\n)+", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `chapter`."""
    parser.add_argument("chapter", nargs="?", default="", metavar="NAME", help="lower case, as a Python module")


def command(arguments: argparse.Namespace) -> int:
    """Lay out a new chapter."""
    return scaffold_chapter(arguments.chapter, PROJECT)


class ScaffoldError(CommandError):
    """The chapter could not be made; the message has the cause and the cure."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


def chapter_files(name: str, setup: str = SETUP) -> dict[str, str]:
    """The files of a new chapter, path -> text, without its lines in nav. `setup`: first code cell of its notebook."""
    slug = name.replace("_", "-")
    filled = Template(FILES.read_text(encoding="utf-8")).substitute(
        name=name, title=chapter_title(name), slug=slug, claim=slug.upper(), setup=setup.strip()
    )
    _, *parts = _FILE.split(filled)
    files = {path: _OUR_IMPORTS.sub(_sorted, text) for path, text in zip(parts[::2], parts[1::2], strict=True)}
    return {path: notebook_json(text) if path.endswith(".ipynb") else text for path, text in files.items()}


def chapter_title(name: str) -> str:
    """A chapter's first title, from its name: `flash_attention` -> `Flash attention`."""
    return name.replace("_", " ").strip().capitalize()


def _sorted(block: re.Match[str]) -> str:
    """Sort import lines in ruff's order, which depends on the chapter's name."""
    return "".join(sorted(block[0].splitlines(keepends=True), key=lambda line: line.split()[1]))


def notebook_json(text: str) -> str:
    """A notebook, as Jupyter writes it, from text with a line `%% markdown` or `%% code` before each cell."""
    _, *parts = _CELL.split(text)
    cells: list[dict[str, Any]] = []
    for number, (kind, source) in enumerate(zip(parts[::2], parts[1::2], strict=True), 1):
        lines = source.strip().splitlines(keepends=True)
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return dumped({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}).decode()


def setup_cell(root: Path) -> str:
    """The first code cell of the notebooks in `root`, the same in all; `SETUP` if there are no notebooks."""
    paths = sorted((root / "docs" / "labs").glob("*.ipynb"))
    return code_cells(load_notebook(paths[0]).content)[0] if paths else SETUP


def create_chapter(name: str, root: Path) -> list[str]:
    """Write a chapter's files below `root`, then its lines in nav. Returns their paths.

    Raises `ScaffoldError` for an invalid name or a name in use. An error or an interruption leaves no files.
    """
    if not name:
        raise ScaffoldError(f"no name given. {FORM}")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,23}", name) or iskeyword(name) or name in RESERVED | YAML_WORDS:
        raise ScaffoldError(f"{name!r} cannot be the name of a chapter. {FORM}")
    if name in sys.stdlib_module_names or name in PACKAGES:
        raise ScaffoldError(f"{name!r} is a Python package that chapters import. {FORM}")
    if taken := [path for path in chapter_places(name, root) if _is_taken(path)]:
        paths = ", ".join(path.relative_to(root).as_posix() for path in taken)
        raise ScaffoldError(f"{name} is taken: {paths}. Choose another name, or remove these paths")
    nav = root / "mkdocs.yml"
    before = nav.read_text(encoding="utf-8")
    after = with_lab(with_page(before, name), name)
    made = chapter_files(name, setup_cell(root))
    try:
        for path, text in made.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        write_whole(nav, after.encode())
    except BaseException:
        for folder in ("snippets", "tests/chapters"):
            shutil.rmtree(root / folder / name, ignore_errors=True)
        for path in made:
            with suppress(OSError):  # of a folder that could not be made
                (root / path).unlink()
        if nav.read_text(encoding="utf-8") != before:
            write_whole(nav, before.encode())
        raise
    return [*made, nav.name]


def chapter_places(name: str, root: Path) -> list[Path]:
    """Paths that must be free for a chapter of this name: its own, and modules that its folders would hide."""
    return [
        *(root / folder / name for folder in ("snippets", "docs", "tests/chapters")),
        *(root / folder / f"{name}.py" for folder in ("snippets", "tests/chapters")),
        root / "docs" / f"{name}.md",
        root / "docs" / "labs" / f"{name}.ipynb",
        *sorted((root / "docs" / "recordings").glob(f"*/{name}")),
    ]


def _is_taken(path: Path) -> bool:
    """Whether the path is a file, or a folder with files outside `__pycache__`, which a removed chapter leaves."""
    if not path.is_dir():
        return path.exists()
    return any(file.is_file() and file.parent.name != "__pycache__" for file in path.rglob("*"))


def with_page(config: str, name: str) -> str:
    """The text of mkdocs.yml with a chapter at the end of the last part of `nav` that holds chapters.

    Raises `ScaffoldError`.
    """
    if name in chapters_in_nav(config):
        raise ScaffoldError(f"{name} is taken: nav in mkdocs.yml has its page. Choose another name, or remove the line")
    parts = list(chapter_parts(config))
    if not parts:
        others = ", ".join(OTHER_PARTS)
        raise ScaffoldError(f"nav in mkdocs.yml has no part for chapters, only {others}; add one")
    return with_entry(config, parts[-1], f"- {chapter_title(name)}: {name}.md")


def with_lab(config: str, name: str) -> str:
    """The text of mkdocs.yml with a notebook at the end of nav's `Labs`. Raises `ScaffoldError`."""
    if f"labs/{name}.ipynb" in config:
        raise ScaffoldError(f"{name} is taken: nav in mkdocs.yml has its lab. Choose another name, or remove the line")
    return with_entry(config, "Labs", f'- "{chapter_title(name)}, by yourself": labs/{name}.ipynb')


def with_entry(config: str, section: str, entry: str) -> str:
    """The text of mkdocs.yml with an entry at the end of a list in nav. Raises `ScaffoldError` without that list."""
    match = re.search(rf"^(?P<indent> *)- {section}:.*\n(?P<entries>(?:(?P=indent) +- .*\n)+)", config, re.MULTILINE)
    if match is None:
        raise ScaffoldError(f"mkdocs.yml has no list `- {section}:` in nav; add it for the chapter's line")
    last = match["entries"].splitlines()[-1]
    indent = last[: len(last) - len(last.lstrip())]
    return f"{config[: match.end()]}{indent}{entry}\n{config[match.end() :]}"


def scaffold_chapter(name: str, root: Path) -> int:
    """Make a chapter and print the next steps. Raises `ScaffoldError`."""
    made = create_chapter(name, root)
    print("\n".join(["made, with an example to replace:", *(f"  {path}" for path in made)]))
    print("\nnext, as docs/contributing.md shows step by step (python is .venv/bin/python, or your own):")
    steps = {
        f"make serve SAMPLE={name}": f"http://127.0.0.1:8000/{name}/ follows what you save, with made-up numbers",
        f"python -m snippets.lab run {name}/eager --rows 64 --dim 256": "profile the example here, GPU or CPU",
        f"python -m pytest tests/chapters/{name}": "its tests",
        "make check": "passes from the start; what is not recorded yet is reported, and is not an error",
        f"make record CHAPTER={name}": f"on a machine with a CUDA GPU; commit recordings of {DEFAULT_DEVICE} only",
    }
    width = max(map(len, steps))
    print("\n".join(f"  {command:{width}}  {meaning}" for command, meaning in steps.items()))
    print("A file of more than 300 lines becomes a package of its name, such as experiments/ (docs/contributing.md).")
    print("An experiment on several GPUs is a loop or a probe with gpus=2 (docs/contributing.md).")
    print("To undo it, remove these files and the two lines in mkdocs.yml.")
    return 0
