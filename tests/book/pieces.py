"""Every fence and figure of the book, to build one by one as a page does."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import lru_cache, partial
from io import StringIO

from snippets.lab.page.inline import fig_formatter
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import executed_fences, pages

FIGURE = re.compile(r"`#!fig ([^`]+)`")


@lru_cache(maxsize=1)
def pieces() -> list[tuple[str, Callable[[], str]]]:
    """The place of each piece in the book, and a function that builds it."""
    found: dict[str, Callable[[], str]] = {}
    for page, text in pages(PROJECT / "docs").items():
        for fence in executed_fences(page, text):
            found[f"{fence.place} {fence.ids}"] = partial(_run, fence.body)
        for name in FIGURE.findall(text):
            found[f"docs/{page} #!fig {name}"] = partial(fig_formatter, name, "fig", "fig", None)
    return list(found.items())


def _run(body: str) -> str:
    with redirect_stdout(StringIO()) as printed:
        exec(compile(body, "fence", "exec"), {})
    return printed.getvalue()
