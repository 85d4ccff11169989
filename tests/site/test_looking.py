"""A page without fault, and pages with planted faults: the checks of pages find them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


class Desk:
    """Where pages are written and looked at, in a window of 360 px."""

    def __init__(self, folder: Path, tab: Tab) -> None:
        self.folder, self.tab = folder, tab

    def look(self, faults: str) -> list[str]:
        """What is wrong with a page that has these faults."""
        name = f"{len(list(self.folder.iterdir()))}.html"
        (self.folder / name).write_text(PAGE.replace("FAULTS", faults))
        self.tab.go(name)
        self.tab.inspect()
        self.tab.settle()
        return self.tab.inspected()


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "404.html").write_text(PAGE.replace("FAULTS", ""))
    with serving.served(folder) as site:
        context = browser.new_context(viewport={"width": 360, "height": 900})
        yield Desk(folder, Tab(context.new_page(), site.url))
        context.close()


def test_planted_faults_are_found(desk: Desk) -> None:
    site = desk.tab.site
    lines = "\n".join(desk.look("".join(fault for fault, _ in FAULTS))).replace(site, "SITE")
    lines = lines.replace(site.removesuffix(f"{serving.BELOW}/"), "HOST")
    assert [problem for _, problem in FAULTS if problem not in lines] == []


def test_a_page_without_fault(desk: Desk) -> None:
    assert desk.look("") == []


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


@pytest.mark.parametrize(
    ("fault", "problems"),
    [
        (frame(CELLS), ["cut: 22 33 44 55 66 77 88", "1 columns out of sight, and 0 told"]),
        (frame(CELLS, fade="43px", more=MORE), []),
        (frame(CELLS, fade="43px", more=MORE.replace("1 more", "2 more")), ["1 columns out of sight, and 2 told"]),
        (frame("<td>1</td><td>2</td>"), []),
        (CODE.format("", "x" * 10), []),
        (CODE.format("", "x" * 60), ["code cut: xxxx"]),
        (CODE.format(NAV.format(18), "x" * 10), []),
        (CODE.format(NAV.format(40), "x" * 10), ["a button over code: xxxx"]),
        (SVG.format(200, APART), []),
        (SVG.format(100, APART), ["less than 11 px: left"]),
        (SVG.format(200, APART.replace("100", "10")), ["left over right"]),
    ],
)
def test_what_an_edge_cuts_or_something_else_covers(desk: Desk, fault: str, problems: list[str]) -> None:
    found = [line for line in desk.look(fault) if line.startswith("at 360 px, ")]
    assert len(found) == len(problems), found
    assert all(problem in line for problem, line in zip(problems, found, strict=True)), found
