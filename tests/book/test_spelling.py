"""American spelling everywhere, checked by codespell with the settings in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    *("*.md", "*.yml", "*.toml", "Makefile", ".github/**/*.md", ".github/**/*.yml"),
    *("docs/*.md", "docs/labs/*.md", "docs/labs/*.ipynb"),
    *("docs/assets/*.txt", "docs/assets/*/*.css", "docs/assets/*/*.js"),
    *("snippets/**/*.py", "tests/**/*.py"),
)
PATHS = {pattern: sorted(ROOT.glob(pattern)) for pattern in SOURCES}


def misspelled(*paths: Path) -> list[str]:
    """What codespell objects to, one line each: `PATH:LINE: WORD ==> CORRECTION`."""
    command = [sys.executable, "-m", "codespell_lib", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.replace(f"{ROOT}/", "").splitlines()


def test_every_word_is_spelled_the_american_way(tmp_path: Path) -> None:
    """The settings are right if one British word, and one that is none, are found."""
    page = tmp_path / "page.md"
    page.write_text("One colour that I recieve.\n")
    found = misspelled(page, *(path for paths in PATHS.values() for path in paths if path != Path(__file__)))
    assert found == [f"{page}:1: colour ==> color", f"{page}:1: recieve ==> receive"]
    assert [pattern for pattern, paths in PATHS.items() if not paths] == []
