"""What the JSON documents of all commands share: their version, cut lists, answers that a file lacks, and their text.

A document is a Struct, so that its JSON Schema comes from the code that writes it. Within a version, keys are only
added; a key that is renamed, removed or changes its meaning raises `SCHEMA_VERSION`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from kinetoscope.trace.text import in_logs, shortened

SCHEMA_VERSION: Literal[1] = 1
Rows = int | Literal["all", "brief"]
"""Rows of each list: a number, or all, or as many as fit into `BRIEF_CHARACTERS`."""
BRIEF_ROWS, BRIEF_CHARACTERS = (10, 7, 5, 3, 2, 1), 11_000
"""A brief document has the first of these numbers of rows with which it has at most so many letters, which are 4,000
tokens: of 406 reports, the longest has 3,893 (o200k_base)."""
MIN_NESTED, MAX_NUMBERS, MAX_TEXT, MAX_NAME = 3, 16, 360, 160
"""Of a cut document: rows of a list inside a row, at least; numbers of a list; letters of a text, and of a name."""
FIRST_KEYS = ("kind", "schema_version", "file", "site", "headline", "findings", "cannot_tell")
"""Keys that come first in every document: a reader who stops early has read the answer."""


class Unanswered(Struct, frozen=True):
    """A question that the files cannot answer, so a fault may still be there."""

    rule: str
    """Name of the rule, or of another question: `findings`, `noise`, `stragglers` or `times-per-step`."""
    reason: str
    """What the files lack."""
    option: str
    """What to record, mostly an option of torch.profiler.profile; empty if no option records the missing data."""


class Cut(Struct, frozen=True):
    """A list of which a document has the first rows only."""

    key: str
    """Path of the list, such as `kernels` or `findings[0].events`."""
    rows: int
    """Number of rows in this document."""
    of: int
    """Number of rows of the whole list."""


def rows_argument(text: str) -> Rows:
    """The value of `--top`."""
    if text in ("all", "brief"):
        return cast(Rows, text)
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a positive number of rows, all or brief, not {text!r}")


def add_top(parser: argparse.ArgumentParser, default: Rows) -> None:
    """Add `--top N`, of a command that prints JSON."""
    parser.add_argument(
        "--top",
        type=rows_argument,
        default=default,
        metavar="N",
        help=f"with --json: rows of each list: a number, all, or brief, which is {BRIEF_ROWS[0]}, or as many as fit "
        f"into 4,000 tokens; `truncated` names what is cut (default: {default})",
    )


def document_data(document: Struct, rows: int | None = None) -> dict[str, Any]:
    """A document as JSON data, its lists cut to `rows`, or whole. The cuts are listed in `truncated`."""
    whole: dict[str, Any] = msgspec.to_builtins(document)
    data = {key: whole[key] for key in FIRST_KEYS if key in whole}
    data |= {key: value for key, value in whole.items() if key not in data and key != "truncated"}
    cuts: list[Cut] = []
    data = {key: _listed(value) if rows is None else _cut(value, key, rows, rows, cuts) for key, value in data.items()}
    return data | {"truncated": [msgspec.to_builtins(cut) for cut in cuts]}


def document_text(document: Struct, rows: Rows = "all") -> str:
    """A document as JSON in ASCII, a key a line and in a list of objects a row a line.

    So it can be read and compared by line and has little white space. Neither a terminal nor a log finds a command.
    """
    if rows != "brief":
        return _lines(document_data(document, None if rows == "all" else rows))
    texts = (_lines(document_data(document, fewer)) for fewer in BRIEF_ROWS)
    return next((text for text in texts if len(text) <= BRIEF_CHARACTERS), _lines(document_data(document, 1)))


def _lines(data: dict[str, Any]) -> str:
    return in_logs("{\n" + ",\n".join(f" {json.dumps(key)}: {_value(value)}" for key, value in data.items()) + "\n}")


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
    return json.dumps(value)


def _listed(value: Any) -> Any:
    """The value with lists in place of tuples, as JSON has them."""
    if isinstance(value, dict):
        return {name: _listed(each) for name, each in value.items()}
    return [*map(_listed, value)] if isinstance(value, tuple | list) else value


def _cut(value: Any, key: str, limit: int, rows: int, cuts: list[Cut]) -> Any:
    """The value with at most `limit` rows of its list, and fewer in the lists of each row."""
    nested = max(MIN_NESTED, rows // 3)
    if isinstance(value, str):
        return shortened(value, MAX_NAME if key.endswith(".name") else MAX_TEXT)
    if isinstance(value, dict):
        return {name: _cut(each, f"{key}.{name}", nested, rows, cuts) for name, each in value.items()}
    if not isinstance(value, tuple | list):
        return value
    if value and isinstance(value[0], int | float):
        limit = max(limit, MAX_NUMBERS)
    if len(value) > limit:
        cuts.append(Cut(key, limit, len(value)))
    return [_cut(each, f"{key}[{index}]", nested, rows, cuts) for index, each in enumerate(value[:limit])]
