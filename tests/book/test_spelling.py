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
    *("kinetoscope/**/*.py", "snippets/**/*.py", "tests/**/*.py"),
)


def test_every_word_is_spelled_the_american_way(tmp_path: Path) -> None:
    british = tmp_path / "british.md"
    british.write_text("A colour.\n")
    paths = [path for pattern in SOURCES for path in ROOT.glob(pattern) if path.resolve() != Path(__file__)]
    command = [sys.executable, "-m", "codespell_lib", *map(str, [british, *paths])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{british}:1: colour ==> color"]
