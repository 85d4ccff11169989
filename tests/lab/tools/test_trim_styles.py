"""The style of a notebook's page, without what styles nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.tools.trim_styles import LEAST_LETTERS, Rule, main, rules_of, trim_css, trim_page, without_comments

NAMES = {"jp-Cell", "md-grid", "wide"}


def test_the_rules_of_a_style_sheet() -> None:
    css = """@charset "a;b{"; a, b { color: red } @media (x) { c { d: e } f{} } g::after { content: "}\\"{" }
    h { background: url(data:image/svg+xml;utf8,{;}) }"""
    assert [*rules_of(css)] == [
        Rule('@charset "a;b{";', None),
        Rule("a, b", " color: red "),
        Rule("@media (x)", " c { d: e } f{} "),
        Rule("g::after", ' content: "}\\"{" '),
        Rule("h", " background: url(data:image/svg+xml;utf8,{;}) "),
    ]


@pytest.mark.parametrize(
    ("css", "trimmed"),
    [
        (".jp-Cell{a:b}", ".jp-Cell{a:b}"),
        (".jp-Other{a:b}", ""),
        (".jp-Cell .jp-Other,.jp-Cell p{a:b}", ".jp-Cell p{a:b}"),
        (".jp-Cell:not(.jp-Other){a:b}", ".jp-Cell:not(.jp-Other){a:b}"),
        (":is(.jp-Cell, p){a:b}", ":is(.jp-Cell, p){a:b}"),
        (".set-by-a-script{a:b}", ".set-by-a-script{a:b}"),
        ("@media print{.jp-Other{a:b}}@media print{p{a:b}}", "@media print{p{a:b}}"),
        ("@font-face{src:url(x)}/* .jp-Cell{} */", "@font-face{src:url(x)}"),
        (":root{--a:1;--b:2}p{c:var(--b)}", ":root{--b:2}p{c:var(--b)}"),
        (':root{--a:url("x;y");--c:var(--a);d:e}', ":root{d:e}"),
        (":root{--outside:1}", ":root{--outside:1}"),
    ],
)
def test_what_stays(css: str, trimmed: str) -> None:
    assert trim_css(css, NAMES, {"--outside"}) == trimmed


def test_a_page(tmp_path: Path) -> None:
    unused = ".jp-Other{a:b}" * (LEAST_LETTERS // 14 + 1)
    path = tmp_path / "page.html"
    path.write_text(f'<style>.jp-Other{{a:b}}</style><style>{unused}.jp-Cell{{c:d}}</style><p class="jp-Cell">x</p>')
    assert main([str(tmp_path)]) == 0
    rest = '<style>.jp-Other{a:b}</style><style>.jp-Cell{c:d}</style><p class="jp-Cell">x</p>'
    assert path.read_text() == rest, "a short style sheet is a page's own"
    assert trim_page(path) == 0


@pytest.mark.parametrize(
    ("css", "trimmed"),
    [
        ('/* why\nso */ a { b: c } /* "d */e{}', " a { b: c } e{}"),
        ("""a::after { content: "/* \\" */"; b: '/* */' }""", """a::after { content: "/* \\" */"; b: '/* */' }"""),
    ],
)
def test_comments(css: str, trimmed: str) -> None:
    assert without_comments(css) == trimmed


def test_our_own_style_sheets_lose_their_comments(tmp_path: Path) -> None:
    own, theme = tmp_path / "assets" / "css" / "book.css", tmp_path / "assets" / "stylesheets" / "main.css"
    for path in (own, theme):
        path.parent.mkdir(parents=True)
        path.write_text("a{b:c}/* why */")
    assert main([str(tmp_path)]) == 0
    assert (own.read_text(), theme.read_text()) == ("a{b:c}", "a{b:c}/* why */")
