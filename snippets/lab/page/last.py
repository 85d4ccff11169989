"""A Markdown extension: what every page's HTML gets last.

Shown Python code is left out of the search index, which every page loads whole: code would be a fifth of it, and what
it does is said in prose. And the popovers of kernel names, whose ids are made of the name, are numbered.
"""

from __future__ import annotations

import re
from collections import Counter

from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor

CODE = '<div class="language-python highlight"'
PRIORITY = 5
"""Below that of every other postprocessor: stashed HTML, such as a code block, is in its place by then."""
_POPOVER = re.compile(r'popovertarget="(kernel-[0-9a-f]{8})"([^>]*>[^<]*</button><span popover id=")\1"')


class _Last(Postprocessor):  # type: ignore[misc]
    """Marks blocks of code for Material's search, and numbers the popovers of a page."""

    def run(self, text: str) -> str:
        times = Counter[str]()

        def numbered(match: re.Match[str]) -> str:
            times[match[1]] += 1
            ident = f"{match[1]}-{times[match[1]]}"
            return f'popovertarget="{ident}"{match[2]}{ident}"'

        return _POPOVER.sub(numbered, text.replace(f"{CODE}>", f"{CODE} data-search-exclude>"))


class Last(Extension):  # type: ignore[misc]
    """Registers the above."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Called by Markdown."""
        md.postprocessors.register(_Last(md), "last", PRIORITY)


def makeExtension() -> Last:
    """Called by Markdown, which finds the extension by its module."""
    return Last()
