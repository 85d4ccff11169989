"""Make text from a trace, which is untrusted, printable and short."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

_INVISIBLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\uffff]"
)
"""Control characters except the newline, marks of direction and lone surrogates: a name could hide or reorder the text
around it."""


_COMMAND = re.compile(r"^(\s*)::")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NUMBERS = re.compile(r"[0-9]+")


def without_address(name: str) -> str:
    """A function's name without its object's memory address, which differs between runs."""
    return _ADDRESS.sub("", name)


def without_numbers(name: str) -> str:
    """A name with `#` for each number: `iteration 7` -> `iteration #`."""
    return _NUMBERS.sub("#", name)


def shortened(text: str, width: int = 60) -> str:
    """The text with at most `width` characters, cut in the middle."""
    return text if len(text) <= width else f"{text[: width * 2 // 3]}…{text[-(width - width * 2 // 3 - 1) :]}"


def printable(name: str) -> str:
    """Escape control characters, direction marks and lone surrogates, since they could be terminal commands.

    In a log, GitHub reads a workflow command from `##[` anywhere in a line, and from `::` at its start: a space parts
    them.
    """
    text = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in name
    )
    return _COMMAND.sub(r"\1: :", text.replace("##[", "## ["))


def wrapped(text: str, columns: int, first: str = "", rest: str = "") -> Iterator[str]:
    """Printable lines of at most `columns` characters; `first` begins the first line, `rest` each of the others."""
    yield from map(printable, wrap(printable(text), columns, initial_indent=first, subsequent_indent=rest))


def json_text(data: object, indent: int = 2) -> str:
    """Data as indented JSON in ASCII, in which neither a terminal nor a log finds a command."""
    return in_logs(json.dumps(data, indent=indent))


def in_logs(text: str) -> str:
    """JSON in which a log finds no command."""
    return text.replace("##[", "#\\u0023[")


def visible(text: str) -> str:
    """Escape characters that would hide or reorder the text around them, in plain text or in HTML; newlines stay."""
    return _INVISIBLE.sub(lambda match: printable(match[0]), text)


def slow_steps(times: Sequence[float]) -> str:
    """`, most of it in 3 of 12 steps`, if over half of the time is in less than half of the steps; else empty."""
    mean = sum(times) / len(times)
    slow = [each for each in times if each > mean]
    if 2 * len(slow) >= len(times) or 2 * sum(slow) <= sum(times):
        return ""
    return f", most of it in {len(slow):,} of {len(times):,} steps"
