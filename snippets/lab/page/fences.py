"""Executed fences: pymdownx.superfences calls `run_fence`, which runs a fence only if its HTML is not stored."""

from __future__ import annotations

from typing import Any

from markdown import Markdown
from markdown_exec import formatter

from snippets.lab.page.frame import FRAME
from snippets.lab.page.kept import kept


def run_fence(source: str, language: str, class_name: str, options: dict[str, Any], md: Markdown, **others: Any) -> str:
    """The HTML of a fence, from markdown-exec or from storage. The error of a fence that raises is not stored."""

    def run() -> str:
        return str(formatter(source, language, class_name, options, md, **others))

    if not options["html"] or options["session"]:  # other forms number their headings, or continue another fence
        return run()
    return kept(("fence", language, source, repr(sorted(options.items()))), run, start=FRAME)
