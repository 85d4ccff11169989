"""What pages are made of: everything is text unless it says that it is HTML."""

from __future__ import annotations

import pytest

from kinetoscope.html import Html, bold, cell_html, code, details, hold_back, table
from kinetoscope.trace.text import shortened
from tests.tool.markup import EVIL, Markup, assert_only_text


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (None, '<span class="none" title="none">–</span>'),
        (0, "0"),
        (1.5, "1.5"),
        ("a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#x27;"),
        (Html("<i>x</i>"), "<i>x</i>"),
        ("", ""),
    ],
)
def test_cells(cell: object, expected: str) -> None:
    assert cell_html(cell) == expected


def test_the_best_of_a_row_is_bold() -> None:
    assert [cell_html(bold("a < b", is_best)) for is_best in (True, False)] == ["<strong>a &lt; b</strong>", "a &lt; b"]


def test_a_table() -> None:
    assert table("A & B", ["x", "n"], [["a", 1], [Html("<i>b</i>"), None]]) == (
        '<div class="lab-table" role="region" tabindex="0" aria-label="A &amp; B" data-search-exclude>'
        "<table><caption>A &amp; B</caption>"
        '<thead><tr><th scope="col">x</th>\n<th scope="col" class="number">n</th></tr></thead>'
        '<tbody><tr><td>a</td>\n<td class="number">1</td></tr>'
        '<tr><td><i>b</i></td>\n<td class="number"><span class="none" title="none">–</span></td></tr></tbody>'
        "</table></div>"
    )


def test_the_search_leaves_numbers_out() -> None:
    assert "data-search-exclude" in table("c", ["x"], [["a"]])
    assert "data-search-exclude" not in table("c", ["x"], [["a"]], is_searched=True)


def test_an_empty_heading_heads_nothing() -> None:
    assert "<thead><tr><td></td>\n<th scope=" in table("c", ["", "n"], [["a", 1]])


def test_columns_of_text_and_of_numbers() -> None:
    seen = table("c", ["a", "b", "c"], [["1", "2", "3"]], text_columns=2)
    assert seen.count('class="number"') == 2
    assert '<td>2</td>\n<td class="number">3</td>' in seen


@pytest.mark.parametrize("row", [["a"], ["a", 1, 2], []])
def test_a_row_of_another_length(row: list[str]) -> None:
    with pytest.raises(ValueError, match=rf"^{len(row)} cells in a table of 2 columns"):
        table("c", ["x", "n"], [row])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "<code>short</code>"),
        ("a" * 60, f"<code>{'a' * 60}</code>"),
        ("a" * 40 + "b" * 21, f'<code title="{"a" * 40 + "b" * 21}">{"a" * 40}…{"b" * 19}</code>'),
        ("a<b", "<code>a&lt;b</code>"),
    ],
)
def test_names_are_shortened_in_the_middle(text: str, expected: str) -> None:
    assert code(text) == expected
    assert len(Markup(code(text)).text) <= 60


def test_shortening_never_cuts_an_escape() -> None:
    shown = code("&" * 100, 10)
    assert Markup(shown).text == "&" * 6 + "…" + "&" * 3
    assert Markup(shown).titles == ["&" * 100]


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_text(name: str) -> None:
    assert_only_text(table(name, [name, name], [[name, name]]), name)
    assert Markup(table(name, [name], [[name]])).text == name * 3
    assert_only_text(code(name), name)
    assert_only_text(code(name + "x" * 80), name + "x" * 80)
    assert_only_text(details(name, "content"), name)


def test_shortened() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdefghij", 6) == "abcd…j"


def test_what_is_held_back_holds_nothing_back_itself() -> None:
    inner = hold_back("<p>tables</p>")
    assert inner == "<noscript><p>tables</p></noscript>"
    assert hold_back(f"<b>x</b>{inner}") == "<noscript><b>x</b><p>tables</p></noscript>"


def test_a_table_that_scrolls_has_no_cards() -> None:
    seen = table("c", ["a", "b", "c"], [["x " * 40, "y " * 40, 1]], text_columns=2, scrolls=True)
    assert seen.startswith('<div class="lab-table wide" ')
    assert "data-head" not in seen
    assert "data-head" in table("c", ["a", "b", "c"], [["x " * 40, "y " * 40, 1]], text_columns=2)
