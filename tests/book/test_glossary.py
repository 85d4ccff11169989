"""The words of the book: one file, of which the glossary page and the tooltips are made."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import markdown
import pytest

from snippets.lab.page.glossary import TERMS, Term, glossary_terms, heading_slug, read_terms

# KEEP glossary
from tests.book import page_sources
from tests.book.test_docs import CONFIG, PAGES

ROOT = Path(__file__).resolve().parents[2]
TEXT = TERMS.read_text(encoding="utf-8")
TERMS = read_terms(TEXT)
OTHER_PAGES = {page: text for page, text in PAGES.items() if page != "glossary.md"}

SMALL = """\
Said to whoever edits the file: *[this]: is no term.

--8<-- [start:tooltips]
*[GEMM]: A product; it is a kernel.
[GEMM]: linear.md#where-is-it
--8<-- [end:tooltips]

--8<-- [start:words]
*[lane]: A row.
[lane]: mlp.md#a-b_c

*[warm, cold]: Two ways.
[warm, cold]: mlp.md#ways
--8<-- [end:words]
"""


def test_terms_are_read_section_by_section() -> None:
    found = read_terms(SMALL)
    assert found == [
        Term("GEMM", "A product; it is a kernel.", "linear", "where-is-it", has_tooltip=True),
        Term("lane", "A row.", "mlp", "a-b_c", has_tooltip=False),
        Term("warm, cold", "Two ways.", "mlp", "ways", has_tooltip=False),
    ]
    assert [term.words for term in found] == [["GEMM"], ["lane"], ["warm", "cold"]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[lane]: mlp.md#a-b_c", ""),  # not said where it is taught
        ("[lane]: mlp.md#a-b_c", "[line]: mlp.md#a-b_c"),  # the place of another word
        ("[lane]: mlp.md#a-b_c", "[lane]: mlp.md"),  # a page, but no heading
        ("*[lane]: A row.", "*[lane] A row."),
        ("*[lane]: A row.", "*[lane]: A row,\nof a trace."),  # a second line would be lost in a tooltip
        ("c\n\n*[warm", "c\n*[warm"),
    ],
)
def test_what_is_no_term_is_refused(old: str, new: str) -> None:
    assert old in SMALL
    with pytest.raises(ValueError, match="not a term with its meaning and its place"):
        read_terms(SMALL.replace(old, new))


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
    assert page_sources.stray_problems("terms.txt", TEXT) == []


@pytest.mark.parametrize("term", [term for term in TERMS if term.has_tooltip], ids=lambda term: term.name)
def test_a_tooltip_shows_on_some_page(term: Term) -> None:
    as_abbr_finds_it = re.compile(rf"\b{re.escape(term.name)}\b")
    assert any(as_abbr_finds_it.search(page_sources.prose(page, text)) for page, text in OTHER_PAGES.items())


@pytest.mark.parametrize("word", [word for term in TERMS if not term.has_tooltip for word in term.words])
def test_a_word_is_used_on_some_page(word: str) -> None:
    used = re.compile(rf"\b{re.escape(word)}(?:e?s)?(?:\b|_)", re.IGNORECASE)
    assert any(used.search(text) for text in OTHER_PAGES.values())


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
    reader.feed(glossary_terms())
    expected = sorted(TERMS, key=lambda term: term.name.casefold())
    assert reader.ids == [heading_slug(term.name) for term in expected]
    assert len(set(reader.ids)) == len(TERMS)
    places = [link for link in reader.links if not link.startswith("#")]
    assert places == [f"../{term.page}/#{term.anchor}" for term in expected]


@pytest.fixture
def small_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "p.md").write_text("# P\n\n## Is `a < b` *here*?\n")
    monkeypatch.setattr(glossary, "DOCS", tmp_path)
    monkeypatch.setattr(glossary, "TERMS", tmp_path / "terms.txt")
    return tmp_path


def write_term(docs: Path, place: str) -> None:
    entry = f"*[x & <i>]: Less < more.\n[x & <i>]: {place}\n"
    (docs / "terms.txt").write_text(f"--8<-- [start:words]\n{entry}--8<-- [end:words]\n")


def test_what_the_page_prints_is_escaped(small_docs: Path) -> None:
    write_term(small_docs, "p.md#is-a-b-here")
    assert glossary_terms() == (
        '<div class="glossary"><h2 id="x-i">x &amp; &lt;i&gt;'
        '<a class="headerlink" href="#x-i" title="Permanent link">¶</a></h2>'
        '<p>Less &lt; more. <a href="../p/#is-a-b-here">Is a &lt; b here?</a></p></div>'
    )


@pytest.mark.parametrize("place", ["p.md#is-it-there", "q.md#is-a-b-here"])
def test_a_place_that_is_gone_ends_the_build(small_docs: Path, place: str) -> None:
    write_term(small_docs, place)
    with pytest.raises(ValueError, match=re.escape(f"is said to be taught at {place}, which is not there")):
        glossary_terms()


def rendered(text: str) -> str:
    """A page's text as MkDocs renders it, as far as terms go."""
    configured = [entry for entry in CONFIG["markdown_extensions"] if isinstance(entry, dict)]
    options = next(entry["pymdownx.snippets"] for entry in configured if "pymdownx.snippets" in entry)
    return markdown.markdown(
        text,
        extensions=["abbr", "pymdownx.snippets"],
        extension_configs={"pymdownx.snippets": {**options, "base_path": [str(ROOT)]}},
    )


def test_tooltips_mark_prose_and_leave_code_and_common_words_alone() -> None:
    meaning = next(term.meaning for term in TERMS if term.name == "GEMM")
    html = rendered("The kernel of a GEMM, `GEMM`, and GEMMs.")
    assert html == f'<p>The kernel of a <abbr title="{meaning}">GEMM</abbr>, <code>GEMM</code>, and GEMMs.</p>'


def test_the_site_is_set_up_for_tooltips() -> None:
    assert "content.tooltips" in CONFIG["theme"]["features"]
    assert "/assets/terms.txt" in CONFIG["exclude_docs"].splitlines()
