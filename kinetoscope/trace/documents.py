"""What the JSON documents of all commands share: their version, cut lists, answers that a file lacks, and their text.

A document is a Struct, so that its JSON Schema comes from the code that writes it. Within a version, keys are only
added; a key that is renamed, removed or changes its meaning raises `SCHEMA_VERSION`.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kinetoscope.trace.text import in_logs, shortened

SCHEMA_VERSION: Literal[1] = 1
BRIEF_ROWS = 10
"""Rows of a list in a report, unless asked for more."""
MIN_NESTED, MAX_NUMBERS, MAX_TEXT = 3, 16, 360
"""Of a cut document: rows of a list inside a row, at least; numbers of a list; letters of a text."""
_FIRST = ("kind", "schema_version", "file", "site", "headline", "findings", "cannot_tell")
"""Keys that come first in every document: a reader who stops early has read the answer."""


class Unanswered(Struct, frozen=True):
    """A question that the files cannot answer. It is no clean bill: the fault may be there."""

    rule: str
    """Name of the rule, or what is asked: `findings`, `noise`, `stragglers`, `times-per-step`."""
    reason: str
    """What the files lack."""
    option: str
    """What to record: mostly an option of torch.profiler.profile; empty if nothing records it."""


class Cut(Struct, frozen=True):
    """A list of which a document has the first rows only."""

    key: str
    """Path of the list: `kernels`, `findings[0].events`."""
    rows: int
    """Rows in the document."""
    of: int
    """Rows without the cut."""


def rows_argument(text: str) -> int | None:
    """The value of `--top`: a number of rows, or None for `all`."""
    if text == "all":
        return None
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a positive number of rows, or all, not {text!r}")


def add_top(parser: argparse.ArgumentParser, default: int | None) -> None:
    """Add `--top N`, of a command that prints JSON."""
    usual = "all" if default is None else str(default)
    parser.add_argument(
        "--top",
        type=rows_argument,
        default=default,
        metavar="N",
        help=f"with --json: rows of each list, or all; `truncated` names what is cut (default {usual})",
    )


def document_data(document: Struct, rows: int | None = None) -> dict[str, Any]:
    """A document as JSON data, its lists cut to `rows`; None: whole. The cuts are listed in `truncated`."""
    whole: dict[str, Any] = msgspec.to_builtins(document)
    data = {key: whole[key] for key in _FIRST if key in whole}
    data |= {key: value for key, value in whole.items() if key not in data and key != "truncated"}
    cuts: list[Cut] = []
    data = {key: _listed(value) if rows is None else _cut(value, key, rows, rows, cuts) for key, value in data.items()}
    return data | {"truncated": [msgspec.to_builtins(cut) for cut in cuts]}


def document_text(document: Struct, rows: int | None = None) -> str:
    """A document as JSON in ASCII, a key a line and in a list of objects a row a line.

    So it can be read and compared by line and has little white space. Neither a terminal nor a log finds a command.
    """
    return json_lines(document_data(document, rows))


def json_lines(data: dict[str, Any]) -> str:
    """The lines of `document_text`."""
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
        return shortened(value, MAX_TEXT)
    if isinstance(value, dict):
        return {name: _cut(each, f"{key}.{name}", nested, rows, cuts) for name, each in value.items()}
    if not isinstance(value, tuple | list):
        return value
    if value and isinstance(value[0], int | float):
        limit = max(limit, MAX_NUMBERS)
    if len(value) > limit:
        cuts.append(Cut(key, limit, len(value)))
    return [_cut(each, f"{key}[{index}]", nested, rows, cuts) for index, each in enumerate(value[:limit])]
