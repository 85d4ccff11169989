"""The pages, before they are built. What the checks catch is shown with planted faults in test_gates.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.book import page_sources

ROOT = Path(__file__).resolve().parents[2]
PAGES = page_sources.pages(ROOT / "docs")
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("snippets/**/*.py"))
    if not path.is_symlink()  # the sections of a linked source are those of its chapter
}

NOT_MEASURED: dict[str, dict[str, str]] = {}
"""Page -> fragment of a line -> why a number with a unit may be typed there."""


class ConfigLoader(yaml.SafeLoader):
    """Reads mkdocs.yml with `!!python/name:` as text."""


ConfigLoader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)
ConfigLoader.add_constructor("!ENV", lambda loader, node: "")
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=ConfigLoader)


def nav_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in nav_pages(value)]


def test_executed_fences_have_the_form_that_runs() -> None:
    fences = [fence for page, text in PAGES.items() for fence in page_sources.fences(page, text)]
    assert page_sources.fence_problems(fences) == []


def test_sections_shown_are_sections_marked() -> None:
    assert page_sources.section_problems(PAGES, SOURCES) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_number_with_a_unit_is_typed_by_hand(page: str) -> None:
    allowed = NOT_MEASURED.get(page, {})
    assert page_sources.stray_problems(page, PAGES[page], allowed) == []
    unused = [
        fragment for fragment in allowed if not page_sources.stray_problems(page, PAGES[page], {*allowed} - {fragment})
    ]
    assert unused == [], "an exception that nothing needs"


def test_exceptions_are_for_pages_that_exist() -> None:
    assert NOT_MEASURED.keys() <= PAGES.keys()


def test_every_page_is_in_nav_once() -> None:
    labs = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/labs/*.ipynb")]
    assert sorted(nav_pages(CONFIG["nav"])) == sorted([*PAGES, *labs])


def test_every_chapter_in_nav_has_its_folders() -> None:
    chapters = next(
        nav_pages(value) for entry in CONFIG["nav"] for title, value in entry.items() if title == "Chapters"
    )
    for name in (page.removesuffix(".md") for page in chapters):
        assert (ROOT / "snippets" / name / "experiments.py").is_file()
        assert list((ROOT / "snippets" / name).glob("findings*"))
        assert (ROOT / "tests" / name).is_dir()


def test_configuration_stays_portable() -> None:
    names = [plugin if isinstance(plugin, str) else next(iter(plugin)) for plugin in CONFIG["plugins"]]
    assert names == ["search", "markdown-exec", "mkdocs-jupyter"]
    assert "hooks" not in CONFIG
    assert [path.name for path in (ROOT / CONFIG["theme"]["custom_dir"]).rglob("*")] == ["main.html"]
    assert CONFIG["theme"]["font"] is False
