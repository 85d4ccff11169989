"""The shape of every chapter's page, and that no heading answers the guess below it."""

from __future__ import annotations

import re

from snippets.lab.finding.book import figure
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.schema import NotRecorded, NotTimed
from snippets.lab.tools.chapter_rules import CLAIM, guesses, pages_of_chapters, shape_problems, subject_of
from snippets.lab.tools.page_text import pages
from tests.lab.samples import BOOK

PAGES = pages(PROJECT / "docs")
CHAPTERS = pages_of_chapters(PROJECT)
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def test_a_chapter_has_its_shape() -> None:
    assert [problem for page in CHAPTERS for problem in shape_problems(page, PAGES[page])] == []


def answers(page: str) -> list[tuple[str, str]]:
    """The headings above each guess of a figure, and the words that they must not contain."""
    lines, found = PAGES[page].splitlines(), []
    for fence in guesses(page, PAGES[page]):
        subject = subject_of(fence)
        if subject is None or subject.startswith(CLAIM):
            continue
        try:
            value = figure(subject, BOOK).value
        except (NotRecorded, NotTimed):
            continue
        is_count = isinstance(value, int) and not isinstance(value, bool) and value < len(NUMBERS)
        said = rf"\b(?:{NUMBERS[int(value)]}|{value})\b" if is_count else re.escape(str(value))
        headings = [line for line in lines[: fence.line] if re.match(r"#{2,3} ", line)]
        found += [(heading, said) for heading in headings[-1:]]
    return found


def test_no_heading_answers_the_guess_below_it() -> None:
    found = [(page, *answer) for page in CHAPTERS for answer in answers(page)]
    assert [f"{page}: {heading}" for page, heading, said in found if re.search(said, heading, re.IGNORECASE)] == []
