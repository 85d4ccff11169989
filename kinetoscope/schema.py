"""The command `schema`: print the JSON Schema of what a command prints with --json.

The schema is generated from the types that write the documents, and its descriptions are the docstrings of their
fields: code, schema and documentation cannot differ.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from kinetoscope.compare.document import ComparisonDocument
from kinetoscope.doctor.checks import DoctorDocument
from kinetoscope.report.ranks_document import RanksDocument
from kinetoscope.report.trace_report import TraceReport
from kinetoscope.trace.documents import FIRST_KEYS, SCHEMA_VERSION
from kinetoscope.trace.summaries import SummaryDocument
from kinetoscope.trace.text import json_text

DESCRIPTION = """\
Print the JSON Schema (draft 2020-12) of what a command prints with --json. Keys are only added while schema_version
stays, so ignore keys that you do not know.

  %(prog)s report
  %(prog)s report > report.schema.json
"""
DOCUMENTS: Mapping[str, tuple[type[Struct], ...]] = {
    "report": (TraceReport, RanksDocument, ComparisonDocument),
    "summary": (SummaryDocument,),
    "diff": (ComparisonDocument,),
    "doctor": (DoctorDocument,),
}
"""Command -> the documents that it prints, told apart by their `kind`."""
KIND = "Kind of the document."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `schema`."""
    parser.add_argument("document", choices=DOCUMENTS, metavar="COMMAND", help=f"one of {', '.join(DOCUMENTS)}")


def command(arguments: argparse.Namespace) -> int:
    """Print the schema of a command's JSON."""
    print(json_text(schema(arguments.document)))
    return 0


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's documents, with the description of each key."""
    documents = DOCUMENTS[name]
    union: Any = documents[0]
    for each in documents[1:]:
        union = union | each
    (made,), definitions = msgspec.json.schema_components([union], ref_template="#/$defs/{name}")
    for each in types_of(*documents):
        described = definitions[each.__name__]
        described["description"] = _sentences(inspect.getdoc(each) or "")
        described["properties"] = _in_order(described["properties"])
        described["required"] = [*described["properties"]]  # no key is ever left out
        if "kind" in described["properties"] and each in documents:
            described["properties"]["kind"]["description"] = KIND
        for key, text in field_texts(each).items():
            if key in described["properties"]:
                described["properties"][key]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kinetoscope {name} --json, schema_version {SCHEMA_VERSION}",
        **made,
        "$defs": definitions,
    }


def _in_order(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Keys in the order in which a document has them."""
    return {key: properties[key] for key in (*FIRST_KEYS, *properties) if key in properties}


def types_of(*documents: type) -> Iterator[type]:
    """The documents and all types of rows in them, each once, before the types that it holds."""
    pending, seen = [*documents], set[type]()
    while pending:
        each = pending.pop(0)
        if each in seen:
            continue
        if isinstance(each, type) and (issubclass(each, Struct) or is_dataclass(each)):
            seen.add(each)
            yield each
            pending += [hint for key, hint in get_type_hints(each).items() if not key.startswith("__")]
        pending += get_args(each)


@cache
def field_texts(of: type) -> Mapping[str, str]:
    """Field -> the docstring below it, of a type and of those that it extends."""
    texts: dict[str, str] = {}
    for each in reversed(of.__mro__[:-1]):
        for field, below in pairwise(_body(each)):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _docstring(below)):
                texts[field.target.id] = text
    return texts


def _body(of: type) -> Sequence[ast.stmt]:
    """The statements of a class of this package; none where Python runs without its source."""
    if not of.__module__.startswith("kinetoscope."):
        return ()
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(of))).body
    except OSError:
        return ()
    return tree.body if isinstance(tree, ast.ClassDef) else ()


def _docstring(node: ast.stmt) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return _sentences(node.value.value) if is_text else ""  # type: ignore[attr-defined]


def _sentences(text: str) -> str:
    return " ".join(text.split())
