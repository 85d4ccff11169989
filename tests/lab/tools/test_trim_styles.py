"""The style of a notebook's page, without what styles nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.tools.trim_styles import LEAST_LETTERS, trim_css, trim_styles


@pytest.mark.parametrize(
    ("css", "trimmed"),
    [
        (".jp-Cell{a:b}.jp-Other{a:b}", ".jp-Cell{a:b}"),
        (".jp-Cell .jp-Other,.jp-Cell p{a:b}", ".jp-Cell p{a:b}"),
        (".jp-Cell:not(.jp-Other){a:b}", ".jp-Cell:not(.jp-Other){a:b}"),
        (":is(.jp-Cell, p){a:b}", ":is(.jp-Cell, p){a:b}"),
        (".set-by-a-script{a:b}", ".set-by-a-script{a:b}"),
        ("@media print{.jp-Other{a:b}p{a:b}}", "@media print{p{a:b}}"),
        (
            "@keyframes x{from{a:b}to{a:c}}@font-face{src:url(x)}",
            "@keyframes x{from{a:b}to{a:c}}@font-face{src:url(x)}",
        ),
        (":root{--a:1;--b:2}p{c:var(--b)}/* .jp-Cell{} */", ":root{--b:2}p{c:var(--b)}"),
        (':root{--a:url("x;y");--c:var(--a);--e:url(data:x;y);d:e;--outside:1}', ":root{d:e;--outside:1}"),
        ("""a::after { content: "/* \\" */"; b: '/* */' }""", """a::after { content: "/* \\" */"; b: '/* */' }"""),
    ],
)
def test_what_stays(css: str, trimmed: str) -> None:
    assert trim_css(css, {"jp-Cell", "md-grid"}, {"--outside"}) == trimmed


def test_a_site(tmp_path: Path) -> None:
    """Short sheets of a page and those of the theme stay; our own lose their comments."""
    unused = ".jp-Other{a:b}" * (LEAST_LETTERS // 14 + 1)
    page, own, theme = tmp_path / "page.html", tmp_path / "assets/css/book.css", tmp_path / "assets/theme/main.css"
    page.write_text(f'<style>.jp-Other{{a:b}}</style><style>{unused}.jp-Cell{{c:d}}</style><p class="jp-Cell">x</p>')
    for path in (own, theme):
        path.parent.mkdir(parents=True)
        path.write_text("a{b:c}/* why\nso */")
    assert trim_styles(tmp_path) == (len(unused), 1)
    assert page.read_text() == '<style>.jp-Other{a:b}</style><style>.jp-Cell{c:d}</style><p class="jp-Cell">x</p>'
    assert (own.read_text(), theme.read_text()) == ("a{b:c}", "a{b:c}/* why\nso */")
