"""The search index after a build.

The theme indexes the content of a page, and of a notebook also its code and its buttons. Here notebooks keep their
prose, and a chapter comes before other pages and long before its notebook. The `tags` at the top of a page, the words
by which people search for its topic, lead to its head and not to each of its sections. The `words` there, by section,
lead to that section, and so do the questions in a section's paragraph *People ask: ...*.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

INDEX = "search/search_index.json"
NOTEBOOKS = "labs/"
HOME = "index.md"
CHAPTER_BOOST = 1.5
"""Times the boost that a page names at its top."""
WORDS_BOOST = 2.5
"""A section that names what people type comes before the head of a page that has the same words."""
NOTEBOOK_BOOST = 0.1
"""A notebook repeats its chapter's words in fewer sentences, so that it would come first."""
_CODE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
_BUTTON = "Copied!"
_PILCROW = "¶"
_ASKED = re.compile(r"<p>People ask: (.*?)</p>", re.DOTALL)
_ELEMENT = re.compile(r"<[^>]+>")

Entry = dict[str, Any]


def improve_index(site: Path, chapters: Collection[str], words: Mapping[str, Sequence[str]]) -> int:
    """Rewrite a built site's search index; returns the number of its entries.

    `words` are those of `section_words`. Raises `OSError` if there is no index, `ValueError` for another format.
    """
    path = site / INDEX
    index = json.loads(path.read_text(encoding="utf-8"))
    entries = index.get("docs") if isinstance(index, dict) else None
    if not entries or not all({"location", "title", "text"} <= entry.keys() for entry in entries):
        raise ValueError(f"{path} is not an index of Material's search")
    index["docs"] = [improved(entry, chapters, words) for entry in entries]
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    return len(entries)


def require_sections(site: Path, words: Mapping[str, Sequence[str]]) -> None:
    """Raise `ValueError` if a page of a built site lacks a section that has `words`."""
    index = json.loads((site / INDEX).read_text(encoding="utf-8"))
    for location in sorted(words.keys() - {entry["location"] for entry in index["docs"]}):
        page, _, section = location.partition("#")
        file = f"{page.rstrip('/')}.md" if page else HOME
        raise ValueError(f"docs/{file}: `words` names #{section}, which is no section of this page")


def section_words(docs: Path) -> dict[str, list[str]]:
    """What people type to find a section, by the section's location: `mlp/#fusion`. From the pages' front matter."""
    from mkdocs.utils.meta import get_data  # here: help of a command needs no MkDocs

    found = {}
    for path in sorted(docs.glob("*.md")):
        _, front_matter = get_data(path.read_text(encoding="utf-8"))
        page = "" if path.name == HOME else f"{path.stem}/"
        for section, words in front_matter.get("words", {}).items():
            found[f"{page}#{section}"] = [str(word) for word in words]
    return found


def improved(entry: Entry, chapters: Collection[str], words: Mapping[str, Sequence[str]]) -> Entry:
    """A section of the index: location below the site, title, HTML text, and the words that lead to it as tags."""
    page, _, section = entry["location"].partition("#")
    if section:
        entry = {key: value for key, value in entry.items() if key != "tags"}
        if tags := [*words.get(entry["location"], ()), *asked(entry["text"])]:
            entry["tags"] = tags
        if entry["location"] in words:
            return {**entry, "boost": WORDS_BOOST}
    if page.rstrip("/") in chapters:
        return {**entry, "boost": CHAPTER_BOOST * entry.get("boost", 1)}
    if not page.startswith(NOTEBOOKS):
        return entry
    text = " ".join(_CODE.sub("", entry["text"]).replace(_BUTTON, "").split())
    title = entry["title"].replace(_PILCROW, "").strip()
    return {**entry, "title": title, "text": text, "boost": NOTEBOOK_BOOST}


def asked(text: str) -> list[str]:
    """The questions of a section's paragraphs that begin with *People ask:*, as plain text."""
    paragraphs = (" ".join(unescape(_ELEMENT.sub("", found)).split()) for found in _ASKED.findall(text))
    return [question for paragraph in paragraphs for question in re.findall(r"\S.*?\?(?=\s|$)", paragraph)]
