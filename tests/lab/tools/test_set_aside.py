"""Later content of pages moves into a file next to them, with a link, a heading, the page's style and its policy."""

from __future__ import annotations

import re
from pathlib import Path

from kinetoscope.html import hold_back
from snippets.lab.tools.set_aside import FILE, LEAST_LETTERS, set_aside, set_aside_all

POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'">"""
STYLE = '<link rel="stylesheet" href="../assets/css/book.css">'
FILLING = "<i>x</i>" * (LEAST_LETTERS // 8)
PANEL = f'<figure><figcaption>One <b>forward</b></figcaption><p id="own">{FILLING}</p></figure>'
LINKS = '<a href="#own">a</a><a class="b" href="#elsewhere">b</a>'


def page(folder: Path, *held: str) -> Path:
    """A built page that holds these back."""
    path = folder / "index.html"
    blocks = "".join(f"<div>{each}</div>" for each in held)
    path.write_text(
        f"<!doctype html><html><head><title>MLP</title>{POLICY}{STYLE}</head><body dir='ltr'>{blocks}</body></html>"
    )
    return path


def test_a_panel_and_tables(tmp_path: Path) -> None:
    path = page(tmp_path, hold_back(PANEL + LINKS, "H100"), hold_back(f"<table><caption>T</caption>{FILLING}</table>"))
    assert set_aside(path) == 2
    rest, aside = path.read_text(), (tmp_path / FILE).read_text()
    assert f'<div><noscript><p><a href="{FILE}#part-1">H100: One forward</a></p></noscript></div>' in rest
    assert f'<div><noscript><p><a href="{FILE}#part-2">T</a></p></noscript></div>' in rest
    assert FILLING not in rest
    assert f'<section id="part-1"><h2>H100: One forward</h2><div><!-- H100 -->{PANEL}' in aside
    assert re.findall(r'href="([^"]*#[^"]*)"', aside) == ["#own", "./#elsewhere"], "links into the page lead back to it"
    assert aside.count(POLICY) == aside.count(STYLE) == aside.count("<body dir='ltr'>") == 1
    assert "<noscript" not in aside
    assert "<title>MLP: other devices and tables</title>" in aside


def test_what_is_short_stays(tmp_path: Path) -> None:
    path = page(tmp_path, hold_back("<p>Not recorded.</p>", "H100"))
    before = path.read_text()
    assert set_aside(path) == 0
    assert path.read_text() == before
    assert not (tmp_path / FILE).exists()


def test_every_page_of_a_site_once(tmp_path: Path) -> None:
    for name in ("mlp", "linear"):
        (tmp_path / name).mkdir()
        page(tmp_path / name, hold_back(PANEL))
    assert set_aside_all(tmp_path) == (2, 2)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(FILE)) == [
        f"linear/{FILE}",
        f"mlp/{FILE}",
    ]
    assert set_aside(tmp_path / "mlp/index.html") == 0, "a second run finds links only"


def test_a_heading_is_no_markup(tmp_path: Path) -> None:
    held = hold_back(f"{FILLING}", "T<100> -->--x")
    assert held.startswith("<noscript><!-- T&lt;100&gt; -&gt;-x -->")
    set_aside(page(tmp_path, held))
    assert "<h2>T&lt;100&gt; -&gt;-x</h2>" in (tmp_path / FILE).read_text()
