"""A preview's work after a build, the same as in `make docs`."""

from __future__ import annotations

from pathlib import Path

from snippets.lab.tools.preview import publish_all


def test_the_sheet_that_the_home_page_links_to_is_there(tmp_path: Path) -> None:
    publish_all(tmp_path)
    assert (tmp_path / "what_do_you_see.svg").read_text(encoding="utf-8").startswith("<svg")
