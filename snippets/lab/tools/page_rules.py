"""The rules of pages that MkDocs does not check, as problems with a page and a line. `make serve` prints them.

fence_problems    executed fences have the one form that runs reliably (others can fail silently)
section_problems  sections shown == sections marked
width_problems    shown code fits its frame
stray_problems    numbers with a unit typed into prose
guess_problems    a guess is in a folded question, with the reason below it
shape_problems    the shape of a chapter's page, in chapter_rules.py
quiz_problems     only pages of chapters ask for guesses
veil_problems     a guess veils one figure of its page, below it and veiled once; verdicts may wait with the figure
claim_problems    every claim has its verdict on a page of its chapter
figure_problems   every `#!fig` and `#!src` has a known name, recorded or not
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.book import chapters_with_findings, figure, find_claim, findings
from snippets.lab.finding.device import Device
from snippets.lab.page.nav import chapter_pages
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import RecordingError
from snippets.lab.tools.chapter_rules import pages_of_chapters, shape_problems
from snippets.lab.tools.page_text import (
    Fence,
    called_name,
    executed_fences,
    fences,
    line_of,
    page_slug,
    pages,
    prose,
    questions,
    sources,
    without_prefix,
)

MAX_FENCE_LINES = 2
MAX_COLUMNS = 80
"""Columns of shown code that fit next to the menu and the contents of a page, and most printed paper."""
EXEC_HEADER = 'python exec="on" html="on"'
SHOWN = re.compile(r'^[> \t]*-+8<-+[ \t]+"(?P<path>[^":]+)(?::(?P<section>[^"]*))?"', re.MULTILINE)
MARKED = re.compile(r"-+8<-+[ \t]+\[[ \t]*(?P<end>start|end)[ \t]*:[ \t]*(?P<name>[\w-]+)[ \t]*\]")
INLINE = re.compile(r"`#!(?P<kind>fig|src) +(?P<name>[^`\n]+)`")

NUMBER = r"(?<![\w.#/-])\d[\d.,_]*"
UNIT = (
    r"(?:[nuµμm]?s(?:ec)?|(?:micro|milli|nano)?seconds?|minutes?|hours?"
    r"|[KMGTP]i?B(?:/s)?|bytes?|[KMGTP]?FLOPS?(?:/s)?|[kMG]?Hz|W|°C"
    r"|%|percent|x|×|times|fold|kernels?|launch(?:es)?)"
)
STRAY = re.compile(rf"{NUMBER}(?:&nbsp;|[\s -])?{UNIT}(?![\w/])")


def text_problems(project: Path) -> list[str]:
    """Problems in the text of all pages. Imports no chapter."""
    page_texts = pages(project / "docs")
    chapters = {page: page_texts[page] for page in pages_of_chapters(project) if page in page_texts}
    return [
        *fence_problems(fence for page, text in page_texts.items() for fence in fences(page, text)),
        *section_problems(page_texts, sources(project)),
        *width_problems(page_texts, sources(project)),
        *(problem for page, text in page_texts.items() for problem in stray_problems(page, text)),
        *(problem for page, text in page_texts.items() for problem in guess_problems(page, text)),
        *(problem for page, text in page_texts.items() for problem in veil_problems(page, text)),
        *(
            problem
            for page, text in page_texts.items()
            if page not in chapters
            for problem in quiz_problems(page, text)
        ),
        *(problem for page, text in chapters.items() for problem in shape_problems(page, text)),
    ]


def finding_problems(project: Path) -> list[str]:
    """Problems of all pages with claims and figures. Imports the chapters' findings; reads no recording."""
    page_texts = pages(project / "docs")
    return [
        *claim_problems(page_texts),
        *(problem for page, text in page_texts.items() for problem in figure_problems(page, text)),
    ]


def fence_problems(all_fences: Iterable[Fence]) -> list[str]:
    """Executed fences that markdown-exec would skip or misread, or that could be silently absent from the site."""
    problems, seen = list[str](), dict[str, str]()
    for fence in all_fences:
        if not fence.is_closed:
            problems.append(f"{fence.place}: this fence is not closed")
        if not fence.is_executed:
            continue
        if fence.header != EXEC_HEADER:
            problems.append(f"{fence.place}: the header of an executed fence must be {EXEC_HEADER}, not {fence.header}")
        problems += [f"{fence.place}: {problem}" for problem in body_problems(fence)]
        for name in fence.ids:
            if name in seen:
                problems.append(f'{fence.place}: the id "{name}" is taken by {seen[name]}')
            seen.setdefault(name, fence.place)
    return problems


def body_problems(fence: Fence) -> list[str]:
    """Problems with the code: it must be one printed `show`, import only snippets, and have an id of its page."""
    lines = [line for line in fence.body.splitlines() if line.strip()]
    problems = []
    if len(lines) > MAX_FENCE_LINES:
        problems.append(f"{len(lines)} lines, but the limit is {MAX_FENCE_LINES}: move the rest into findings.py")
    try:
        tree = ast.parse(fence.body)
    except SyntaxError as error:
        return [*problems, f"not Python: {error.msg}"]
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        problems += [f"imports {name}; import only snippets" for name in modules if name.split(".")[0] != "snippets"]
    start = page_slug(fence.page) + "-"
    if not _is_printed_show(tree):
        problems.append(f'end with one print(show("{start}...", ...)): the check of the built site looks for its id')
    elif not all(name.startswith(start) for name in fence.ids):
        problems.append(f'the id "{fence.ids[0]}" must begin with the name of its page: "{start}..."')
    return problems


def _is_printed_show(tree: ast.Module) -> bool:
    """Whether the last statement is `print(show("...", ...))` and the only call of `show`."""
    shows = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called_name(node) == "show"]
    last = tree.body[-1] if tree.body else None
    printed = last.value if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
    if printed is None or called_name(printed) != "print" or len(shows) != 1 or printed.args != shows:
        return False
    first = shows[0].args[0] if shows[0].args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str)


def section_problems(page_texts: Mapping[str, str], source_texts: Mapping[str, str]) -> list[str]:
    """Sections that are shown but not marked, marked but not shown, or have faulty marks."""
    problems, marked = list[str](), dict[tuple[str, str], int]()
    for path, text in source_texts.items():
        problems += _marks(path, text, marked)
    shown = set[tuple[str, str]]()
    for page, text in page_texts.items():
        for match in SHOWN.finditer(text):
            path, section = match["path"], match["section"]
            place = f"docs/{page}:{line_of(text, match.start())}"
            if path not in source_texts:
                problems.append(f"{place}: shows {path}, which does not exist")
            elif section is not None and (path, section) not in marked:
                problems.append(f"{place}: shows {path}:{section}, which is not marked there (by name, not by number)")
            else:
                shown.add((path, section or ""))
    hidden = sorted(marked.keys() - shown)
    problems += [f"{path}:{marked[path, name]}: section {name} is marked but no page shows it" for path, name in hidden]
    return problems


def width_problems(page_texts: Mapping[str, str], source_texts: Mapping[str, str]) -> list[str]:
    """Lines of shown sections and of typed code that a frame of `MAX_COLUMNS` would cut off or wrap."""
    problems = dict[str, None]()
    for page, text in page_texts.items():
        for match in SHOWN.finditer(text):
            if (path := match["path"]) in source_texts:
                problems |= dict.fromkeys(_wide(path, *_section(source_texts[path], match["section"])))
        typed = (fence for fence in fences(page, text) if not fence.is_executed and not SHOWN.search(fence.body))
        for fence in typed:
            problems |= dict.fromkeys(_wide(f"docs/{page}", fence.line + 1, fence.body.splitlines()))
    return list(problems)


def _section(text: str, name: str | None) -> tuple[int, list[str]]:
    """The first line's number and the lines of a marked section, or of the whole file, without the marks."""
    marks = {match["end"]: match for match in MARKED.finditer(text) if match["name"] == name}
    if name and len(marks) < 2:  # for `section_problems`
        return 1, []
    start = line_of(text, marks["start"].start()) if name else 0
    lines = text.splitlines()[start : line_of(text, marks["end"].start()) - 1 if name else None]
    return start + 1, without_prefix(["" if MARKED.search(line) else line for line in lines]).splitlines()


def _wide(path: str, first: int, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines, first):
        if len(line) > MAX_COLUMNS:
            yield f"{path}:{number}: {len(line)} columns of shown code, at most {MAX_COLUMNS} fit"


def _marks(path: str, text: str, marked: dict[tuple[str, str], int]) -> list[str]:
    """Add the sections of a source with their lines to `marked`; return the problems with its marks."""
    problems, opened = list[str](), dict[str, int]()
    for match in MARKED.finditer(text):
        name, line = match["name"], line_of(text, match.start())
        if match["end"] == "end":
            if opened.pop(name, None) is None:
                problems.append(f"{path}:{line}: section {name} ends without a start")
        elif (path, name) in marked:
            problems.append(f"{path}:{line}: section {name} starts twice")
        else:
            marked[path, name] = opened[name] = line
    return [*problems, *(f"{path}:{line}: section {name} never ends" for name, line in opened.items())]


def stray_problems(page: str, text: str, allowed: Iterable[str] = ()) -> list[str]:
    """Numbers with a unit typed into prose. `allowed`: exempt fragments of lines."""
    problems = []
    originals = text.splitlines()
    for number, line in enumerate(prose(page, text).splitlines(), start=1):
        for match in STRAY.finditer(line):
            if not any(fragment in originals[number - 1] for fragment in allowed):
                problems.append(
                    f"docs/{page}:{number}: {match[0]!r} is typed by hand; use `#!fig ...`, `#!src ...` or words"
                )
    return problems


def guess_problems(page: str, text: str) -> list[str]:
    """Guesses outside a folded question or without a reason below them."""
    problems, blocks, lines = [], list(questions(text)), text.splitlines()
    for fence in executed_fences(page, text):
        if not fence.asks:
            continue
        block = next((last for first, last in blocks if first < fence.line <= last), None)
        end = fence.line + len(fence.body.splitlines()) + 1
        if block is None:
            problems.append(f'{fence.place}: put this guess into a block ??? question "Guess: ...", indented by four')
        elif not any(line.strip() for line in lines[end:block]):
            problems.append(f"{fence.place}: below this guess, in the same block, give the reason for the answer")
    return problems


def quiz_problems(page: str, text: str) -> list[str]:
    """Guesses on a page that is no chapter's: who looks something up is not asked first."""
    asked = (fence for fence in executed_fences(page, text) if fence.asks)
    return [f"{fence.place}: asks for a guess, but this is no page of a chapter; say it in prose" for fence in asked]


def veil_problems(page: str, text: str) -> list[str]:
    """Veils of a fence that is missing, above the guess, a guess, or veiled already; veils of more than one figure."""
    problems, veiled_at, all_fences = list[str](), dict[str, str](), executed_fences(page, text)
    places = {name: fence for fence in all_fences for name in fence.ids}
    for fence in all_fences:
        for name in fence.veils:
            veiled = places.get(name)
            if veiled is None:
                shown = next((each.ids[0] for each in all_fences if each.has_verdicts and f'"{name}"' in each.body), "")
                cure = f'; name the fence "{shown}", which shows it' if shown else "; name the id of a fence"
                problems.append(f'{fence.place}: veils "{name}", which is no fence of this page{cure}')
            elif veiled.line <= fence.line:
                problems.append(f'{fence.place}: veils "{name}", which the reader sees before the guess')
            elif veiled.asks:
                problems.append(f'{fence.place}: veils "{name}", which is a guess itself')
            elif name in veiled_at:
                problems.append(f'{fence.place}: veils "{name}", which {veiled_at[name]} veils already')
            veiled_at.setdefault(name, fence.place)
        figures = [name for name in fence.veils if name in places and not places[name].has_verdicts]
        if len(figures) > 1:
            problems.append(
                f"{fence.place}: veils {len(figures)} figures ({', '.join(figures)}); one answers the guess"
            )
    return problems


def claim_problems(page_texts: Mapping[str, str]) -> list[str]:
    """Claims without a verdict on a page of their chapter."""
    problems = []
    for chapter in chapters_with_findings():
        page, claims = findings(chapter).page, findings(chapter).claims
        text = "\n".join(page_texts.get(f"{each}.md", "") for each in chapter_pages(chapter))
        problems += [
            f'docs/{page}.md: the claim {claim.id} has no verdict here; add verdicts with "{claim.id}" to a fence'
            for claim in claims
            if f'"{claim.id}"' not in text
        ]
    return problems


def figure_problems(page: str, text: str) -> list[str]:
    """Inline figures and source values of unknown names. The device has no recordings, so this reads none."""
    with tempfile.TemporaryDirectory() as folder:
        device = Device(Path(folder), DEFAULT_DEVICE)
        problems = []
        for match in INLINE.finditer(text):
            try:
                if match["kind"] == "fig":
                    figure(match["name"].strip(), device)
                else:
                    find_claim(match["name"].strip())
            except RecordingError:
                continue
            except UnknownName as error:
                place = f"docs/{page}:{line_of(text, match.start())}"
                problems.append(f"{place}: #!{match['kind']} {match['name'].strip()}: {error}")
    return problems
