"""A copy of the project small enough to be changed and built within a test: its code, and two pages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from snippets.lab.recording.device import PROJECT

NAV = """\
nav:
  - Home: index.md # the comments of this file have a reader, too
  - Chapters:
      - Other: other.md
  - Labs:
      - What a lab is: labs/index.md
  - Reference:
      - More: more.md
"""
PAGES = {"index.md": "# Home\n", "other.md": "# Other\n", "labs/index.md": "# Labs\n", "more.md": "# More\n"}


def _lab_sections(folder: Path) -> str:
    """Lines that show every section of the lab, as the book's page on measuring does."""
    marked = (
        (path.relative_to(folder).as_posix(), name)
        for path in sorted(folder.glob("snippets/lab/**/*.py"))
        for name in re.findall(r"^ *# --8<-- \[start:(\w+)\]", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    return "".join(f'--8<-- "{path}:{name}"\n' for path, name in marked)


WITHOUT_BYTECODE = shutil.ignore_patterns("__pycache__")
WITH_BYTECODE = shutil.ignore_patterns("*.pyc.*")
"""For sources that processes run, which would compile them all again. Leaves out what another process is writing."""


def project(folder: Path, *, runs: bool = False) -> Path:
    """The project below `folder`, without its chapters and recordings, and with pages that show nothing.

    No chapter of the book can be in the way of one that a test makes, whatever their names. A copy that `runs` has the
    bytecode of its sources.
    """
    ignored = WITH_BYTECODE if runs else WITHOUT_BYTECODE
    for name in ("kinetoscope", "snippets/lab", "docs/assets", "tests/lab", "tests/tool"):
        shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
    for name in ("tests/chapters", "docs/labs"):
        (folder / name).mkdir()
    for name in (
        "pyproject.toml",
        "Makefile",
        "snippets/ruff.toml",
        "snippets/__init__.py",
        "tests/__init__.py",
        "tests/conftest.py",
    ):
        shutil.copy(PROJECT / name, folder / name)
    shutil.copy(PROJECT / "tests/chapters/__init__.py", folder / "tests/chapters/__init__.py")
    for name, text in PAGES.items():
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    with (folder / "docs/index.md").open("a", encoding="utf-8") as file:
        file.write(f"\n```python\n{_lab_sections(folder)}```\n")
    config, count = re.subn(r"^nav:\n(?:  .*\n)+", NAV, (PROJECT / "mkdocs.yml").read_text("utf-8"), flags=re.MULTILINE)
    assert count == 1
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    return folder
