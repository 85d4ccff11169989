"""The list of chapters: that of nav, in its order, each with the description of its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.page.nav import chapter_pages, chapter_table, claim_page
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import EVIL, Markup, assert_only_text


def write(root: Path, nav: str, **pages: str) -> None:
    (root / "docs").mkdir()
    (root / "mkdocs.yml").write_text(nav, encoding="utf-8")
    for name, description in pages.items():
        (root / f"docs/{name}.md").write_text(
            f"---\ntitle: x\ndescription: {description}\n---\n# X\n", encoding="utf-8"
        )


def test_a_row_for_each_chapter_in_the_order_of_nav(tmp_path: Path) -> None:
    nav = (
        "nav:\n  - H: index.md\n  - Start:\n    - S: s.md\n  - One block:  # in order\n    - Z, the first: z.md # x\n"
        "  - Training:\n    - A: a.md\n  - Reference:\n    - R: r.md\n  - B: b.md\nplugins:\n  - search:\n"
    )
    write(tmp_path, nav, z="Zed.", a="Ay.", b="Bee.", s="Es.", r="Are.")
    content = "".join(chapter_table(tmp_path).splitlines())
    assert '<tr><td><a href="z/">Z, the first</a></td><td>Zed.</td></tr><tr><td><a href="a/">A</a></td>' in content
    assert content.count("<tr>") == 3


@pytest.mark.parametrize("text", EVIL)
def test_descriptions_are_text(tmp_path: Path, text: str) -> None:
    write(tmp_path, "nav:\n  - Chapters:\n      - A: a.md\n", a=text)
    content = chapter_table(tmp_path)
    assert_only_text(content, text)
    assert Markup(content).elements.count("tr") == 2


def test_a_page_without_a_description(tmp_path: Path) -> None:
    write(tmp_path, "nav:\n  - Chapters:\n      - A: a.md\n")
    (tmp_path / "docs/a.md").write_text("# A\n\ndescription: not here\n")
    with pytest.raises(ValueError, match=r"^docs/a\.md has no description at its top$"):
        chapter_table(tmp_path)


TWO_PAGES = "nav:\n  - Chapters:\n    - A: mlp.md\n    - B: mlp_race.md\n    - C: fused_mlp.md\n    - D: mlprace.md\n"


def test_the_pages_of_a_chapter_are_named_after_it(tmp_path: Path, book: Book) -> None:
    book(mlp=samples.findings(samples.claim()))
    write(tmp_path, TWO_PAGES)
    assert chapter_pages("mlp", tmp_path) == ("mlp", "mlp_race")


def test_a_claim_is_on_the_page_that_shows_it(tmp_path: Path, book: Book) -> None:
    book(mlp=samples.findings(samples.claim(id="M1"), samples.claim(id="M2"), samples.claim(id="M3")))
    write(tmp_path, TWO_PAGES, mlp="x", mlp_race="x")
    for page, claim_id in (("mlp", "M1"), ("mlp_race", "M2")):
        with (tmp_path / f"docs/{page}.md").open("a") as file:
            file.write(f'print(show("x", verdicts, "{claim_id}"))\n')
    assert [claim_page("mlp", claim_id, tmp_path) for claim_id in ("M1", "M2", "M3")] == ["mlp", "mlp_race", "mlp"]
