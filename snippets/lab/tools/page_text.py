"""Parse a page's Markdown as MkDocs does: fenced blocks, questions, prose."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FENCE_START = re.compile(r"^(?P<prefix>[> \t]*)(?P<mark>`{3,}|~{3,})(?P<header>[^`]*)$")
EXEC_WORD = re.compile(r"\bexec\b")
QUESTION = re.compile(r'^(?P<indent> *)\?\?\?\+? question\b.*"')
GUESS = re.compile(r"guess_\w+|prediction|.+-guess-.+")
"""The name of a page piece that asks for a guess, or the id of a fence with such a piece."""


@dataclass(frozen=True)
class Fence:
    """A fenced block at the top level of a page, or in an admonition."""

    page: str
    line: int
    header: str
    body: str
    is_closed: bool
    indent: int

    @property
    def is_executed(self) -> bool:
        """Whether its header has `exec` anywhere, even in a form that markdown-exec skips."""
        return EXEC_WORD.search(self.header) is not None

    @property
    def place(self) -> str:
        """Page and line for an error message: `docs/mlp.md:34`."""
        return f"docs/{self.page}:{self.line}"

    @property
    def calls(self) -> list[ast.Call]:
        """The calls in its code; none if it is not Python, which the rule of fences reports."""
        return _calls(self.body)

    @property
    def ids(self) -> list[str]:
        """The first argument of each call of `show`, if it is a string."""
        return _strings(call.args[0] for call in self.calls if called_name(call) == "show" and call.args)

    @property
    def veils(self) -> list[str]:
        """The ids in `veils=(...)`: the fences that answer this guess."""
        values = (keyword.value for call in self.calls for keyword in call.keywords if keyword.arg == "veils")
        return _strings(part for value in values for part in ast.walk(value))

    @property
    def has_verdicts(self) -> bool:
        """Whether it shows verdicts."""
        shows = (call.args[1:2] for call in self.calls if called_name(call) == "show")
        return any(isinstance(piece, ast.Name) and piece.id == "verdicts" for args in shows for piece in args)

    @property
    def asks(self) -> bool:
        """Whether it asks the reader for a guess."""
        return any(GUESS.fullmatch(word) for word in re.findall(r"[\w-]+", self.body))


@lru_cache(maxsize=2048)
def _calls(code: str) -> list[ast.Call]:
    try:
        return [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return []


def _strings(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def called_name(node: ast.Call) -> str:
    """`show` for `show(...)` and `page.show(...)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def pages(docs: Path) -> dict[str, str]:
    """Path below docs/ -> text, for every page outside the recordings."""
    paths = {path.relative_to(docs).as_posix(): path for path in sorted(docs.rglob("*.md"))}
    return {
        page: path.read_text(encoding="utf-8") for page, path in paths.items() if not page.startswith("recordings/")
    }


def sources(project: Path) -> dict[str, str]:
    """Path below the project -> text, for every source that a page may show."""
    return {
        path.relative_to(project).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(project.glob("snippets/**/*.py"))
        if not path.is_symlink()  # the chapter of a linked source already has its sections
    }


def page_slug(page: str) -> str:
    """The prefix of the ids of a page's fences: `fused_mlp.md` -> `fused-mlp`, `labs/index.md` -> `labs`."""
    return page.removesuffix(".md").removesuffix("/index").replace("_", "-")


@lru_cache(maxsize=256)
def fences(page: str, text: str) -> tuple[Fence, ...]:
    """Every fenced block of a page; a block inside a longer one is text."""
    blocks, opened, start, body = list[Fence](), None, 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None:
            opened = FENCE_START.match(line)
            start, body = number, []
        elif line.lstrip("> \t").rstrip() == opened["mark"]:
            blocks.append(_fence(page, start, opened, body, is_closed=True))
            opened = None
        else:
            body.append(line)
    if opened is not None:
        blocks.append(_fence(page, start, opened, body, is_closed=False))
    return tuple(blocks)


def _fence(page: str, line: int, start: re.Match[str], body: list[str], *, is_closed: bool) -> Fence:
    return Fence(page, line, start["header"].strip(), without_prefix(body), is_closed, len(start["prefix"]))


def executed_fences(page: str, text: str) -> list[Fence]:
    """The fences of a page with `exec` in their header."""
    return [fence for fence in fences(page, text) if fence.is_executed]


def without_prefix(lines: list[str]) -> str:
    """The lines without the indentation that they share."""
    widths = [len(line) - len(line.lstrip("> \t")) for line in lines if line.strip()]
    return "\n".join(line[min(widths, default=0) :] for line in lines)


def questions(text: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of every `??? question` block."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        match = QUESTION.match(line)
        if match is None:
            continue
        last = index
        inner = len(match["indent"]) + 4
        for below in range(index + 1, len(lines)):
            if lines[below].strip() and len(lines[below]) - len(lines[below].lstrip(" ")) < inner:
                break
            last = below
        yield index + 1, last + 1


def line_of(text: str, position: int) -> int:
    """The line number of a character."""
    return text.count("\n", 0, position) + 1


def prose(page: str, text: str) -> str:
    """The page with everything except its prose blanked, so that lines and columns stay the same."""
    lines = text.splitlines()
    for fence in fences(page, text):
        height = len(fence.body.splitlines()) + (2 if fence.is_closed else 1)
        for index in range(fence.line - 1, min(fence.line - 1 + height, len(lines))):
            lines[index] = ""
    rest = "\n".join(lines)
    for pattern in (
        r"\A---\n.*?\n---\n",  # front matter
        r"<!--.*?-->",
        r"(?<!`)(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)",  # code and figures
        r"</?[a-zA-Z][^>]*>",
        r"(?<=\])\([^)\n]*\)",  # targets of links
        r"(?m:^[ \t]*\[[^\]\n]+\]:[ \t]*\S+.*$)",
        r"https?://\S+",
        r"\{:?[ \t]*[.#\w][^}\n]*\}",  # attribute lists
    ):
        rest = re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), rest, flags=re.DOTALL)
    return rest
