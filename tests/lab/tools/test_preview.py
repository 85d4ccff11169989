"""A preview's work after a build, the same as in `make docs`."""

from __future__ import annotations

from pathlib import Path

from snippets.lab.tools.finish import publish_all
from tests.lab.samples import BOOK


def test_the_sheet_that_the_home_page_links_to_is_there(tmp_path: Path) -> None:
    publish_all(tmp_path, BOOK.root)
    assert (tmp_path / "what_do_you_see.svg").read_text(encoding="utf-8").startswith("<svg")
