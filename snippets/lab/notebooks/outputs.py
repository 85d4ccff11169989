"""Outputs of notebooks: only text and simple HTML, which a page can show unchanged."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

LIMIT_BYTES = 200_000
TAGS = {"br", "caption", "code", "details", "div", "p", "small", "span", "strong", "summary"}
TAGS |= {"table", "tbody", "td", "th", "thead", "tr"}
ATTRIBUTES = {"aria-label", "class", "data-search-exclude", "role", "scope", "tabindex", "title"}


class _Tags(HTMLParser):
    """Counts the tags and collects disallowed ones."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.count = 0
        self.disallowed: list[str] = []
        self.feed(html)
        if self.count != html.count("<"):  # a comment, or an unclosed tag that swallows the text after it
            self.disallowed.append("a < outside a tag")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += 1
        disallowed = sorted({name for name, _ in attrs} - ATTRIBUTES)
        if tag not in TAGS or disallowed:
            self.disallowed.append(" ".join([f"<{tag}", *disallowed]))

    def handle_endtag(self, tag: str) -> None:
        self.count += 1


def output_problems(content: dict[str, Any]) -> Iterator[str]:
    """Problems with the outputs of a notebook: not text or simple HTML, two tables of one name, or too large."""
    for output in (output for cell in content["cells"] for output in cell.get("outputs", ())):
        kind = output.get("output_type")
        if kind == "stream" and output.get("name") == "stdout":
            continue
        if kind != "execute_result" or not output.get("data", {}).keys() <= {"text/plain", "text/html"}:
            yield f"an output is not text or HTML: {kind} {' '.join(output.get('data', {}))}"
            continue
        tags = _Tags("".join(output["data"].get("text/html", "")))
        yield from (f"an output has disallowed HTML: {tag}" for tag in tags.disallowed)
    names = Counter(re.findall(r'aria-label=\\"([^"]*)\\"', json.dumps(content, ensure_ascii=False)))
    yield from (
        f"two tables have the same name, so a screen reader cannot distinguish them: {name}"
        for name in names
        if names[name] > 1
    )
    size = len(dumped(content))
    if size > LIMIT_BYTES:
        yield f"{size:,} bytes; at most {LIMIT_BYTES:,}: show less, or profile a smaller step"


def dumped(content: dict[str, Any]) -> bytes:
    """A notebook as Jupyter writes it."""
    return (json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
