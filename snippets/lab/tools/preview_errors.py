"""The errors of a preview's build: pages and lines, then one traceback.

markdown-exec logs a traceback for each fence that raises, and one error in findings.py raises in all of them.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import dedent

from snippets.lab.tools.page_text import executed_fences, line_of

FRAMES = 8
"""Calls printed of a traceback: the author's code is among the last ones, earlier ones are the tools'."""
_LOGGED = re.compile(r"Execution of python code block.*?Code block is:\n\n(.*?)\n\nOutput is:\n\n(.*)", re.DOTALL)
HEAD = "Traceback (most recent call last):\n"
_CALL = re.compile(r"^(?=  File )", re.MULTILINE)
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
    """Shorten a traceback to its last calls; of a chain, to its last part."""
    _, mark, last = text.rpartition(HEAD)
    return mark + "".join(_CALL.split(last)[-FRAMES:])
