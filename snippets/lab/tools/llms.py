"""The file llms.txt of the site: its pages with a sentence each, for language models (llmstxt.org)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from snippets.lab.page.nav import description_of
from snippets.lab.recording.device import PROJECT

FILES = {
    "SKILL.md": "how an agent uses the command kinetoscope: which command when, and what never to conclude",
    "schema/report.json": "the JSON Schema of kinetoscope report --json; also summary.json, diff.json, doctor.json",
    "claims.json": "every claim of the book with its measured value and verdict on each device",
}
"""Files of the site for programs -> what they are."""
_LINE = re.compile(r'^(?P<indent> +)- "?(?P<title>[^"\n]+?)"?:(?: (?P<page>[\w/]+)\.md)?\s*(?:#.*)?$')


def write_llms(site: Path, project: Path = PROJECT) -> int:
    """Write llms.txt below the site; return the number of its pages. With SITE_URL, its links are whole addresses.

    Raises `ValueError` for a page without a description.
    """
    config = (project / "mkdocs.yml").read_text(encoding="utf-8")
    name, about = (re.search(rf"^{key}: (.+)$", config, re.MULTILINE) for key in ("site_name", "site_description"))
    assert name is not None
    assert about is not None
    root = os.environ.get("SITE_URL", "")
    pages = [*_pages(config, project, root)]
    files = [f"- [{file}]({root}{file}): {text}." for file, text in FILES.items()]
    lines = [f"# {name[1]}", "", f"> {about[1]}", *pages, "", "## For programs", "", *files]
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sum(line.startswith("- ") for line in pages)


def _pages(config: str, project: Path, root: str) -> Iterator[str]:
    """Sections and pages in the order of `nav`; notebooks are on the page of labs."""
    nav = config.partition("\nnav:\n")[2].partition("\n\n")[0]
    for line in nav.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match["page"] is None:
            yield from ("", f"## {match['title']}", "")
            continue
        if len(match["indent"]) == 2:  # a page in no part, such as the home page
            yield from ("", f"## {match['title']}", "")
        page = match["page"].removesuffix("index")
        address = f"{root}{page}{'' if not page or page.endswith('/') else '/'}"
        yield f"- [{match['title']}]({address or './'}): {description_of(project, match['page'])}"
