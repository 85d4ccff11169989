"""The recordings that commands read here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab.samples import BOOK


@pytest.fixture(scope="module")
def one_chapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recordings of one chapter: every experiment and claim is printed, but few have a trace to be read."""
    root = tmp_path_factory.mktemp("recordings")
    shutil.copytree(BOOK.root / BOOK.name / "linear", root / BOOK.name / "linear")
    return root
