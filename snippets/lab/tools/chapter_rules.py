"""The shape of a chapter's page, as problems with a page and a line.

guess_number_problems   at most three guesses, not counting those of exercises
veiled_problems         the answer to a guess is veiled
spoiler_problems        the answer is neither above a guess, nor between it and the fences that it veils
opening_problems        each of the first findings begins with a whole sentence in bold
ending_problems         every section ends with what readers should look for in their own traces
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from snippets.lab.page.nav import chapters_in_nav
from snippets.lab.tools.page_text import Fence, called_name, executed_fences, fences, questions

MAX_GUESSES = 3
EXERCISES = "Exercises"
WITHOUT_ENDING = (
    "On your machine",
    EXERCISES,
    "What changed on the GPU, and what stayed?",
    "And next?",
    "What is different from the series",
    "What is different from the articles",
)
ENDING = "**In your trace:**"
CLAIM = "claim:"
_FINDING = re.compile(r"^\d\. \*\*(?P<sentence>.+?)\*\*", re.MULTILINE)
_FINDINGS = re.compile(r'<div class="findings" markdown>\n(?P<list>.*?)</div>', re.DOTALL)
_HEADING = re.compile(r"^## +(?P<title>.+?)(?: *\{.*\})? *$")


@dataclass(frozen=True)
class Section:
    """A section of a page: the lines from one `##` heading to the next."""

    title: str
    first: int
    last: int

    def __contains__(self, line: int) -> bool:
        """Whether a line is in the section."""
        return self.first <= line <= self.last


def pages_of_chapters(project: Path) -> list[str]:
    """The pages of the chapters, in the order of the book."""
    config = (project / "mkdocs.yml").read_text(encoding="utf-8")
    return [f"{name}.md" for name in chapters_in_nav(config)]


def shape_problems(page: str, text: str) -> list[str]:
    """All problems with the shape of a chapter's page."""
    rules = (guess_number_problems, veiled_problems, spoiler_problems, opening_problems, ending_problems)
    return [problem for rule in rules for problem in rule(page, text)]


def sections(page: str, text: str) -> list[Section]:
    """The sections of a page, without the text above the first."""
    inside = {line for fence in fences(page, text) for line in range(fence.line, fence.line + _height(fence))}
    lines = text.splitlines()
    starts = [
        (number, match["title"])
        for number, line in enumerate(lines, start=1)
        if number not in inside and (match := _HEADING.match(line))
    ]
    ends = [*(number - 1 for number, _ in starts), len(lines)][1:]
    return [Section(title, first, last) for (first, title), last in zip(starts, ends, strict=True)]


def _height(fence: Fence) -> int:
    return len(fence.body.splitlines()) + 2


def guesses(page: str, text: str) -> list[Fence]:
    """The guesses of a page, without those of exercises."""
    exercises = [section for section in sections(page, text) if section.title == EXERCISES]
    asked = (fence for fence in executed_fences(page, text) if fence.asks)
    return [fence for fence in asked if not any(fence.line in section for section in exercises)]


def guess_number_problems(page: str, text: str) -> list[str]:
    """Too many guesses."""
    number = len(guesses(page, text))
    too_many = f"docs/{page}: {number} guesses; a page has at most {MAX_GUESSES}, those that it lets readers compute"
    return [too_many] if number > MAX_GUESSES else []


def veiled_problems(page: str, text: str) -> list[str]:
    """Guesses outside exercises that veil nothing."""
    open_guesses = (fence for fence in guesses(page, text) if not fence.veils)
    return [f"{fence.place}: name what answers this guess: veils=(...)" for fence in open_guesses]


def spoiler_problems(page: str, text: str) -> list[str]:
    """Figures and claims shown before the guess that asks for them, or between it and the first fence that it veils."""
    problems, lines, all_fences = list[str](), text.splitlines(), executed_fences(page, text)
    places = {name: fence.line for fence in all_fences for name in fence.ids}
    blocks = list(questions(text))
    for fence in guesses(page, text):
        subject = subject_of(fence)
        if subject is None:
            continue
        end = next((last for first, last in blocks if first < fence.line <= last), fence.line)
        veiled = min((places[name] for name in fence.veils if name in places), default=end)
        seen = [*range(fence.line), *range(end, veiled)]
        shown = f'"{subject.removeprefix(CLAIM)}"' if subject.startswith(CLAIM) else f"`#!fig {subject}`"
        problems += [
            f"docs/{page}:{index + 1}: tells {subject}, which line {fence.line} asks for"
            for index in seen
            if index < len(lines) and index + 1 != fence.line and shown in lines[index]
        ]
    return problems


def subject_of(fence: Fence) -> str | None:
    """The figure or the claim that a guess asks for; None if a chapter's own function names it."""
    shows = (call for call in fence.calls if called_name(call) == "show")
    names = [arg.value for call in shows for arg in call.args[2:3] if isinstance(arg, ast.Constant)]
    return str(names[0]) if names else None


def opening_problems(page: str, text: str) -> list[str]:
    """Findings whose bold part, shown as a line of its own, is no whole sentence."""
    listed = _FINDINGS.search(text)
    sentences = [match["sentence"] for match in _FINDING.finditer(listed["list"])] if listed else []
    cut = (sentence for sentence in sentences if not sentence.endswith((".", "?", "!")))
    return [f'docs/{page}: "{each}" stands on a line of its own; make it a whole sentence' for each in cut]


def ending_problems(page: str, text: str) -> list[str]:
    """Sections that do not end with what to look for in a trace."""
    problems = []
    for section in sections(page, text):
        if section.title in WITHOUT_ENDING:
            continue
        paragraphs = "\n".join(text.splitlines()[section.first : section.last]).strip().split("\n\n")
        last = paragraphs[-1].strip()
        if not last.startswith(ENDING):
            problems.append(f'docs/{page}:{section.first}: end "{section.title}" with a paragraph {ENDING} ...')
    return problems
