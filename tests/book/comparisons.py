"""Sentences of pages that compare without a number: no figure in them, and no result below their paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from snippets.lab.tools.page_text import Fence, fences, prose

COMPARATIVE = re.compile(
    r"""\b(?:
    (?:fast|slow|quick|long|short|cheap|small|high|low|great|narrow|few)(?:er|est) | (?:large|wide)(?:r|st)
    | (?:more|less|better|worse)\s+than | (?:more|less)\s+(?:time|memory|expensive|accurate)
    | most(?:ly)? | twice | half | (?:a|one|two|three|four)\s+(?:third|quarter|fifth|sixth|eighth|tenth|twentieth)s?
    | hardly | barely | scarcely | nearly | almost | a\s+few\s+percent
    | times\s+(?:as|the) | as\s+(?:fast|slow|long|much|many|little|large|small|cheap)\s+as | the\s+same\s+time
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
NO_COMPARISON = re.compile(
    r"\bno\s+longer\b|\bas\s+long\s+as\b(?=\s+(?:you|it|the|they|a)\b)|\bhigher\s+precision\b"
    r"|\b(?:upper|lower)\s+(?:one|ones|two|half|left|right)\b|\bin\s+more\s+than\b|\blower\s+(?=`)|\blower(?=\s{3})"
    r"|\ba\s+(?:\w+\s+)?(?:faster|slower|smaller|larger)\s+[CG]PU\b|\bwhich(?:ever)?(?:\s+\w+){0,2}\s+faster\b"
    r"|\bkeeps?\s+the\s+(?:fastest|faster|largest|smallest)\b",
    re.IGNORECASE,
)
NO_PARAGRAPH = re.compile(r"\s*(?:#|\||\?\?\?|!!!|===|---|description:)")
"""The begin of a heading, of a folded block's title, of a tab, of a table: they ask, or name."""
ADVICE = re.compile(r"\s*\*\*In your trace:\*\*")
"""The begin of a paragraph about the reader's trace: it claims nothing about a recording."""
SENTENCE_END = re.compile(r"[.!?][)\"'*]*\s+(?=\S)|\n(?=\s*(?:[-*]|\d+\.)\s)|\Z")

LINK_TARGET = re.compile(r"\]\([^)]*\)$")
"""At the end of a link to a heading: the heading may be a question."""


class Sentence(NamedTuple):
    """A sentence that compares, where it begins, and its comparing words."""

    line: int
    text: str
    words: tuple[str, ...]


def unbound_comparisons(page: str, text: str) -> list[Sentence]:
    """Comparing sentences that no number backs: see the head of this file. Questions may compare."""
    lines, masked = text.splitlines(), prose(page, text).splitlines()
    masked += [""] * (len(lines) - len(masked))
    found = list[Sentence]()
    for first, last, below in _paragraphs(page, text):
        if ADVICE.match(lines[first - 1]):
            continue
        if below is None or below.asks or not below.is_executed:
            found += _of_paragraph(first, "\n".join(lines[first - 1 : last]), "\n".join(masked[first - 1 : last]))
    return found


def _paragraphs(page: str, text: str) -> Iterator[tuple[int, int, Fence | None]]:
    """The first and last line of each paragraph or list, and the fence that directly follows it."""
    lines, all_fences = text.splitlines(), fences(page, text)
    starts = {fence.line: fence for fence in all_fences}
    fenced = {line for fence in all_fences for line in range(fence.line, fence.line + fence.body.count("\n") + 3)}
    number = 1
    while number <= len(lines):
        if number in fenced or not lines[number - 1].strip() or NO_PARAGRAPH.match(lines[number - 1]):
            number += 1
            continue
        first = number
        while number <= len(lines) and lines[number - 1].strip() and number not in fenced:
            number += 1
        below = number
        while below <= len(lines) and not lines[below - 1].strip():
            below += 1
        yield first, number - 1, starts.get(below)


def _of_paragraph(first: int, original: str, masked: str) -> Iterator[Sentence]:
    start = 0
    for end in (match.end() for match in SENTENCE_END.finditer(masked)):
        sentence, words = original[start:end], COMPARATIVE.findall(NO_COMPARISON.sub("", masked[start:end]))
        is_question = LINK_TARGET.sub("", sentence.rstrip()).rstrip(" \n*)\"'").endswith("?")
        if words and not is_question and "`#!" not in sentence:
            begin = start + len(sentence) - len(sentence.lstrip())
            yield Sentence(first + original[:begin].count("\n"), " ".join(sentence.split()), tuple(words))
        start = end
