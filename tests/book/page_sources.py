"""Reads docs/**/*.md as MkDocs will, and finds what MkDocs lets pass. Each function returns problems as lines of text.

    fences           top-level fenced blocks, their header taken apart
    fence_problems   executed fences: the one form that is sure to run (anything else can fail without a word)
    section_problems sections shown == sections marked
    stray_problems   numbers with a unit typed into prose

Leaf: used by tests/test_docs.py (on the sources) and tests/check_site.py (sources against what ran).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_FENCE_LINES = 3
KNOWN_OPTIONS = {
    "exec": {"on"},
    "html": {"on"},
    "id": None,  # any
    "source": {"above", "below"},
}
REQUIRED_OPTIONS = ("exec", "html", "id")

FENCE_START = re.compile(r"^(?P<prefix>[> \t]*)(?P<mark>`{3,}|~{3,})(?P<header>[^`]*)$")
EXEC_WORD = re.compile(r"\bexec\b")
EXEC_HEADER = re.compile(r'python(?P<options>(?: [a-z_]+="[^"]*")+)')
OPTION = re.compile(r'([a-z_]+)="([^"]*)"')
SHOWN = re.compile(r'^[> \t]*-+8<-+[ \t]+"(?P<path>[^":]+)(?::(?P<section>[^"]*))?"', re.MULTILINE)
MARKED = re.compile(r"-+8<-+[ \t]+\[[ \t]*(?P<end>start|end)[ \t]*:[ \t]*(?P<name>[\w-]+)[ \t]*\]")

NUMBER = r"(?<![\w.#/-])\d[\d.,_]*"
UNIT = (
    r"(?:[nuµμm]?s(?:ec)?|(?:micro|milli|nano)?seconds?|minutes?|hours?"
    r"|[KMGTP]i?B(?:/s)?|bytes?|[KMGTP]?FLOPS?(?:/s)?|[kMG]?Hz|W|°C"
    r"|%|percent|x|×|times|fold|kernels?|launch(?:es)?)"
)
STRAY = re.compile(rf"{NUMBER}(?:&nbsp;|[\s -])?{UNIT}(?![\w/])")


@dataclass(frozen=True)
class Fence:
    """A fenced block at the top level of a page."""

    page: str
    line: int
    header: str
    body: str
    closed: bool

    @property
    def executes(self) -> bool:
        """Whether its author meant it to be executed."""
        return EXEC_WORD.search(self.header) is not None

    @property
    def options(self) -> dict[str, str]:
        """Its quoted options."""
        return dict(OPTION.findall(self.header))

    @property
    def place(self) -> str:
        """Where it stands, for an error message."""
        return f"{self.page}:{self.line}"


def pages(docs: Path) -> dict[str, str]:
    """Path below docs/ -> text, for every page."""
    return {path.relative_to(docs).as_posix(): path.read_text(encoding="utf-8") for path in sorted(docs.rglob("*.md"))}


def fences(page: str, text: str) -> list[Fence]:
    """Every fenced block of a page; what stands inside a longer fence is text, not a fence."""
    found, opened, start, body = [], None, 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None:
            opened = FENCE_START.match(line)
            start, body = number, []
        elif line.lstrip("> \t").rstrip() == opened["mark"]:
            found.append(Fence(page, start, opened["header"].strip(), without_prefix(body), closed=True))
            opened = None
        else:
            body.append(line)
    if opened is not None:
        found.append(Fence(page, start, opened["header"].strip(), without_prefix(body), closed=False))
    return found


def without_prefix(lines: list[str]) -> str:
    """The lines less the indentation that they share."""
    widths = [len(line) - len(line.lstrip("> \t")) for line in lines if line.strip()]
    return "\n".join(line[min(widths, default=0) :] for line in lines)


def fence_problems(all_fences: Iterable[Fence]) -> list[str]:
    """Executed fences that markdown-exec would skip, misread, or run without being missed in the ledger."""
    found, seen = [], dict[str, str]()
    for fence in all_fences:
        if not fence.closed:
            found.append(f"{fence.place}: this fence is never closed")
        if not fence.executes:
            continue
        found += [f"{fence.place}: {problem}" for problem in header_problems(fence) + body_problems(fence)]
        name = fence.options.get("id", "")
        if name and name in seen:
            found.append(f'{fence.place}: id="{name}" is taken by {seen[name]}')
        seen.setdefault(name, fence.place)
    return found


def header_problems(fence: Fence) -> list[str]:
    """What is wrong with `python exec="on" html="on" id="..."`."""
    if EXEC_HEADER.fullmatch(fence.header) is None:
        return [f'write python exec="on" html="on" id="...", every value in double quotes, not: {fence.header}']
    found = []
    for name, value in fence.options.items():
        if name not in KNOWN_OPTIONS:
            found.append(f"option {name} is not one of {', '.join(KNOWN_OPTIONS)}")
        elif (values := KNOWN_OPTIONS[name]) is not None and value not in values:
            found.append(f'{name}="{value}" is not one of {", ".join(sorted(values))}')
    found += [f"option {name} is missing" for name in REQUIRED_OPTIONS if not fence.options.get(name)]
    if len(OPTION.findall(fence.header)) > len(fence.options):
        found.append("an option is given twice")
    return found


def body_problems(fence: Fence) -> list[str]:
    """What is wrong with the code: it has to be one printed call of our own package, which shows the fence's id."""
    lines = [line for line in fence.body.splitlines() if line.strip()]
    found = []
    if len(lines) > MAX_FENCE_LINES:
        found.append(f"{len(lines)} lines; at most {MAX_FENCE_LINES}, the rest belongs in findings.py")
    try:
        nodes = list(ast.walk(ast.parse(fence.body)))
    except SyntaxError as error:
        return [*found, f"not Python: {error.msg}"]
    for node in nodes:
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        found += [f"imports {m}; only snippets" for m in modules if m != "snippets" and not m.startswith("snippets.")]
    shown = [node for node in nodes if isinstance(node, ast.Call) and called(node) == "show"]
    ids = [node.args[0].value for node in shown if node.args and isinstance(node.args[0], ast.Constant)]
    if ids != [fence.options.get("id")]:
        found.append(
            f'has to print(show("{fence.options.get("id", "its id")}", ...)) once, so that the site can be checked'
        )
    return found


def called(node: ast.Call) -> str:
    """`show` for `show(...)` and `fence.show(...)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def section_problems(page_texts: Mapping[str, str], source_texts: Mapping[str, str]) -> list[str]:
    """Sections that are shown but not marked, marked but not shown, or marked badly."""
    found, marked = [], set[tuple[str, str]]()
    for path, text in source_texts.items():
        opened: list[str] = []
        for match in MARKED.finditer(text):
            name = match["name"]
            if match["end"] == "end":
                if name not in opened:
                    found.append(f"{path}: section {name} ends without a start")
                else:
                    opened.remove(name)
            elif (path, name) in marked:
                found.append(f"{path}: section {name} starts twice")
            else:
                marked.add((path, name))
                opened.append(name)
        found += [f"{path}: section {name} never ends" for name in opened]
    shown = set[tuple[str, str]]()
    for page, text in page_texts.items():
        for match in SHOWN.finditer(text):
            path, section = match["path"], match["section"]
            place = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
            if path not in source_texts:
                found.append(f"{place}: shows {path}, which does not exist")
            elif section is not None and (path, section) not in marked:
                found.append(f"{place}: shows {path}:{section}, which is not marked there (name it, never number it)")
            else:
                shown.add((path, section or ""))
    found += [f"{path}: section {name} is marked but no page shows it" for path, name in sorted(marked - shown)]
    return found


def prose(page: str, text: str) -> str:
    """The page with everything but prose blanked: same lines, same columns."""
    lines = text.splitlines()
    for fence in fences(page, text):
        height = len(fence.body.splitlines()) + (2 if fence.closed else 1)
        for index in range(fence.line - 1, min(fence.line - 1 + height, len(lines))):
            lines[index] = ""
    rest = "\n".join(lines)
    for pattern in (
        r"\A---\n.*?\n---\n",  # front matter
        r"<!--.*?-->",
        r"(?<!`)(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)",  # code and figures
        r"</?[a-zA-Z][^>]*>",
        r"(?<=\])\([^)\n]*\)",  # where a link goes
        r"(?m:^[ \t]*\[[^\]\n]+\]:[ \t]*\S+.*$)",
        r"https?://\S+",
        r"\{:?[ \t]*[.#\w][^}\n]*\}",  # attribute lists
    ):
        rest = re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), rest, flags=re.DOTALL)
    return rest


def stray_problems(page: str, text: str, allowed: Iterable[str] = ()) -> list[str]:
    """Numbers with a unit that no recording produced. `allowed`: fragments of lines that may have one."""
    found = []
    originals = text.splitlines()
    for number, line in enumerate(prose(page, text).splitlines(), start=1):
        for match in STRAY.finditer(line):
            if not any(fragment in originals[number - 1] for fragment in allowed):
                found.append(f"{page}:{number}: {match[0]!r} is typed by hand; use `#!fig ...`, `#!src ...` or words")
    return found
