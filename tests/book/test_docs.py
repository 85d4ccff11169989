"""The pages, before they are built. tests/lab/tools/test_page_rules.py plants faults to show what the rules catch."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from snippets.lab.finding.book import all_claims
from snippets.lab.finding.claim import SERIES
from snippets.lab.notebooks.files import notebooks
from snippets.lab.page.nav import chapters_in_nav
from snippets.lab.page.sample import chapter_of
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_rules import (
    fence_problems,
    finding_problems,
    guess_problems,
    section_problems,
    stray_problems,
    veil_problems,
    width_problems,
)
from snippets.lab.tools.page_text import fences, page_slug, pages, sources

PAGES = pages(PROJECT / "docs")

NOT_MEASURED: dict[str, dict[str, str]] = {}
"""Page -> fragment of a line -> why a number with a unit may be typed there."""


class ConfigLoader(yaml.SafeLoader):
    """Reads mkdocs.yml with `!!python/name:` as text."""


ConfigLoader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)
ConfigLoader.add_constructor("!ENV", lambda loader, node: "")
CONFIG: dict[str, Any] = yaml.load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=ConfigLoader)


def nav_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in nav_pages(value)]


def test_executed_fences_have_the_form_that_runs() -> None:
    assert fence_problems(fence for page, text in PAGES.items() for fence in fences(page, text)) == []


def test_sections_shown_are_sections_marked() -> None:
    assert section_problems(PAGES, sources(PROJECT)) == []


def test_shown_code_fits_eighty_columns() -> None:
    assert width_problems(PAGES, sources(PROJECT)) == []


@pytest.mark.parametrize("page", PAGES)
def test_guesses_are_in_folded_questions_with_their_reasons(page: str) -> None:
    assert guess_problems(page, PAGES[page]) == []


@pytest.mark.parametrize("page", PAGES)
def test_what_a_guess_veils_is_below_it_on_the_page(page: str) -> None:
    assert veil_problems(page, PAGES[page]) == []


def test_every_figure_and_claim_exists_and_every_claim_is_shown() -> None:
    assert finding_problems(PROJECT) == []


@pytest.mark.parametrize("page", PAGES)
def test_no_number_with_a_unit_is_typed_by_hand(page: str) -> None:
    allowed = NOT_MEASURED.get(page, {})
    assert stray_problems(page, PAGES[page], allowed) == []
    unused = [fragment for fragment in allowed if not stray_problems(page, PAGES[page], {*allowed} - {fragment})]
    assert unused == [], "an exception that nothing needs"


def test_exceptions_are_for_pages_that_exist() -> None:
    assert NOT_MEASURED.keys() <= PAGES.keys()


def test_every_page_is_in_nav_once() -> None:
    labs = [path.relative_to(PROJECT / "docs").as_posix() for path in PROJECT.glob("docs/labs/*.ipynb")]
    assert sorted(nav_pages(CONFIG["nav"])) == sorted([*PAGES, *labs])


def test_the_list_of_chapters_is_that_of_nav() -> None:
    """It is read without a reader of YAML."""
    chapters = next(value for entry in CONFIG["nav"] for title, value in entry.items() if title == "Chapters")
    read = chapters_in_nav((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [f"{name}.md" for name in read] == nav_pages(chapters)
    assert list(read.values()) == [title for entry in chapters for title in entry]


def test_every_page_in_nav_is_of_a_chapter_with_its_folders() -> None:
    """The first page of a chapter has its name, every other page a name that begins with it."""
    pages_in_nav = list(chapters_in_nav((PROJECT / "mkdocs.yml").read_text(encoding="utf-8")))
    chapters = [chapter_of(f"{page_slug(page)}-") for page in pages_in_nav]
    for page, name in zip(pages_in_nav, chapters, strict=True):
        assert pages_in_nav[chapters.index(name)] == name, page
        assert list((PROJECT / "snippets" / name).glob("experiments*"))
        assert list((PROJECT / "snippets" / name).glob("findings*"))
        assert (PROJECT / "tests" / "chapters" / name).is_dir()


def test_configuration_stays_portable() -> None:
    names = [plugin if isinstance(plugin, str) else next(iter(plugin)) for plugin in CONFIG["plugins"]]
    assert names == ["search", "markdown-exec", "mkdocs-jupyter"]
    assert "hooks" not in CONFIG
    theme = PROJECT / CONFIG["theme"]["custom_dir"]
    own = sorted(path.relative_to(theme).as_posix() for path in theme.rglob("*.*"))
    assert own == ["404.html", "main.html", "partials/copyright.html", "partials/javascripts/base.html"]
    assert CONFIG["theme"]["font"] is False


def test_the_series_is_what_claims_name() -> None:
    """The theme's templates read the posts in mkdocs.yml, the ledger those of finding/claim.py."""
    posts = CONFIG["extra"]["series"]
    assert {post["part"]: post["url"] for post in posts} == SERIES
    tested = {post["part"]: set(post["chapters"]) for post in posts}
    claimed = {(claim.source.who, chapter) for chapter, claim in all_claims().values() if claim.source}
    assert {part: {chapter for who, chapter in claimed if who == part} for part in SERIES} == tested


def test_a_lab_is_called_in_nav_as_its_heading() -> None:
    """A build of one page reads no other page's heading, and would call the labs `None`."""
    (labs,) = (value for entry in CONFIG["nav"] for title, value in entry.items() if title == "Labs")
    titles = {page: title for entry in labs for title, page in entry.items() if page.endswith(".ipynb")}
    assert titles == {f"labs/{lab.path.name}": lab.title for lab in notebooks(PROJECT / "docs" / "recordings")}
