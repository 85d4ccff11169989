"""The words of the book: one file, of which the glossary page and the tooltips are made."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import markdown
import pytest

from snippets.lab.page.glossary import TERMS as TERMS_FILE, glossary_terms, heading_slug, read_terms
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_rules import stray_problems
from snippets.lab.tools.page_text import prose
from tests.book.test_docs import CONFIG, PAGES
from tests.lab.samples import BOOK

TEXT = (PROJECT / "docs" / TERMS_FILE).read_text(encoding="utf-8")
TERMS = read_terms(TEXT)
OTHER_PAGES = {page: text for page, text in PAGES.items() if page != "glossary.md"}


def test_every_entry_of_the_file_is_read() -> None:
    assert len(TERMS) == len(re.findall(r"^\*\[", TEXT, re.MULTILINE)) >= 30


@pytest.mark.parametrize("has_tooltip", [True, False])
def test_both_sections_are_sorted(has_tooltip: bool) -> None:
    names = [term.name.casefold() for term in TERMS if term.has_tooltip == has_tooltip]
    assert names == sorted(names)


def test_no_word_is_explained_twice() -> None:
    words = [word.casefold() for term in TERMS for word in term.words]
    assert sorted(words) == sorted(set(words))


def test_a_tooltip_is_for_one_word_and_short_enough_to_hover() -> None:
    tooltips = [term for term in TERMS if term.has_tooltip]
    assert [term.name for term in tooltips if len(term.words) > 1] == []
    assert [term.name for term in tooltips if len(term.meaning) > 180] == []


def test_meanings_are_sentences_without_measured_numbers() -> None:
    assert [term.name for term in TERMS if not term.meaning.endswith(".")] == []
    assert stray_problems("terms.txt", TEXT) == []


def test_a_tooltip_shows_on_some_page() -> None:
    text = "\n".join(prose(page, text) for page, text in OTHER_PAGES.items())
    names = [term.name for term in TERMS if term.has_tooltip]
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []  # as abbr finds it


def test_a_word_is_used_on_some_page() -> None:
    text = "\n".join(OTHER_PAGES.values())
    words = [word for term in TERMS if not term.has_tooltip for word in term.words]
    assert [word for word in words if not re.search(rf"(?i)\b{re.escape(word)}(?:e?s)?(?:\b|_)", text)] == []


class Reader(HTMLParser):
    """Notes ids, and where links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []


def test_the_page_has_each_term_once_in_order_with_its_place() -> None:
    reader = Reader()
    reader.feed(glossary_terms(BOOK))
    expected = sorted(TERMS, key=lambda term: term.name.casefold())
    assert reader.ids == [heading_slug(term.name) for term in expected]
    assert len(set(reader.ids)) == len(TERMS)
    places = [link for link in reader.links if not link.startswith("#")]
    assert places == [f"../{term.page}/#{term.anchor}" for term in expected]


def rendered(text: str) -> str:
    """A page's text as MkDocs renders it, as far as terms go."""
    configured = [entry for entry in CONFIG["markdown_extensions"] if isinstance(entry, dict)]
    options = next(entry["pymdownx.snippets"] for entry in configured if "pymdownx.snippets" in entry)
    return markdown.markdown(
        text,
        extensions=["abbr", "pymdownx.snippets"],
        extension_configs={"pymdownx.snippets": {**options, "base_path": [str(PROJECT)]}},
    )


def test_tooltips_mark_prose_and_leave_code_and_common_words_alone() -> None:
    meaning = next(term.meaning for term in TERMS if term.name == "GEMM")
    html = rendered("The kernel of a GEMM, `GEMM`, and GEMMs.")
    assert html == f'<p>The kernel of a <abbr title="{meaning}">GEMM</abbr>, <code>GEMM</code>, and GEMMs.</p>'


def test_the_site_is_set_up_for_tooltips() -> None:
    assert "content.tooltips" in CONFIG["theme"]["features"]
    assert "/assets/terms.txt" in CONFIG["exclude_docs"].splitlines()
