"""A Markdown extension: the search index leaves shown Python code out.

Every page loads the whole index, and code would be a fifth of it. What it does is said in prose, which is searched.
"""

from __future__ import annotations

from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor

CODE = '<div class="language-python highlight"'
LAST = 5
"""A priority below that of every other postprocessor: stashed HTML, such as a code block, is in its place by then."""


class _Marked(Postprocessor):  # type: ignore[misc]
    """Marks blocks of code for Material's search."""

    def run(self, text: str) -> str:
        return text.replace(f"{CODE}>", f"{CODE} data-search-exclude>")


class SearchExclude(Extension):  # type: ignore[misc]
    """Registers the above."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Called by Markdown."""
        md.postprocessors.register(_Marked(md), "unsearched", LAST)


def makeExtension() -> SearchExclude:
    """Called by Markdown, which finds the extension by its module."""
    return SearchExclude()
