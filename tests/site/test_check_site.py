"""The gate on the built site against planted faults: a gate that has never stopped anything is a hope."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from snippets.lab.tools import check_site
from snippets.lab.tools.policy import hash_source
from snippets.lab.tools.set_aside import FILE
from tests.lab.tools.test_page_rules import FENCE

SCRIPT = "document.title += 1"
RULES = f"default-src 'none'; script-src 'self' {hash_source(SCRIPT)}"
POLICY = f'<meta http-equiv="Content-Security-Policy" content="{RULES}">'
GOOD_PAGE = f"""<!doctype html><html><head>{POLICY}<link rel="stylesheet" href="../assets/book.css">
<script>{SCRIPT}</script><script type="application/json">{{"a": "<b>"}}</script>
<link rel="canonical" href="https://example.org/mlp/"></head><body>
<h1 id="mlp">MLP<a href="#mlp">#</a></h1><img src="../assets/a.svg" alt="">
<a href="..">home</a> <a href="https://example.org">out</a> <a href="../#top-of-home">up</a>
<div class="lab" data-fence="mlp-kernels"><noscript><p title="x">held <b>back</b></p></noscript></div>
<pre><code>```python exec="on" id="x"</code></pre> <code>exec="on"</code>
</body></html>"""


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Path]:
    """A site of two pages and its sources, without fault."""
    site, docs = tmp_path / "site", tmp_path / "docs"
    for folder in (site / "mlp", site / "assets", docs):
        folder.mkdir(parents=True)
    (site / "index.html").write_text(f'{POLICY}<h1 id="top-of-home">Home</h1><a href="mlp/">MLP</a>')
    (site / "mlp/index.html").write_text(GOOD_PAGE)
    (site / "assets/book.css").write_text(
        'a { background: url("a.svg") } b { background: url(data:image/png;base64,xx) }'
    )
    (site / "assets/a.svg").write_text("<svg/>")
    (docs / "index.md").write_text("# Home\n")
    (docs / "mlp.md").write_text(FENCE)
    return site, docs


def problems(site: Path, docs: Path) -> list[str]:
    """All problems of a site, read in this process."""
    pages = {path.relative_to(site).as_posix(): check_site.read_page(site, path) for path in site.rglob("*.html")}
    return check_site.problems(site, docs, pages)


def test_a_good_site_passes(built: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    site, docs = built
    assert check_site.check_site(site, docs) == []
    assert capsys.readouterr().out == "check_site: 2 pages, 1 executed fences, 6 links: sound\n"


TEXTS = [
    ("<pre>Traceback (most recent call last):</pre>", "a traceback"),
    ('<p><code>python exec="on" id="x"</code></p>', "a fence that was not executed"),
    ("<p><code>python exec=on</code></p>", "a fence that was not executed"),
    ("<p>#!fig mlp.eager.us</p>", "not computed: #!fig mlp.eager.us"),
    ("<pre>/home/someone/book/x.py</pre>", "path of a machine: /home/someone"),
    ("<p>see /tmp/trace.json</p>", "path of a machine: /tmp/trace.json"),
    ('<p title="/home/x"></p>', "path of a machine in title=: /home/x"),
]
"""Text that no page of ours may have, and what the gate says of it."""
FAULTS = [
    ('<a href="../lost/">x</a>', "dead: ../lost/"),
    ('<a href="deep/page.md">x</a>', "dead: deep/page.md"),
    ('<a href="../../out/">x</a>', "dead: ../../out/"),
    ('<a href="#lost">x</a>', "no such anchor: #lost"),
    ('<a href="../#lost">x</a>', "no such anchor: ../#lost"),
    ('<a href="/mlp/">x</a>', "absolute, breaks where the site is not at the root: /mlp/"),
    ('<a href="ftp://example.org/">x</a>', "neither a web nor a mail address"),
    ('<img src="lost.png">', "dead: lost.png"),
    ('<img srcset="../assets/a.svg 1x, lost.png 2x">', "dead: lost.png"),
    ('<p id="a"></p><p id="a"></p>', "id 'a' stands 2 times"),
    ('<svg aria-labelledby="lost"></svg>', "refers to id 'lost', which is not on the page"),
    ('<svg><path fill="url(#lost)"/></svg>', "refers to id 'lost', which is not on the page"),
    ('<script src="https://example.org/x.js"></script>', "loads from another host: https://example.org/x.js"),
    ('<script src="//example.org/x.js"></script>', "loads from another host: //example.org/x.js"),
    ('<link rel="stylesheet" href="https://example.org/x.css">', "loads from another host"),
    ('<link rel="preconnect" href="https://example.org">', "loads from another host"),
    ('<img src="https://example.org/x.png">', "loads from another host"),
    ('<p style="background: url(https://example.org/x.png)"></p>', "loads from another host"),
    ("<style>@import 'https://example.org/x.css';</style>", "loads from another host"),
    ('<div data-fence="mlp-kernels"></div>', "fence 'mlp-kernels' ran but is not in mlp.md"),
    ("<script>alert(1)</script>", "does not name the inline script 'sha256-"),
    ('<script type="module">alert(1)</script>', "does not name the inline script 'sha256-"),
    ("<p>x", "</body> ends <p>"),
    ("x</p>", "</p> ends <body>"),
    ('<p class="lab-sample">Sample</p>', "a sample's numbers, which nobody measured"),
    ('<div data-fence="other"></div>', "fence 'other' ran but is not in mlp.md"),
]
"""Markup, and what the gate says of it."""


@pytest.mark.parametrize(("planted", "problem"), [*FAULTS, *TEXTS])
def test_a_fault_in_a_built_page(built: tuple[Path, Path], planted: str, problem: str) -> None:
    site, docs = built
    page = site / "mlp/index.html"
    page.write_text(GOOD_PAGE.replace("</body>", f"{planted}</body>"))
    found = problems(site, docs)
    assert len(found) == 1, found
    assert problem in found[0]


@pytest.mark.parametrize("planted", [planted for planted, _ in FAULTS])
def test_a_fault_in_what_a_page_holds_back(built: tuple[Path, Path], planted: str) -> None:
    site, docs = built
    page = site / "mlp/index.html"
    page.write_text(GOOD_PAGE.replace("held <b>back</b></p>", f"held <b>back</b></p><div>{planted}</div>"))
    assert problems(site, docs)


@pytest.mark.parametrize(
    "around",
    [
        '<div class="lab" data-fence="mlp-kernels"><div><b>x</b>{}</div></div>',
        '<p><data class="fig" value="1" data-figure="mlp.us" title="/home/x">{}</data></p>',
        '<div class="jp-OutputArea-output" tabindex="0"><br>{}</div>',
    ],
)
def test_text_of_recordings_and_labs_is_text(built: tuple[Path, Path], around: str) -> None:
    """Whatever it says; markup in it, and text behind it, is judged as ever."""
    site, docs = built
    page, old = site / "mlp/index.html", '<div class="lab" data-fence="mlp-kernels">'
    start = GOOD_PAGE.replace(old, old.replace("data-fence", "data-other")) if "data-fence" in around else GOOD_PAGE
    harmless = ['<p title="url(#lost)" data-said="javascript:x">url(#lost) data:text/html,x javascript:x</p>']
    texts = [planted for planted, _ in TEXTS] + harmless
    page.write_text(start.replace("</body>", f"{around.format(''.join(texts))}</body>"))
    assert problems(site, docs) == []
    for path in (page.with_name(FILE), site / "reports/nvidia-t100/mlp.html"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{POLICY}<section><h2>/opt/x</h2>{''.join(texts)}</section>")
    assert problems(site, docs) == []
    for inside, behind, problem in [*((each, "", said) for each, said in FAULTS[:2]), *(("", *each) for each in TEXTS)]:
        page.write_text(start.replace("</body>", f"{around.format(inside)}{behind}</body>"))
        found = problems(site, docs)
        assert len(found) == 1, found
        assert problem in found[0]


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("", "0 times a Content-Security-Policy"),
        (POLICY * 2, "2 times a Content-Security-Policy"),
        (f"<script>{SCRIPT}</script>{POLICY}", "0 times a Content-Security-Policy"),
        (POLICY.replace("'self'", "'unsafe-inline'"), "lets 'unsafe-inline' run"),
        (POLICY.replace("'self'", "data:"), "lets data: run"),
        (POLICY.replace("'self'", "*"), "lets * run"),
        (POLICY.replace("script-src", "img-src"), "does not name the inline script"),
        (POLICY.replace("default-src 'none'", "default-src 'self'"), "lacks default-src 'none'"),
        (POLICY.replace("default-src 'none'; ", ""), "lacks default-src 'none'"),
        (POLICY.replace("script-src 'self'", "script-src"), None),
    ],
)
def test_a_page_has_one_policy_that_trusts_no_other_site(
    built: tuple[Path, Path], policy: str, problem: str | None
) -> None:
    site, docs = built
    (site / "mlp/index.html").write_text(GOOD_PAGE.replace(POLICY, policy))
    assert problem in problems(site, docs)[0] if problem else problems(site, docs) == []


def test_a_fence_that_did_not_run(built: tuple[Path, Path]) -> None:
    site, docs = built
    (site / "mlp/index.html").write_text(GOOD_PAGE.replace("data-fence", "data-other"))
    assert problems(site, docs) == ["mlp.md: fence 'mlp-kernels' did not run (nothing on mlp/index.html)"]


def test_a_page_that_was_not_built(built: tuple[Path, Path]) -> None:
    site, docs = built
    (docs / "lost.md").write_text("# Lost\n")
    assert problems(site, docs) == ["lost.md: not in the site"]


def test_a_style_sheet_that_loads_from_elsewhere(built: tuple[Path, Path]) -> None:
    site, docs = built
    (site / "assets/book.css").write_text("@import url(https://example.org/x.css);")
    assert problems(site, docs) == ["assets/book.css: loads from another host: https://example.org/x.css"]


def test_an_empty_site_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    assert check_site.check_site(tmp_path / "site", tmp_path / "docs")
    assert "no page" in capsys.readouterr().err


def test_a_compressed_trace_is_a_link_target_like_any_other(built: tuple[Path, Path]) -> None:
    site, docs = built
    (site / "eager.trace.json.gz").write_bytes(gzip.compress(b"{}", mtime=0))
    (site / "mlp/index.html").write_text(
        GOOD_PAGE.replace("</body>", '<a href="../eager.trace.json.gz" download>x</a></body>')
    )
    assert problems(site, docs) == []
