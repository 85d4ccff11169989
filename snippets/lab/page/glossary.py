"""The terms of the book: docs/assets/terms.txt as data, and the glossary page.

mkdocs.yml also appends the first section of that file to every page (`auto_append`): abbreviations with a tooltip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kinetoscope.html import Html
from snippets.lab.finding.device import Device
from snippets.lab.page.kept import outline
from snippets.lab.recording.device import PROJECT

TERMS = "assets/terms.txt"
"""Below docs/."""
_SECTION = re.compile(r"^--8<-- \[start:(\w+)\]\n(.*?)^--8<-- \[end:\1\]$", re.MULTILINE | re.DOTALL)
_TERM = re.compile(r"\*\[([^]\n]+)\]: (\S.*)\n\[\1\]: (\w+)\.md#([\w-]+)")
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: *\{ *#([\w-]+) *\})? *$", re.MULTILINE)
"""Text, and the address that it kept from an earlier text."""


@dataclass(frozen=True)
class Term:
    """A term, or several that share an explanation."""

    name: str
    """Several terms are separated by commas."""
    meaning: str
    """One or two sentences of plain text."""
    page: str
    """The page that teaches it: the name of a file in docs/ without its suffix."""
    anchor: str
    """The id of a heading on that page."""
    has_tooltip: bool

    @property
    def words(self) -> list[str]:
        """The terms that it explains, as a list."""
        return self.name.split(", ")


def read_terms(text: str) -> list[Term]:
    """Parse a file like terms.txt, in its order. Raises `ValueError` for a malformed entry."""
    terms = []
    for section, body in _SECTION.findall(text):
        for entry in body.strip().split("\n\n"):
            match = _TERM.fullmatch(entry)
            if match is None:
                raise ValueError(f"not a term with a meaning and an anchor: {entry!r}")
            name, meaning, page, anchor = match.groups()
            terms.append(Term(name, meaning, page, anchor, has_tooltip=section == "tooltips"))
    return terms


def glossary_terms(device: Device) -> Html:
    """The glossary, with a heading for each term so that the search finds it. It is the same for every device."""
    return terms_html(PROJECT / "docs")


def terms_html(docs: Path) -> Html:
    """The glossary as HTML. Raises `ValueError` if a term's page or heading does not exist."""
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
    """The heading that teaches a term, as plain text. Raises `ValueError` if it does not exist."""
    text = section_title(docs, term.page, term.anchor)
    if not text:
        raise ValueError(f"docs/{TERMS}: {term.name} links to {term.page}.md#{term.anchor}, which does not exist")
    return text


def section_title(docs: Path, page: str, anchor: str) -> str:
    """The heading of a page that has this id, as plain text; empty if there is none."""
    headings = _HEADING.findall(outline(docs / f"{page}.md"))
    texts = (text for text, address in headings if (address or heading_slug(text)) == anchor)
    return re.sub("[`*]", "", next(texts, ""))


def heading_slug(text: str) -> str:
    """The id of a heading, computed as the table of contents extension does."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
