"""The glossary: terms read from one file, and a page made of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.page.glossary import Term, read_terms, terms_html

SMALL = """\
For whoever edits the file: *[this]: is not a term.

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
    terms = read_terms(SMALL)
    assert terms == [
        Term("GEMM", "A product; it is a kernel.", "linear", "where-is-it", has_tooltip=True),
        Term("lane", "A row.", "mlp", "a-b_c", has_tooltip=False),
        Term("warm, cold", "Two ways.", "mlp", "ways", has_tooltip=False),
    ]
    assert [term.words for term in terms] == [["GEMM"], ["lane"], ["warm", "cold"]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[lane]: mlp.md#a-b_c", ""),  # without its place
        ("[lane]: mlp.md#a-b_c", "[line]: mlp.md#a-b_c"),  # the place of another word
        ("[lane]: mlp.md#a-b_c", "[lane]: mlp.md"),  # a page, but no heading
        ("*[lane]: A row.", "*[lane] A row."),
        ("*[lane]: A row.", "*[lane]: A row,\nof a trace."),  # a second line would be lost in a tooltip
        ("c\n\n*[warm", "c\n*[warm"),
    ],
)
def test_what_is_not_a_term_is_refused(old: str, new: str) -> None:
    assert old in SMALL
    with pytest.raises(ValueError, match="not a term with a meaning and an anchor"):
        read_terms(SMALL.replace(old, new))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "p.md").write_text("# P\n\n## Is `a < b` *here*?\n")
    return tmp_path


def write_term(docs: Path, place: str) -> None:
    entry = f"*[x & <i>]: Less < more.\n[x & <i>]: {place}\n"
    (docs / "assets" / "terms.txt").write_text(f"--8<-- [start:words]\n{entry}--8<-- [end:words]\n")


def test_what_the_page_prints_is_escaped(docs: Path) -> None:
    write_term(docs, "p.md#is-a-b-here")
    assert terms_html(docs) == (
        '<div class="glossary"><h2 id="x-i">x &amp; &lt;i&gt;'
        '<a class="headerlink" href="#x-i" title="Permanent link">¶</a></h2>'
        '<p>Less &lt; more. <a href="../p/#is-a-b-here">Is a &lt; b here?</a></p></div>'
    )


@pytest.mark.parametrize("place", ["p.md#is-it-there", "q.md#is-a-b-here"])
def test_a_place_that_is_gone_ends_the_build(docs: Path, place: str) -> None:
    write_term(docs, place)
    with pytest.raises(ValueError, match=re.escape(f"links to {place}, which does not exist")):
        terms_html(docs)
