"""The pages, before they are built. tests/lab/tools/test_page_rules.py plants faults to show what the rules catch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import yaml

from snippets.lab.finding.book import all_claims
from snippets.lab.finding.claim import SERIES
from snippets.lab.notebooks.files import notebooks
from snippets.lab.page.nav import OTHER_PARTS, chapters_in_nav
from snippets.lab.page.sample import chapter_of
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.chapter_rules import pages_of_chapters
from snippets.lab.tools.page_rules import (
    fence_problems,
    finding_problems,
    guess_problems,
    section_problems,
    stray_problems,
    veil_problems,
    width_problems,
)
from snippets.lab.tools.page_text import fences, page_slug, pages, prose, sources

PAGES = pages(PROJECT / "docs")
FIGURE = "`#!fig"
COMPARING = re.compile(
    r"\b(?:(?<!the )(?:fast|slow|quick|cheap)er|takes? longer|(?:more|less) (?:time|memory)|the same time"
    r"|(?:twice|half|times|nearly|almost) as (?:fast|slow|long|much|many))\b"
)
QUESTION = re.compile(r"[^.!?]*\?")
ELSEWHERE = re.compile(r"^## On your machine$.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
"""What to expect of another GPU: nothing in it was measured."""


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


def test_guesses_are_in_folded_questions_with_their_reasons() -> None:
    assert [problem for page, text in PAGES.items() for problem in guess_problems(page, text)] == []


def test_what_a_guess_veils_is_below_it_on_the_page() -> None:
    assert [problem for page, text in PAGES.items() for problem in veil_problems(page, text)] == []


def test_every_figure_and_claim_exists_and_every_claim_is_shown() -> None:
    assert finding_problems(PROJECT) == []


def test_no_number_with_a_unit_is_typed_by_hand() -> None:
    assert [problem for page, text in PAGES.items() for problem in stray_problems(page, text)] == []


def unbound_comparisons(page: str, text: str) -> Iterator[str]:
    """Words that compare, without a figure or a result in their paragraph, right before it or right after it."""
    text = ELSEWHERE.sub(lambda section: "\n" * section[0].count("\n"), text)
    lines, words = text.splitlines(), prose(page, text).splitlines()
    for fence in fences(page, text):
        height = len(fence.body.splitlines()) + 2
        shown = FIGURE if fence.is_executed and not fence.asks else "code"
        lines[fence.line - 1 : fence.line - 1 + height] = [shown, *[""] * (height - 1)]
    paragraphs = [
        [*group] for has_text, group in groupby(range(len(lines)), lambda at: lines[at].strip() != "") if has_text
    ]
    is_bound = [any(FIGURE in lines[at] for at in paragraph) for paragraph in paragraphs]
    for index, (first, *others) in enumerate(paragraphs):
        is_title = re.match(r"\s*(?:#|\?\?\?)", lines[first]) is not None
        if is_title or any(is_bound[max(index - 1, 0) : index + 2]):
            continue
        text = QUESTION.sub("", " ".join(" ".join(words[first : first + 1 + len(others)]).split()))
        yield from (f"docs/{page}:{first + 1}: {match[0]}" for match in COMPARING.finditer(text))


def test_what_compares_is_next_to_a_number() -> None:
    """On chapters' pages: bind it to a figure, or move it next to a result."""
    texts = {page: PAGES[page] for page in pages_of_chapters(PROJECT)}
    assert [problem for page, text in texts.items() for problem in unbound_comparisons(page, text)] == []


def test_every_page_is_in_nav_once() -> None:
    labs = [path.relative_to(PROJECT / "docs").as_posix() for path in PROJECT.glob("docs/labs/*.ipynb")]
    assert sorted(nav_pages(CONFIG["nav"])) == sorted([*PAGES, *labs])


def test_the_list_of_chapters_is_that_of_nav() -> None:
    """The text of mkdocs.yml is read without a YAML parser."""
    parts = {title: value for entry in CONFIG["nav"] for title, value in entry.items() if isinstance(value, list)}
    assert set(OTHER_PARTS) < parts.keys()
    chapters = [entry for title, value in parts.items() if title not in OTHER_PARTS for entry in value]
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
