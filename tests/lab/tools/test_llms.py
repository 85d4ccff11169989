"""llms.txt: every page of `nav` with its description."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.llms import write_llms

CONFIG = """\
site_name: A book
site_description: About traces.

nav:
  - Home: index.md
  - Start here:
      - "Your trace: for programs": your_trace_json.md # a comment
      - Labs: labs/index.md
      - "By yourself": labs/mlp.ipynb
  - Contributing: contributing.md

theme: material
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs/labs").mkdir(parents=True)
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    for page in ("index", "your_trace_json", "labs/index", "contributing"):
        (tmp_path / f"docs/{page}.md").write_text(f"---\ndescription: What {page} is.\n---\n\n# A\n")
    return tmp_path


@pytest.mark.parametrize("root", ["", "https://example.org/book/"])
def test_pages_and_files(project: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("SITE_URL", root)
    assert write_llms(project, project) == 4
    lines = (project / "llms.txt").read_text().splitlines()
    assert lines[:17] == [
        "# A book",
        "",
        "> About traces.",
        "",
        "## Home",
        "",
        f"- [Home]({root or './'}): What index is.",
        "",
        "## Start here",
        "",
        f"- [Your trace: for programs]({root}your_trace_json/): What your_trace_json is.",
        f"- [Labs]({root}labs/): What labs/index is.",
        "",
        "## Contributing",
        "",
        f"- [Contributing]({root}contributing/): What contributing is.",
        "",
    ]
    assert f"- [SKILL.md]({root}SKILL.md): " in lines[19]


def test_a_page_without_a_description(project: Path) -> None:
    (project / "docs/index.md").write_text("# A\n")
    with pytest.raises(ValueError, match=r"docs/index\.md has no description"):
        write_llms(project, project)


def test_every_page_of_the_book_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SITE_URL", raising=False)
    count = write_llms(tmp_path)
    assert count == len([*(PROJECT / "docs").glob("*.md"), PROJECT / "docs/labs/index.md"])
    assert len(set(re.findall(r"\]\(([^)]+)\)", (tmp_path / "llms.txt").read_text()))) == count + 3
