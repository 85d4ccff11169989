"""`make chapter NAME=rmsnorm`: the files of a new chapter and its line in nav, or nothing where something is wrong.

The files stand in scaffold.txt, a working example that is to be replaced piece by piece.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from keyword import iskeyword
from pathlib import Path
from string import Template

from snippets.lab.page.nav import NAV_CHAPTERS, chapters_in_nav
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT

FILES = Path(__file__).with_suffix(".txt")
FORM = "make chapter NAME=rmsnorm: lower-case letters, digits and underscores, a letter first, at most 24 in all"
RESERVED = {"assets", "lab", "labs", "recordings", "search"}
"""Folders of the project or of the site."""
YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
"""What YAML reads as something else."""
HELP = "lay out a new chapter with a working example: make chapter"
DESCRIPTION = """\
Write the files of a new chapter, a working example to replace piece by piece, and its line in mkdocs.yml.

  python -m snippets.lab chapter rmsnorm
"""
_FILE = re.compile(r"^===== (.+)\n", re.MULTILINE)
_OUR_IMPORTS = re.compile(r"(?:^from (?:snippets|tests)\.?\S* import .*\n)+", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `chapter`."""
    parser.add_argument("chapter", nargs="?", default="", metavar="NAME", help="lower case, as a Python module")


def command(arguments: argparse.Namespace) -> int:
    """Lay out a new chapter."""
    return scaffold_chapter(arguments.chapter, PROJECT)


class ScaffoldError(Exception):
    """No chapter was made; the message says why and what to do."""


def chapter_files(name: str) -> dict[str, str]:
    """Path -> text of what a new chapter consists of, the line in nav aside."""
    filled = Template(FILES.read_text(encoding="utf-8")).substitute(
        name=name, title=chapter_title(name), claim=name.replace("_", "-").upper()
    )
    _, *parts = _FILE.split(filled)
    return {path: _OUR_IMPORTS.sub(_sorted, text) for path, text in zip(parts[::2], parts[1::2], strict=True)}


def chapter_title(name: str) -> str:
    """A chapter's title until its author has a better one: `flash_attention` -> `Flash attention`."""
    return name.replace("_", " ").strip().capitalize()


def _sorted(block: re.Match[str]) -> str:
    """Import lines in ruff's order, wherever the chapter's name puts its own."""
    return "".join(sorted(block[0].splitlines(keepends=True), key=lambda line: line.split()[1]))


def create_chapter(name: str, root: Path) -> list[str]:
    """Write a chapter's files below `root`, then its line in nav. Returns their paths.

    Raises `ScaffoldError` for a name that cannot be a chapter's and for one that is taken. Nothing is left behind then,
    nor when writing fails or is interrupted.
    """
    if not name:
        raise ScaffoldError(f"a name is needed. {FORM}")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,23}", name) or iskeyword(name) or name in RESERVED | YAML_WORDS:
        raise ScaffoldError(f"{name!r} cannot be the name of a chapter. {FORM}")
    if taken := [path for path in chapter_places(name, root) if path.exists()]:
        there = ", ".join(path.relative_to(root).as_posix() for path in taken)
        raise ScaffoldError(f"{name} is taken: {there}. Choose another name, or remove what is there")
    nav = root / "mkdocs.yml"
    before = nav.read_text(encoding="utf-8")
    after = with_page(before, name)
    made = chapter_files(name)
    try:
        for path, text in made.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        nav.write_text(after, encoding="utf-8")
    except BaseException:
        for folder in ("snippets", "tests"):
            shutil.rmtree(root / folder / name, ignore_errors=True)
        (root / "docs" / f"{name}.md").unlink(missing_ok=True)
        nav.write_text(before, encoding="utf-8")  # last: where the disk was full there is room again
        raise
    return [*made, nav.name]


def chapter_places(name: str, root: Path) -> list[Path]:
    """Where something of that name would be in the way: the four places, and what they would hide."""
    return [
        *(root / folder / name for folder in ("snippets", "docs", "tests")),
        *(root / folder / f"{name}.py" for folder in ("snippets", "tests")),
        root / "docs" / f"{name}.md",
        *sorted((root / "docs" / "recordings").glob(f"*/{name}")),
    ]


def with_page(config: str, name: str) -> str:
    """The text of mkdocs.yml with a chapter at the end of nav's `Chapters`. Raises `ScaffoldError`."""
    match = NAV_CHAPTERS.search(config)
    if match is None or not match["pages"]:
        raise ScaffoldError("mkdocs.yml has no list `- Chapters:` in nav; the chapter's line belongs into one")
    if name in chapters_in_nav(config):
        raise ScaffoldError(f"{name} is taken: nav in mkdocs.yml has its page. Choose another name, or remove the line")
    indent = re.match(" *", match["pages"].splitlines()[-1])
    assert indent is not None
    return f"{config[: match.end()]}{indent[0]}- {chapter_title(name)}: {name}.md\n{config[match.end() :]}"


def scaffold_chapter(name: str, root: Path) -> int:
    """Make a chapter, and print what comes next; 2 if the name cannot be a chapter's."""
    try:
        made = create_chapter(name, root)
    except ScaffoldError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(["made, with an example to replace:", *(f"  {path}" for path in made)]))
    print("\nnext, as docs/contributing.md shows step by step (python is .venv/bin/python, or your own):")
    steps = {
        "make serve": f"http://127.0.0.1:8000/{name}/ follows what you save",
        f"python -m snippets.lab run {name}/eager --rows 64 --dim 256": "profile the example here, GPU or CPU",
        f"python -m pytest tests/{name}": "its tests",
        "make check": "passes from the start; what is not recorded yet is reported, and is not an error",
        f"make record CHAPTER={name}": f"on a machine with a CUDA GPU; commit recordings of {DEFAULT_DEVICE} only",
    }
    width = max(map(len, steps))
    print("\n".join(f"  {command:{width}}  {meaning}" for command, meaning in steps.items()))
    print("To undo it, remove these files and the line in mkdocs.yml.")
    return 0
