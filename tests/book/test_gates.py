"""Each gate against a planted fault: a gate that has never stopped anything is a hope."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import environment
from tests.book import page_sources
from tests.site import check_site

FENCE = """\
```python exec="on" html="on" id="mlp-kernels"
from snippets.lab.fence import show
from snippets.mlp import findings
print(show("mlp-kernels", findings.kernels()))
```
"""


def lint(text: str) -> list[str]:
    return page_sources.fence_problems(page_sources.fences("mlp.md", text))


def test_a_good_fence_passes() -> None:
    assert lint(FENCE) == []


def test_a_good_fence_passes_inside_an_admonition() -> None:
    indented = "".join(f"    {line}\n" for line in FENCE.splitlines())
    assert lint(f"!!! note\n\n{indented}") == []


def test_a_fence_shown_inside_a_longer_one_is_text() -> None:
    bad = FENCE.replace(' id="mlp-kernels"', "")
    assert lint(f"````markdown\n{bad}````\n") == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('exec="on"', "exec=on", "every value in double quotes"),
        ("python exec", '{.python exec="on"} exec', "every value in double quotes"),
        ("python exec", "bash exec", "every value in double quotes"),
        (' id="mlp-kernels"', "", "option id is missing"),
        ('html="on"', 'html="on" html="on"', "an option is given twice"),
        (' html="on"', "", "option html is missing"),
        ('html="on"', 'html="on" width="wide"', "option width is not one of"),
        ('html="on"', 'html="on" session="s"', "option session is not one of"),
        ('html="on"', 'html="on" source="sideways"', 'source="sideways" is not one of'),
        ('exec="on"', 'exec="yes"', 'exec="yes" is not one of'),
        ('show("mlp-kernels"', 'show("other"', 'has to print(show("mlp-kernels", ...)) once'),
        ("print(show", "print(str", 'has to print(show("mlp-kernels", ...)) once'),
        ("from snippets.mlp import", "from torch import", "imports torch; only snippets"),
        ("import findings\n", "import findings\nx = 1\n", "4 lines; at most 3"),
        ("print(", "print((", "not Python"),
        ("())))\n```\n", "())))\n", "never closed"),
    ],
)
def test_a_fence_that_could_fail_without_a_word(old: str, new: str, problem: str) -> None:
    text = FENCE.replace("kernels()))", "kernels())))") if old.startswith("()))") else FENCE
    assert old in text
    found = lint(text.replace(old, new))
    assert any(problem in line for line in found), found
    assert all(line.startswith("mlp.md:1: ") for line in found)


def test_an_id_taken_on_another_page() -> None:
    fences = page_sources.fences("a.md", FENCE) + page_sources.fences("b.md", FENCE)
    assert page_sources.fence_problems(fences) == ['b.md:1: id="mlp-kernels" is taken by a.md:1']


MARKED = "# --8<-- [start:geglu]\nx = 1\n# --8<-- [end:geglu]\n"


@pytest.mark.parametrize(
    ("page", "source", "problem"),
    [
        ('--8<-- "m.py:geglu"', MARKED, None),
        ('--8<-- "m.py:geglu"\n--8<-- "m.py"', MARKED, None),
        (';--8<-- "m.py:other"\n--8<-- "m.py:geglu"', MARKED, None),
        ("no section", MARKED, "section geglu is marked but no page shows it"),
        ('--8<-- "m.py:other"\n--8<-- "m.py:geglu"', MARKED, "p.md:1: shows m.py:other, which is not marked there"),
        ('--8<-- "m.py:1:2"\n--8<-- "m.py:geglu"', MARKED, "shows m.py:1:2, which is not marked there"),
        ('--8<-- "n.py:geglu"\n--8<-- "m.py:geglu"', MARKED, "shows n.py, which does not exist"),
        ('--8<-- "m.py:geglu"', MARKED + MARKED, "section geglu starts twice"),
        ('--8<-- "m.py:geglu"', MARKED.replace("# --8<-- [end:geglu]", ""), "section geglu never ends"),
        ('--8<-- "m.py:geglu"', MARKED + "# --8<-- [end:b]", "section b ends without a start"),
    ],
)
def test_sections(page: str, source: str, problem: str | None) -> None:
    found = page_sources.section_problems({"p.md": page}, {"m.py": source})
    assert (found == []) if problem is None else any(problem in line for line in found), found


@pytest.mark.parametrize(
    "prose",
    [
        "It takes 12.5 us.",
        "It takes 12.5 µs on average.",
        "About 3 ms, or 0.4 s.",
        "a 40-microsecond gap",
        "It reaches 617 TFLOP/s.",
        "4.8 TB/s and 80 GB of it",
        "It is 35 % faster.",
        "That is 2.5x faster.",
        "That is 3× as much.",
        "10 times slower",
        "| eager | 5 kernels |",
        "**12&nbsp;MiB**",
        "## The 50 MB question",
    ],
)
def test_a_number_with_a_unit_is_a_stray(prose: str) -> None:
    assert len(page_sources.stray_problems("p.md", f"# A page\n\n{prose}\n")) >= 1
    assert page_sources.stray_problems("p.md", f"# A page\n\n{prose}\n", allowed=[prose]) == []


@pytest.mark.parametrize(
    "prose",
    [
        "It takes `#!fig mlp.eager.gpu_us` of `#!src M3`.",
        "A 64x128x768 input on an H200 in bf16, torch 2.11.0+cu130, Python 3.11.",
        "Five kernels, twice, per step 2.",
        "Run `make docs # 3 s`, or\n\n```\nsleep 3 s\n```\n",
        "See [the post](https://example.org/10x-faster) and <img width='50%' src='a.svg'>.",
        "![x](a.svg){ width=50% }",
        "<!-- 12 us -->",
        "Steps 2, 3 and 4 agree; item 3 stands.",
    ],
)
def test_what_is_no_stray(prose: str) -> None:
    assert page_sources.stray_problems("p.md", prose) == []


GOOD_PAGE = """<!doctype html><html><head><link rel="stylesheet" href="../assets/book.css">
<link rel="canonical" href="https://example.org/mlp/"></head><body>
<h1 id="mlp">MLP<a href="#mlp">#</a></h1><img src="../assets/a.svg" alt="">
<a href="..">home</a> <a href="https://example.org">out</a> <a href="../#top-of-home">up</a>
<div class="lab" data-fence="mlp-kernels"></div>
<pre><code>```python exec="on" id="x"</code></pre> <code>exec="on"</code>
</body></html>"""
CLAIM = {key: "x" for key in check_site.CLAIM_KEYS}


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Path]:
    """A site of two pages and its sources, without fault."""
    site, docs = tmp_path / "site", tmp_path / "docs"
    for folder in (site / "mlp", site / "assets", docs):
        folder.mkdir(parents=True)
    (site / "index.html").write_text('<h1 id="top-of-home">Home</h1><a href="mlp/">MLP</a>')
    (site / "mlp/index.html").write_text(GOOD_PAGE)
    (site / "assets/book.css").write_text(
        'a { background: url("a.svg") } b { background: url(data:image/png;base64,xx) }'
    )
    (site / "assets/a.svg").write_text("<svg/>")
    (site / "claims.json").write_text(json.dumps([CLAIM]))
    (docs / "index.md").write_text("# Home\n")
    (docs / "mlp.md").write_text(FENCE)
    return site, docs


def test_a_good_site_passes(built: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    site, docs = built
    assert check_site.main([str(site), "--docs", str(docs)]) == 0
    assert capsys.readouterr().out == "check_site: 2 pages, 1 executed fences, 6 links: sound\n"


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        ('<a href="../lost/">x</a>', "dead: ../lost/"),
        ('<a href="deep/page.md">x</a>', "dead: deep/page.md"),
        ('<a href="../../out/">x</a>', "dead: ../../out/"),
        ('<a href="#lost">x</a>', "no such anchor: #lost"),
        ('<a href="../#lost">x</a>', "no such anchor: ../#lost"),
        ('<a href="/mlp/">x</a>', "absolute, breaks where the site is not at the root: /mlp/"),
        ('<a href="javascript:alert(1)">x</a>', "neither a web nor a mail address"),
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
        ('<p style="background: url(https://example.org/x.png)">', "loads from another host"),
        ("<style>@import 'https://example.org/x.css';</style>", "loads from another host"),
        ("<pre>Traceback (most recent call last):</pre>", "a traceback"),
        ('<p><code>python exec="on" id="x"</code></p>', "a fence that was not executed"),
        ("<p><code>python exec=on</code></p>", "a fence that was not executed"),
        ("<p>#!fig mlp.eager.us</p>", "not computed: #!fig mlp.eager.us"),
        ("<pre>/home/someone/book/x.py</pre>", "path of a machine: /home/someone"),
        ("<p>see /tmp/trace.json</p>", "path of a machine: /tmp/trace.json"),
        ('<p title="/home/x"></p>', "path of a machine in title=: /home/x"),
        ('<div data-fence="mlp-kernels"></div>', "fence 'mlp-kernels' ran but is not in mlp.md"),
        ('<div data-fence="other"></div>', "fence 'other' ran but is not in mlp.md"),
    ],
)
def test_a_fault_in_a_built_page(built: tuple[Path, Path], planted: str, problem: str) -> None:
    site, docs = built
    page = site / "mlp/index.html"
    page.write_text(GOOD_PAGE.replace("</body>", f"{planted}</body>"))
    found = check_site.problems(site, docs)
    assert len(found) == 1, found
    assert problem in found[0]


def test_a_fence_that_did_not_run(built: tuple[Path, Path]) -> None:
    site, docs = built
    (site / "mlp/index.html").write_text(GOOD_PAGE.replace("data-fence", "data-other"))
    assert check_site.problems(site, docs) == ["mlp.md: fence 'mlp-kernels' did not run (nothing on mlp/index.html)"]


def test_a_page_that_was_not_built(built: tuple[Path, Path]) -> None:
    site, docs = built
    (docs / "lost.md").write_text("# Lost\n")
    assert check_site.problems(site, docs) == ["lost.md: not in the site"]


def test_a_style_sheet_that_loads_from_elsewhere(built: tuple[Path, Path]) -> None:
    site, docs = built
    (site / "assets/book.css").write_text("@import url(https://example.org/x.css);")
    assert check_site.problems(site, docs) == ["assets/book.css: loads from another host: https://example.org/x.css"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "claims.json: Expecting value"),
        ("{}", "claims.json: not a list of claims"),
        ("[1]", "claims.json: not a list of claims"),
        (json.dumps([{**CLAIM, "id": "M3"} | {"extra": 1}]), None),
        (json.dumps([{"id": "M3"}]), "claims.json: claim 'M3' lacks chapter, device, "),
    ],
)
def test_claims_for_machines(built: tuple[Path, Path], text: str, problem: str | None) -> None:
    site, docs = built
    (site / "claims.json").write_text(text)
    found = check_site.problems(site, docs)
    assert [line[: len(problem)] for line in found] == [problem] if problem else found == []


def test_an_empty_site_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    assert check_site.main([str(tmp_path / "site"), "--docs", str(tmp_path / "docs")]) == 1
    assert "no page" in capsys.readouterr().err


def test_a_compressed_trace_is_a_link_target_like_any_other(built: tuple[Path, Path]) -> None:
    site, docs = built
    (site / "eager.trace.json.gz").write_bytes(gzip.compress(b"{}", mtime=0))
    (site / "mlp/index.html").write_text(
        GOOD_PAGE.replace("</body>", '<a href="../eager.trace.json.gz" download>x</a></body>')
    )
    assert check_site.problems(site, docs) == []


@pytest.mark.parametrize(
    ("requirement", "version", "met"),
    [
        ("torch>=2.11", "2.11.0+cu130", True),
        ("torch>=2.11", "2.9.1", False),
        ("torch>=2.11", "2.11.0a0+git", True),
        ("mkdocs>=1.6.1,<2", "1.6.1", True),
        ("mkdocs>=1.6.1,<2", "2.0", False),
        ("mkdocs>=1.6.1,<2", "1.6", False),
        ("x", "0", True),
        ("x==1.2", "1.2.0", True),
    ],
)
def test_ranges(requirement: str, version: str, met: bool) -> None:
    assert environment.within(version, environment.split(requirement)[1]) is met


def test_what_is_missing_is_named() -> None:
    lines = environment.problems(["no-such-distribution>=3", "pytest>=999", "pytest>=1"])
    assert lines[0] == "no-such-distribution>=3: not installed"
    assert lines[1].startswith("pytest>=999: ")
    assert len(lines) == 2


def test_the_environment_of_these_tests_is_complete() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.environment", "test"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lock_holds_nothing_of_one_machine() -> None:
    names = {
        "torch": "2.13.0+cpu",
        "PyYAML": "6.0.3",
        "markdown_exec": "1.12.6",
        "nvidia-cublas": "13.4",
        "triton": "3.9.0",
    }
    report = {"install": [{"metadata": {"name": name, "version": version}} for name, version in names.items()]}
    pins = [line for line in environment.lock(json.dumps(report)).splitlines() if not line.startswith("#")]
    assert pins == ["markdown-exec==1.12.6", "pyyaml==6.0.3", "torch==2.13.0"]
