"""Leave out of style sheets what styles nothing, after a build.

Each page of a notebook has all of JupyterLab's style, half a megabyte. Rules about classes that the page does not have
go, and custom properties that nothing reads. Our own sheets, which every page loads, lose their comments: a quarter of
their compressed size.
"""

from __future__ import annotations

import re
from pathlib import Path

LEAST_LETTERS = 100_000
"""What is shorter is a page's own."""
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_COMMENT_OR_STRING = re.compile(r"""(/\*.*?\*/)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""", re.DOTALL)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
"""A rule that has no other in it: a rule within `@media`, not `@media` itself."""
_EMPTY = re.compile(r"@media[^{}]*\{\s*\}")
_CLASS = re.compile(r"\.((?:jp|lm|cm|bp\d?|CodeMirror|mod)-[\w-]+)")
"""Classes of JupyterLab and its editors: scripts of the page may set others later."""
_NOT = re.compile(r":not\([^)]*\)")
_COMMA = re.compile(r",(?![^()]*\))")
_READ = re.compile(r"var\(\s*(--[\w-]+)")
_PROPERTY = re.compile(r"""(--[\w-]+)\s*:\s*((?:url\([^)]*\)|"[^"]*"|'[^']*'|[^;{}"'])*);?""")


def trim_page(page: Path, other_styles: str = "") -> int:
    """Trim the large style sheets of a built page; returns the letters saved. `other_styles` may read properties."""
    text = page.read_text(encoding="utf-8")
    if all(len(css) < LEAST_LETTERS for css in _STYLE.findall(text)):
        return 0
    bare = _STYLE.sub("", text)
    names, read = set(re.findall(r"[\w-]+", bare)), {*_READ.findall(bare), *_READ.findall(other_styles)}
    result = text
    for css in filter(lambda css: len(css) >= LEAST_LETTERS, _STYLE.findall(text)):
        result = result.replace(css, trim_css(css, names, read))
    if result != text:
        page.write_text(result, encoding="utf-8")
    return len(text) - len(result)


def trim_css(css: str, names: set[str], read: set[str]) -> str:
    """Drop rules about classes that are not in `names`, and properties that neither `read` nor the rest reads."""

    def applying(rule: re.Match[str]) -> str:
        selectors = [each for each in _COMMA.split(rule[1]) if names.issuperset(_CLASS.findall(_NOT.sub("", each)))]
        return f"{','.join(selectors)}{{{rule[2]}}}" if selectors else ""

    kept, before = _EMPTY.sub("", _RULE.sub(applying, without_comments(css))), ""
    while kept != before:
        before, used = kept, {*read, *_READ.findall(kept)}
        kept = _PROPERTY.sub(lambda match, used=used: match[0] if match[1] in used else "", kept)  # type: ignore[misc]
    return kept


def without_comments(css: str) -> str:
    """A style sheet without its comments."""
    return _COMMENT_OR_STRING.sub(lambda match: "" if match[1] else match[0], css)


def trim_styles(site: Path) -> tuple[int, int]:
    """Trim the pages of a site and our own style sheets; the letters saved in pages, and in how many."""
    for path in (site / "assets" / "css").glob("*.css"):
        path.write_text(without_comments(path.read_text(encoding="utf-8")), encoding="utf-8")
    styles = "".join(path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.css")))
    saved = [trim_page(page, styles) for page in sorted(site.rglob("*.html"))]
    return sum(saved), sum(map(bool, saved))
