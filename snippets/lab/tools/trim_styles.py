"""Style sheets without what styles nothing: `make docs` runs `python -m snippets.lab.tools.trim_styles site`.

Each page of a notebook has all of JupyterLab's style, half a megabyte. Rules about classes that the page does not have
go, and custom properties that nothing reads. Our own sheets, which every page loads, lose their comments: a quarter of
their compressed size.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from snippets.lab.cache import cached, code_key

LEAST_LETTERS = 100_000
"""What is shorter is a page's own."""
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_COMMENT_OR_STRING = re.compile(r"""(/\*.*?\*/)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""", re.DOTALL)
_CLASS = re.compile(r"\.((?:jp|lm|cm|bp\d?|CodeMirror|mod)-[\w-]+)")
"""Classes of JupyterLab and its editors: scripts of the page may set others later."""
_WORD = re.compile(r"[\w-]+")
_NOT = re.compile(r":not\([^)]*\)")
_COMMA = re.compile(r",(?![^()]*\))")
_READ = re.compile(r"var\(\s*(--[\w-]+)")
_PROPERTY = re.compile(r"""(--[\w-]+)\s*:\s*((?:url\([^)]*\)|"[^"]*"|'[^']*'|[^;{}"'])*);?""")
_TOKEN = re.compile(r"""\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|url\((?![\s"'])[^)]*\)|[{};]""", re.DOTALL)


class Rule(NamedTuple):
    """A rule, or a statement such as `@charset`, which has no body."""

    head: str
    body: str | None

    def __str__(self) -> str:
        return self.head if self.body is None else f"{self.head}{{{self.body}}}"


def trim_page(page: Path, other_styles: str = "") -> int:
    """Trim the large style sheets of a built page; returns the letters saved. `other_styles` may read properties."""
    text = page.read_text(encoding="utf-8")
    if all(len(css) < LEAST_LETTERS for css in _STYLE.findall(text)):
        return 0
    bare = _STYLE.sub("", text)
    names = set(_WORD.findall(bare))
    read = {*_READ.findall(bare), *_READ.findall(other_styles)}

    def trimmed(match: re.Match[str]) -> str:
        css = match[1]
        if len(css) < LEAST_LETTERS:
            return match[0]
        own = names.intersection(_WORD.findall(css))
        key = (code_key(Path(__file__)), css, sorted(own), sorted(read))
        return match[0].replace(css, cached(key, lambda: trim_css(css, own, read)))

    result = _STYLE.sub(trimmed, text)
    if len(result) < len(text):
        page.write_text(result, encoding="utf-8")
    return len(text) - len(result)


def trim_css(css: str, names: set[str], read: set[str]) -> str:
    """Drop rules about classes that are not in `names`, and properties that neither `read` nor the rest reads."""
    kept = "".join(map(str, _kept(without_comments(css), lambda selector: _applies(selector, names))))
    while (fewer := _without_unread(kept, read)) != kept:
        kept = fewer
    return kept


def _without_unread(css: str, read: set[str]) -> str:
    used = {*read, *_READ.findall(css)}
    return _PROPERTY.sub(lambda match: match[0] if match[1] in used else "", css)


def _kept(css: str, applies: Callable[[str], bool]) -> Iterator[Rule]:
    for rule in rules_of(css):
        if rule.body is None or rule.head.startswith(("@font-face", "@keyframes", "@-webkit-keyframes", "@page")):
            yield rule
        elif rule.head.startswith("@"):
            if inner := "".join(map(str, _kept(rule.body, applies))):
                yield Rule(rule.head, inner)
        elif selectors := [selector for selector in _COMMA.split(rule.head) if applies(selector)]:
            yield Rule(",".join(selectors), rule.body)


def _applies(selector: str, names: set[str]) -> bool:
    return all(name in names for name in _CLASS.findall(_NOT.sub("", selector)))


def rules_of(css: str) -> Iterator[Rule]:
    """The rules of a style sheet without comments, in order; those inside of `@media` stay its body."""
    start = depth = opened = 0
    for match in _TOKEN.finditer(css):
        sign, at = match[0], match.start()
        if sign == "{":
            opened = opened if depth else at
            depth += 1
        elif sign == "}":
            depth -= 1
            if not depth:
                yield Rule(css[start:opened].strip(), css[opened + 1 : at])
                start = at + 1
        elif sign == ";" and not depth:
            yield Rule(css[start : at + 1].strip(), None)
            start = at + 1


def without_comments(css: str) -> str:
    """A style sheet without its comments."""
    return _COMMENT_OR_STRING.sub(lambda match: "" if match[1] else match[0], css)


def main(arguments: list[str]) -> int:
    """Trim the pages of a site and our own style sheets, and print how much the first saved."""
    site = Path(arguments[0])
    for path in (site / "assets" / "css").glob("*.css"):
        path.write_text(without_comments(path.read_text(encoding="utf-8")), encoding="utf-8")
    styles = "".join(path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.css")))
    saved = [trim_page(page, styles) for page in sorted(site.rglob("*.html"))]
    print(f"trim_styles: {sum(saved):,} letters of {sum(map(bool, saved))} pages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
