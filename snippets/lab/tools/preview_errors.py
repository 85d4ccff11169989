"""The errors of a preview's build: pages and lines, then one traceback.

markdown-exec logs a traceback for each fence that raises, and one error in findings.py raises in all of them.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from textwrap import dedent

from snippets.lab.tools.page_text import executed_fences, line_of

FRAMES = 3
"""Calls printed of a traceback: the last ones are in the author's code, earlier ones in the tools."""
_LOGGED = re.compile(r"Execution of python code block.*?Code block is:\n\n(.*?)\n\nOutput is:\n\n(.*)", re.DOTALL)
HEAD = "Traceback (most recent call last):\n"
_FRAME = re.compile(r"^  File ", re.MULTILINE)
_END = re.compile(r"^\S", re.MULTILINE)
_TOOLS = re.compile(r'  File "(?:<frozen |<string>|[^"]*/(?:site-packages|python3\.\d+|snippets/lab|kinetoscope)/)')
_INLINE = re.compile(r"#!(?:fig|src) [^\s:]+")


@dataclass(frozen=True)
class FenceError:
    """A fence that raised."""

    code: str
    traceback: str

    @property
    def cause(self) -> str:
        """The last line of its traceback, `KeyError: 'x'`, above its notes, which are indented."""
        return next((line for line in reversed(self.traceback.splitlines()) if line[:1].strip()), "")


class FenceErrors(logging.Filter):
    """Removes the errors of fences from a log and collects them."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[FenceError] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Collect the error of a fence; return whether to print the record."""
        match = _LOGGED.search(record.getMessage())
        if match is not None:
            self.errors.append(FenceError(dedent(match[1]).strip(), dedent(match[2]).strip()))
        return match is None

    def report(self, pages: Mapping[str, str]) -> str:
        """The places of all errors by cause, then the traceback of the last cause; empty without errors."""
        places: dict[str, list[str]] = {}
        for error in self.errors:
            places.setdefault(error.cause, []).append(place_of_fence(error.code, pages))
        if not places:
            return ""
        *others, last = places
        lines = [f"error in {_listed(places[cause])}: {cause}" for cause in others]
        example = next(error for error in self.errors if error.cause == last)
        return "\n".join([*lines, f"error in {_listed(places[last])}", shorten(example.traceback)])


def _listed(places: list[str]) -> str:
    more = len(places) - 1
    return places[0] + (f" and in {more} more fence{'s' * (more > 1)}" if more else "")


def place_of_fence(code: str, pages: Mapping[str, str]) -> str:
    """Page and line of the executed fence with this code: `docs/mlp.md:34`."""
    for page, text in pages.items():
        for fence in executed_fences(page, text):
            if fence.body.strip() == code:
                return fence.place
    return "a fence"


def place_of_error(error: BaseException, pages: Mapping[str, str]) -> str:
    """Page and line of the inline figure that an error or one of its causes names; empty if none does."""
    for cause in chain_of(error):
        match = _INLINE.search(str(cause))
        for page, text in pages.items() if match else ():
            if match and (position := text.find(match[0])) >= 0:
                return f"docs/{page}:{line_of(text, position)}"
    return ""


def describe_error(error: BaseException, pages: Mapping[str, str]) -> str:
    """The page and line of an error that stopped a build, and its traceback."""
    place = place_of_error(error, pages)
    *_, root = chain_of(error)
    lines = shorten("".join(traceback.format_exception(root, chain=False)).rstrip())
    return f"error in {place}\n{lines}" if place else lines


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, the root cause last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def shorten(text: str) -> str:
    """Shorten a traceback to the last calls outside the tools and the one that raised; of a chain, to its last part.

    The author's error is in these calls: in a chapter, in a fence, or in a test.
    """
    if HEAD not in text:
        return text
    last = text.rpartition(HEAD)[2]
    starts = [match.start() for match in _FRAME.finditer(last)]
    if not starts:
        return HEAD + last
    end = _END.search(last, starts[-1])
    bounds = [*starts, end.start() if end else len(last)]
    calls = [last[start:stop] for start, stop in pairwise(bounds)]
    own = [index for index, call in enumerate(calls[:-1]) if not _TOOLS.match(call)]
    kept = own[-(FRAMES - 1) :]
    if not kept and _TOOLS.match(calls[-1]):
        kept = list(range(len(calls) - 1))[-(FRAMES - 1) :]
    return HEAD + "".join(calls[index] for index in [*kept, len(calls) - 1]) + last[bounds[-1] :]
