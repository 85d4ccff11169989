"""A page without fault, and pages with planted faults: the checks of pages find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.site import serving
from tests.site.looking import Tab

PAGE = """<!doctype html><html lang="en"><head><title>A page</title><link rel="icon" href="data:,"></head>
<body style="margin: 0"><main class="md-content"><h1>A page</h1><p>Nothing is wrong here.</p>
<div style="overflow-x: auto" tabindex="0" role="region" aria-label="wide"><p style="width: 2000px">framed</p></div>
<details><summary>More</summary><p>unfolded</p></details>FAULTS</main></body></html>"""
GRAY = '<p class="gray" style="color: #888">Hard to read.</p>'
FAULTS = (
    ("<script>console.error('oh')</script>", "error on the console: oh ("),
    ("<script>console.warn('well')</script>", "warning on the console: well ("),
    ("<script>throw new Error('lost')</script>", "an error that nothing caught: lost"),
    ("<script>Promise.reject(new Error('late'))</script>", "an error that nothing caught: late"),
    ('<img alt="" src="lost.png">', "status 404, not 200: SITElost.png"),
    ('<img alt="" src="/root.png">', "a request beyond the site: HOST/root.png"),
    ('<img alt="" src="https://example.org/x.png">', "a request beyond the site: https://example.org/x.png"),
    ("<script>setTimeout(() => fetch('late.json'), 50)</script>", "status 404, not 200: SITElate.json"),
    ('<div style="width: 400px">Wide.</div>', '400 px wide in a window of 360 px: <div style="width: 400px"></div>'),
    ('<details><summary>x</summary><p style="width: 500px">x</p></details>', "unfolded, 500 px wide in a window"),
    ('<img src="data:,">', "image-alt: Images must have alternative text. "),
    (f"<table>{f'<tr><td>{GRAY}</td></tr>' * 20}</table>", "color-contrast: "),
    (f"<details><summary>x</summary>{GRAY.replace('888', '999')}</details>", "foreground color: #999999"),
    ('<p style="color: #777">(</p>' + GRAY.replace("888", "777") + "<p>Fine.</p>", "foreground color: #777777"),
    ("<p>Fine.</p>" * 3 + '<p style="opacity: 0.4">Fine.</p>' + "<p>Fine.</p>" * 3, "foreground color: #999999"),
)


Look = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def look(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Look]:
    """What is wrong with a page that has these faults, in a window of 360 px."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "404.html").write_text(PAGE.replace("FAULTS", ""))
    with serving.served(folder) as site:
        tab = Tab(browser.new_page(viewport={"width": 360, "height": 900}), site.url)

        def look(faults: str) -> list[str]:
            name = f"{len(list(folder.iterdir()))}.html"
            (folder / name).write_text(PAGE.replace("FAULTS", faults))
            tab.go(name)
            tab.inspect()
            tab.settle()
            host = site.url.removesuffix(f"{serving.BELOW}/")
            return [line.replace(site.url, "SITE").replace(host, "HOST") for line in tab.problems()]

        yield look
        tab.page.close()


def test_planted_faults_are_found(look: Look) -> None:
    lines = "\n".join(look("".join(fault for fault, _ in FAULTS)))
    assert [problem for _, problem in FAULTS if problem not in lines] == []


def test_a_page_without_fault(look: Look) -> None:
    assert look("") == []


def frame(cells: str, fade: str = "0px", more: str = "") -> str:
    heads = "<th>head</th>" * cells.count("<td")
    style = f"overflow-x: auto; width: 200px; --fade: {fade}"
    inner = f"<table><thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody></table>"
    return f'{more}<div class="lab-table" tabindex="0" role="region" aria-label="t" style="{style}">{inner}</div>'


CELLS = '<td><p style="width: 150px">1</p></td><td><p style="width: 150px">22 33 44 55 66 77 88</p></td>'
MORE = '<button class="more-columns">1 more column →</button>'
CODE = (
    '<div class="highlight"><pre style="margin: 0; position: relative; width: 200px">{}'
    '<code style="display: block; overflow: auto; padding-right: 20px" tabindex="0">{}</code></pre></div>'
)
NAV = '<nav class="md-code__nav" style="position: absolute; right: 0; width: {}px">x</nav>'
SVG = '<figure class="chart"><svg role="img" aria-label="s" viewBox="0 0 200 50" width="{}">{}</svg></figure>'
APART = '<text x="0" y="20" font-size="14">left</text><text x="100" y="20" font-size="14">right</text>'


EDGES: tuple[tuple[str, ...], ...] = (
    (frame(CELLS), "cut: 22 33 44 55 66 77 88", "1 columns out of sight, and 0 told"),
    (frame(CELLS, fade="43px", more=MORE),),
    (frame(CELLS, fade="43px", more=MORE.replace("1 more", "2 more")), "1 columns out of sight, and 2 told"),
    (frame("<td>1</td><td>2</td>"),),
    (CODE.format("", "x" * 10),),
    (CODE.format("", "x" * 60), "code cut"),
    (CODE.format(NAV.format(18), "x" * 10),),
    (CODE.format(NAV.format(40), "x" * 10), "a button over code"),
    (SVG.format(200, APART),),
    (SVG.format(100, APART), "less than 11 px: left"),
    (SVG.format(200, APART.replace("100", "10")), "left over right"),
)
"""Markup, and what is said of it."""


def test_what_an_edge_cuts_or_something_else_covers(look: Look) -> None:
    found = look("".join(f'<div data-fence="{number}">{fault}</div>' for number, (fault, *_) in enumerate(EDGES)))
    expected = [f"at 360 px, {number}: {line}" for number, (_, *lines) in enumerate(EDGES) for line in lines]
    assert [line for line in found if line.startswith("at 360 px, ")] == expected
