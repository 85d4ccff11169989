"""American spelling everywhere, checked by codespell with the settings in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    *("*.md", "*.yml", "*.toml", "Makefile", ".github/**/*.md", ".github/**/*.yml"),
    *("docs/*.md", "docs/labs/*.md", "docs/labs/*.ipynb"),
    *("docs/assets/*.txt", "docs/assets/*/*.css", "docs/assets/*/*.js"),
    *("snippets/**/*.py", "tests/**/*.py"),
)
PATHS = {pattern: sorted(ROOT.glob(pattern)) for pattern in SOURCES}


def misspelled(*paths: Path) -> list[str]:
    """Codespell's objections, one line each: `PATH:LINE: WORD ==> CORRECTION`."""
    command = [sys.executable, "-m", "codespell_lib", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.replace(f"{ROOT}/", "").splitlines()


@pytest.mark.parametrize("pattern", SOURCES)
def test_there_is_something_to_check(pattern: str) -> None:
    assert PATHS[pattern] != []


def test_every_word_is_spelled_the_american_way() -> None:
    assert misspelled(*(path for paths in PATHS.values() for path in paths if path.resolve() != Path(__file__))) == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("colour", "color"), ("summarise", "summarize"), ("behaviour", "behavior"), ("recieve", "receive")],
)
def test_a_misspelling_is_found(wrong: str, right: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\nOne {wrong} in it.\n")
    assert misspelled(page) == [f"{page}:3: {wrong} ==> {right}"]
