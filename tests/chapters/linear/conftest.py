"""The book's recordings, for every test a copy of its own."""

from pathlib import Path

import pytest

from tests.chapters.linear.copies import Copies


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path)
