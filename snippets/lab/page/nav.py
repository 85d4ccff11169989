"""The pages of chapters in the order of `nav` in mkdocs.yml, the only list of them.

Each part of `nav` holds chapters, except `OTHER_PARTS`. A chapter can have several pages. Each is named after it:
`fused_mlp.md`, then `fused_mlp_race.md`.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from kinetoscope.html import Cell, Html, table
from snippets.lab.cache import once
from snippets.lab.finding.book import findings
from snippets.lab.finding.device import Device
from snippets.lab.page.kept import outline
from snippets.lab.page.sample import chapter_of
from snippets.lab.recording.device import PROJECT

OTHER_PARTS = ("Start", "Reference", "Labs")
"""Parts of the menu without chapters."""
_PART = re.compile(r"^(?P<indent> +)- (?P<title>[^:\n]+):(?: *#.*)?\n(?P<pages>(?:(?P=indent) +- .*\n)+)", re.MULTILINE)
"""A part in the text of mkdocs.yml; plain YAML parsers reject the file's Python tags."""
_PAGE = re.compile(r'- "?(?P<title>.+?)"?: (?P<page>[\w/]+)\.md\s*(?:#.*)?$', re.MULTILINE)
_DESCRIPTION = re.compile(r"\A---\n(?:.*\n)*?description: (.+)\n")


def chapter_parts(config: str) -> dict[str, str]:
    """Title of each part of `nav` that holds chapters -> its lines, in order, from the text of mkdocs.yml."""
    parts = {match["title"]: match["pages"] for match in _PART.finditer(config) if _PAGE.search(match["pages"])}
    return {title: pages for title, pages in parts.items() if title not in OTHER_PARTS}


def chapters_in_nav(config: str) -> dict[str, str]:
    """Name of a chapter's page -> its title, in order, from the text of mkdocs.yml."""
    lines = "".join(chapter_parts(config).values())
    return {match["page"]: match["title"] for match in _PAGE.finditer(lines)}


@once
def chapter_pages(chapter: str, project: Path = PROJECT) -> tuple[str, ...]:
    """The pages that may show a chapter's claims: the page of its findings, then pages named after the chapter."""
    pages = chapters_in_nav((project / "mkdocs.yml").read_text(encoding="utf-8"))
    named = [page for page in pages if chapter_of(f"{page}-".replace("_", "-")) == chapter]
    return tuple(dict.fromkeys([findings(chapter).page, *named]))


def claim_page(chapter: str, claim_id: str, project: Path = PROJECT) -> str:
    """The page of a chapter that shows a claim's verdict; the page of its findings without such a page."""
    first, *others = chapter_pages(chapter, project)
    return next((page for page in others if f'"{claim_id}"' in _text(project, page)), first)


def _text(project: Path, page: str) -> str:
    return outline(project / "docs" / f"{page}.md")


def description_of(project: Path, page: str) -> str:
    """The description at the top of a page. Raises `ValueError` if it has none."""
    described = _DESCRIPTION.match(_text(project, page))
    if described is None:
        raise ValueError(f"docs/{page}.md has no description at its top")
    return described[1]


def chapter_list(device: Device) -> Html:
    """All pages of all chapters with their descriptions. The list is the same for every device."""
    return chapter_table(PROJECT)


def chapter_table(project: Path) -> Html:
    """A table of the pages of a project's chapters. Raises `ValueError` for a page without a description."""
    rows: list[list[Cell]] = []
    for name, title in chapters_in_nav((project / "mkdocs.yml").read_text(encoding="utf-8")).items():
        link = Html(f'<a href="{escape(name)}/">{escape(title)}</a>')
        rows.append([link, description_of(project, name)])
    return table("Chapters", ["chapter", "what it shows"], rows, text_columns=2)
