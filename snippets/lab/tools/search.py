"""The search index after a build.

The theme indexes the content of a page, and of a notebook also its code and its buttons. Here notebooks keep their
prose, and a chapter comes before other pages and long before its notebook. The `tags` at the top of a page, the words
by which people search for its topic, lead to its head and not to each of its sections. The questions in a section's
paragraph *People ask: ...* lead to that section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from html import unescape
from pathlib import Path
from typing import Any

INDEX = "search/search_index.json"
NOTEBOOKS = "labs/"
CHAPTER_BOOST = 1.5
"""Times the boost that a page names at its top."""
NOTEBOOK_BOOST = 0.1
"""A notebook repeats its chapter's words in fewer sentences, so that it would come first."""
_CODE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
_BUTTON = "Copied!"
_PILCROW = "¶"
_ASKED = re.compile(r"<p>People ask: (.*?)</p>", re.DOTALL)
_ELEMENT = re.compile(r"<[^>]+>")

Entry = dict[str, Any]


def improve_index(site: Path, chapters: Collection[str]) -> int:
    """Rewrite a built site's search index; returns the number of its entries.

    Raises `OSError` if there is none, `ValueError` if it is in another format.
    """
    path = site / INDEX
    index = json.loads(path.read_text(encoding="utf-8"))
    entries = index.get("docs") if isinstance(index, dict) else None
    if not entries or not all({"location", "title", "text"} <= entry.keys() for entry in entries):
        raise ValueError(f"{path} is not an index of Material's search")
    index["docs"] = [improved(entry, chapters) for entry in entries]
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    return len(entries)


def improved(entry: Entry, chapters: Collection[str]) -> Entry:
    """A section of the index: location below the site, title, HTML text, and for a page's head its tags."""
    page, _, section = entry["location"].partition("#")
    if section:
        entry = {key: value for key, value in entry.items() if key != "tags"}
        if questions := asked(entry["text"]):
            entry["tags"] = questions
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
