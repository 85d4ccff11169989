"""The mend of a fault as a diff, computed from the two functions that are measured."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from html import escape

from kinetoscope.html import Html
from snippets.lab.finding.device import Device
from snippets.lab.recording.device import PROJECT

_CLASSES = {"+": "gi", "-": "gd"}
_CONTEXT = 2


@lru_cache(maxsize=8)
def _functions(chapter: str) -> dict[str, str]:
    """Name of a function of a chapter's subject -> its body as written, without docstring and indentation."""
    folder, bodies = PROJECT / "snippets" / chapter, dict[str, str]()
    for path in (*sorted(folder.glob("faults/*.py")), *sorted(folder.glob("*.py"))):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if ast.get_docstring(node) else node.body[0]
                bodies[node.name] = textwrap.dedent("\n".join(lines[first.lineno - 1 : node.end_lineno]))
    return bodies


def mend_lines(chapter: str, before: str, after: str) -> list[str]:
    """The lines of a diff of two functions' bodies, each with its sign; unchanged stretches are cut to a few lines.

    Raises `KeyError` for a function that does not exist, `ValueError` if the two are equal.
    """
    old, new = (_functions(chapter)[name].splitlines() for name in (before, after))
    lines = list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]
    if not lines:
        raise ValueError(f"{before} and {after} are equal")
    return [" …" if line.startswith("@@") else line for line in lines][1:]


def mend_diff(device: Device, chapter: str, before: str, after: str) -> Html:
    """A fix as a diff of two functions of a chapter. The diff is the same for every device."""
    lines = "".join(map(_line, mend_lines(chapter, before, after)))
    return Html(f'<div class="highlight"><pre><code>{lines}</code></pre></div>')


def _line(line: str) -> str:
    kind = _CLASSES.get(line[:1])
    return f'<span class="{kind}">{escape(line)}\n</span>' if kind else f"{escape(line)}\n"


def changed_lines(lines: Sequence[str]) -> int:
    """How many lines a diff removes or adds, the larger of the two."""
    return max(sum(line.startswith(sign) for line in lines) for sign in _CLASSES)
