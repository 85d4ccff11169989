"""The words of the book: docs/assets/terms.txt as data, and the glossary page made of it.

The first section of that file also stands below every page (`auto_append` in mkdocs.yml), as abbreviations with a
tooltip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from snippets.lab.finding.device import Device
from snippets.lab.html import Html
from snippets.lab.recording.device import PROJECT

TERMS = "assets/terms.txt"
"""Below docs/."""
_SECTION = re.compile(r"^--8<-- \[start:(\w+)\]\n(.*?)^--8<-- \[end:\1\]$", re.MULTILINE | re.DOTALL)
_TERM = re.compile(r"\*\[([^]\n]+)\]: (\S.*)\n\[\1\]: (\w+)\.md#([\w-]+)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Term:
    """A word, or a few that are explained together."""

    name: str
    """With commas between the words when there are several."""
    meaning: str
    """A sentence or two of plain text."""
    page: str
    """Where it is taught: the name of a file in docs/ without its ending."""
    anchor: str
    """The id of a heading there."""
    has_tooltip: bool

    @property
    def words(self) -> list[str]:
        """The words that it explains."""
        return self.name.split(", ")


def read_terms(text: str) -> list[Term]:
    """The terms of a file like terms.txt, in its order. Raises `ValueError` for an entry that is not well formed."""
    terms = []
    for section, body in _SECTION.findall(text):
        for entry in body.strip().split("\n\n"):
            match = _TERM.fullmatch(entry)
            if match is None:
                raise ValueError(f"not a term with its meaning and its place: {entry!r}")
            name, meaning, page, anchor = match.groups()
            terms.append(Term(name, meaning, page, anchor, has_tooltip=section == "tooltips"))
    return terms


def glossary_terms(device: Device) -> Html:
    """The glossary: each term under a heading of its own, so that a search leads to it; the same for every device."""
    return terms_html(PROJECT / "docs")


def terms_html(docs: Path) -> Html:
    """The terms of a folder of pages. Raises `ValueError` when a term's place does not exist."""
    terms = sorted(read_terms((docs / TERMS).read_text(encoding="utf-8")), key=lambda term: term.name.casefold())
    return Html(f'<div class="glossary">{"".join(_entry(term, docs) for term in terms)}</div>')


def _entry(term: Term, docs: Path) -> str:
    anchor = heading_slug(term.name)
    link = f'<a href="../{term.page}/#{term.anchor}">{escape(heading(term, docs))}</a>'
    return (
        f'<h2 id="{anchor}">{escape(term.name)}<a class="headerlink" href="#{anchor}" title="Permanent link">¶</a></h2>'
        f"<p>{escape(term.meaning)} {link}</p>"
    )


def heading(term: Term, docs: Path) -> str:
    """The heading under which a term is taught, as plain text. Raises `ValueError` when there is none."""
    page = docs / f"{term.page}.md"
    headings = _HEADING.findall(page.read_text(encoding="utf-8")) if page.is_file() else []
    for text in headings:
        if heading_slug(text) == term.anchor:
            return re.sub("[`*]", "", text)
    raise ValueError(
        f"docs/{TERMS}: {term.name} is said to be taught at {term.page}.md#{term.anchor}, which is not there"
    )


def heading_slug(text: str) -> str:
    """The id of a heading, as the pages' table of contents forms it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
