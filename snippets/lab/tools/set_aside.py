"""Move a page's later content into files after a build.

Panels of other devices and the tables of timelines are the text of a `<noscript>` until a reader opens them: up to half
of a page. After a build they move into a file next to it, `set_aside.html`, and a link stays. With scripts,
docs/assets/js/first.js puts the part in place; without scripts, the link leads to it. A preview keeps them in the page.
"""

from __future__ import annotations

import re
from pathlib import Path

FILE = "set_aside.html"
LEAST_LETTERS = 1000
"""Shorter content stays: a link to it would save nothing."""
_HELD = re.compile(r"<noscript>(.*?)</noscript>", re.DOTALL)
_HEAD = re.compile(r'<meta charset[^>]*>|<meta http-equiv="Content-Security-Policy"[^>]*>|<link rel="stylesheet"[^>]*>')
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_BODY = re.compile(r"<body[^>]*>")
_NAME = re.compile(r"<(figcaption|caption|summary)\b[^>]*>(.*?)</\1>", re.DOTALL)
_ABOUT = re.compile(r"<!-- (.*?) -->")
_TAG = re.compile(r'<a class="tested".*?</a>|<[^>]*>')
_LOCAL_LINK = re.compile(r'(<a\b[^>]* href=")#([^"]*)"')


def set_aside(page: Path) -> int:
    """Move a built page's later content into a file next to it; returns the number of parts."""
    text = page.read_text(encoding="utf-8")
    parts: list[str] = []

    def moved(match: re.Match[str]) -> str:
        content = match[1]
        if len(content) < LEAST_LETTERS:
            return match[0]
        parts.append(content)
        link = f"{FILE}#part-{len(parts)}"
        return f'<noscript><p><a href="{link}">{_name(content)}</a></p></noscript>'

    rest = _HELD.sub(moved, text)
    if parts:
        page.with_name(FILE).write_text(_document(text, parts), encoding="utf-8")
        page.write_text(rest, encoding="utf-8")
    return len(parts)


def _name(content: str) -> str:
    """HTML text of a part's heading: the panel's device, and its first caption."""
    caption, about = _NAME.search(content), _ABOUT.match(content)
    words = [about[1] if about else "", _TAG.sub("", caption[2]).strip() if caption else ""]
    return ": ".join(filter(None, words)) or "more"


def _document(page: str, parts: list[str]) -> str:
    """The parts as a page that can be read by itself, with the page's own style and policy."""
    title, body = _TITLE.search(page), _BODY.search(page)
    name = title[1].strip().rpartition(" - ")[0] or title[1].strip() if title else "page"
    ids = set(re.findall(r'\bid="([^"]*)"', "".join(parts)))
    head = "\n".join(_HEAD.findall(page))
    sections = "\n".join(_section(number, part, ids) for number, part in enumerate(parts, start=1))
    return f"""<!doctype html>
<html lang="en">
<head>
{head}
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
<title>{name}: other devices and tables</title>
</head>
{body[0] if body else "<body>"}
<main class="md-grid" style="width: 100%"><article class="md-content__inner md-typeset">
<h1>Other devices and tables</h1>
<p>They belong to the page <a href="./">{name}</a>.</p>
{sections}
</article></main>
</body>
</html>
"""


def _section(number: int, part: str, ids: set[str]) -> str:
    def linked(match: re.Match[str]) -> str:
        return match[0] if match[2] in ids else f'{match[1]}./#{match[2]}"'

    content = _LOCAL_LINK.sub(linked, part)
    return f'<section id="part-{number}"><h2>{_name(part)}</h2><div>{content}</div></section>'


def set_aside_all(site: Path) -> tuple[int, int]:
    """Set aside the later content of a site's pages; how many parts, and of how many pages."""
    counts = [set_aside(page) for page in sorted(site.rglob("index.html"))]
    return sum(counts), sum(map(bool, counts))
