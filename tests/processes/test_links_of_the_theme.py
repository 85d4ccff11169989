"""The card of a shared link and the ways out of a page, with and without addresses of the site and the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.serving import ROOT

CARD = "https://example.org/book/assets/card.png"
REPOSITORY = "https://example.com/owner/name"


def build(folder: Path, **variables: str) -> dict[str, str]:
    """Three pages built with the theme: path -> HTML."""
    docs = folder / "docs"
    docs.mkdir(parents=True)
    (docs / "assets").symlink_to(ROOT / "docs" / "assets")
    (docs / "index.md").write_text('---\ndescription: What "it" is.\n---\n\n# Read & know\n', encoding="utf-8")
    (docs / "mlp.md").write_text(
        "# MLP: `three` Linears\n\n<p>get <span data-site></span>x.whl</p>\n", encoding="utf-8"
    )
    (docs / "more.md").write_text("---\nchapter: own\n---\n\n# More\n", encoding="utf-8")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = "nav:\n  - Home: index.md\n  - Chapters:\n      - MLP: mlp.md\n      - More: more.md\n"
    config = re.sub(r"^nav:\n(?:[ -].*\n)+", nav, config, flags=re.MULTILINE)
    config = re.sub(r"^watch: .*$", "watch: []", config, flags=re.MULTILINE)
    config = config.replace("base_path: [.]", f"base_path: [{ROOT}]")
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    given = {"SITE_URL": "", "REPO_URL": "", "NO_MKDOCS_2_WARNING": "1", **variables}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = folder / "site"
    return {path.relative_to(site).as_posix(): path.read_text("utf-8") for path in site.rglob("*.html")}


def meta(html: str) -> dict[str, str]:
    return dict(re.findall(r'<meta (?:name|property)="((?:og|twitter):[\w:]+)" content="(.*?)">', html))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    address = {"SITE_URL": "https://example.org/book/", "REPO_URL": REPOSITORY}
    return build(tmp_path_factory.mktemp("published"), **address)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return build(tmp_path_factory.mktemp("local"))


def test_titles_are_headings_with_the_name_of_the_book(published: dict[str, str]) -> None:
    titles = {path: re.findall(r"<title>(.*?)</title>", html) for path, html in published.items()}
    assert titles == {
        "index.html": ["Profiling PyTorch: Read &amp; know"],
        "mlp/index.html": ["MLP: three Linears - Profiling PyTorch"],
        "more/index.html": ["More - Profiling PyTorch"],
        "404.html": ["Not found - Profiling PyTorch"],
    }


def test_a_shared_link_has_a_card(published: dict[str, str]) -> None:
    home = meta(published["index.html"])
    assert home["og:title"] == "Profiling PyTorch: Read &amp; know"
    assert home["og:description"] == "What &#34;it&#34; is."
    assert (home["og:url"], home["og:image"]) == ("https://example.org/book/", CARD)
    assert home["twitter:card"] == "summary_large_image"
    chapter = meta(published["mlp/index.html"])
    assert (chapter["og:url"], chapter["og:image"]) == ("https://example.org/book/mlp/", CARD)
    assert chapter["og:description"].startswith("An executed book on profiling PyTorch.")
    assert '<link rel="canonical" href="https://example.org/book/mlp/">' in published["mlp/index.html"]


def test_without_an_address_there_is_no_picture(local: dict[str, str]) -> None:
    for html in local.values():
        assert not meta(html).keys() & {"og:image", "og:url"}
        assert meta(html)["twitter:card"] == "summary"
        assert 'rel="canonical"' not in html


def test_the_repository_is_linked_where_it_is_known(published: dict[str, str], local: dict[str, str]) -> None:
    for html in published.values():
        assert html.count(f'href="{REPOSITORY}"') == 2, "header and footer"
    assert f'href="{REPOSITORY}/tree/main/snippets/mlp"' in published["mlp/index.html"]
    assert f'href="{REPOSITORY}/tree/main/snippets/own"' in published["more/index.html"]
    assert not re.search(r"Repository|Its code", "".join(local.values()))


def test_what_is_installed_from_the_site_has_its_address(published: dict[str, str], local: dict[str, str]) -> None:
    assert "<p>get <span data-site>https://example.org/book/</span>x.whl</p>" in published["mlp/index.html"]
    assert "<p>get <span data-site></span>x.whl</p>" in local["mlp/index.html"]


def test_a_chapter_names_its_post_or_all_of_them(local: dict[str, str]) -> None:
    lines = {path: re.findall(r'class="chapter-links".*?</p>', html, re.DOTALL) for path, html in local.items()}
    assert sorted(path for path, found in lines.items() if found) == ["mlp/index.html", "more/index.html"]
    (own,), (beyond,) = lines["mlp/index.html"], lines["more/index.html"]
    assert re.findall(r">(.*?)</a>", own) == [
        "Part 2 of the series <em>Profiling in PyTorch</em>, From nn.Linear to a Fused MLP"
    ]
    assert re.findall(r">([^<>]*)</a>", beyond) == ["Part 1", "Part 2", "Part 3"]


def test_the_page_for_what_is_missing_leads_on(published: dict[str, str]) -> None:
    article = published["404.html"].partition("<article")[2].partition("</article>")[0]
    assert re.findall(r'href="(.*?)"', article) == [
        "/book/#what-do-you-see",
        "/book/your_trace/",
        "/book/mlp/",
        "/book/more/",
        "/book/glossary/",
    ]
