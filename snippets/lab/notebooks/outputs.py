"""Outputs of notebooks: text, and HTML exactly as a sanitizer writes it, which a page can show unchanged."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from typing import Annotated, Any, Literal

import msgspec
import nh3

from kinetoscope.cells import FRAMES_REM

LIMIT_BYTES = 200_000
TAGS = {"br", "caption", "code", "details", "div", "p", "small", "span", "strong", "summary"}
TAGS |= {"table", "tbody", "td", "th", "thead", "tr"}
ATTRIBUTES = {"aria-label", "class", "data-head", "data-search-exclude", "role", "scope", "tabindex", "title"}
VALUES = {
    "class": {"lab-details", "lab-note", "lab-table", "none", "number", "wide", "words"}
    | {f"needs-{width}" for width in FRAMES_REM},
    "role": {"region"},
    "scope": {"col"},
    "tabindex": {"0"},
}
"""All values that these attributes may have; the theme's classes could cover a page."""

_Text = str | list[str]
_Word = Annotated[str, msgspec.Meta(pattern=r"^[\w .()/+-]{0,60}\Z")]
_Empty = Annotated[dict[str, str], msgspec.Meta(max_length=0)]


class _Data(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One value, as text and as HTML."""

    text: _Text = msgspec.field(name="text/plain")
    html: _Text = msgspec.field(name="text/html", default="")


class _Printed(msgspec.Struct, tag_field="output_type", tag="stream", forbid_unknown_fields=True):
    """Standard output."""

    name: Literal["stdout"]
    text: _Text


class _Value(msgspec.Struct, tag_field="output_type", tag="execute_result", forbid_unknown_fields=True):
    """The value of a cell's last expression."""

    data: _Data
    metadata: _Empty
    execution_count: int | None


class _Cell(msgspec.Struct, forbid_unknown_fields=True):
    """The allowed fields of a cell: the converter to HTML copies its id and its metadata into the page unchanged."""

    cell_type: str
    source: list[str]
    metadata: _Empty
    id: Annotated[str, msgspec.Meta(pattern=r"^[\w-]{1,64}\Z")]
    outputs: list[_Printed | _Value] = []
    execution_count: int | None = None


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    """The allowed fields of a notebook's metadata."""

    kernelspec: dict[str, _Word] = {}
    language_info: dict[str, _Word | dict[str, _Word | int]] = {}
    recording: Any = None


class OutputError(ValueError):
    """A page cannot show an output; the message names the cause."""


def is_allowed(attribute: str, value: str) -> bool:
    """Whether this attribute may have this value."""
    return attribute not in VALUES or set(value.split()) <= VALUES[attribute]


def clean_html(html: str) -> str:
    """HTML with only the allowed tags and attributes, in the sanitizer's spelling."""
    return nh3.clean(
        html,
        tags=TAGS,
        attributes={"*": ATTRIBUTES},
        attribute_filter=lambda tag, name, value: value if is_allowed(name, value) else None,
        url_schemes=set(),
        link_rel=None,
    )


def clean_outputs(outputs: object) -> list[dict[str, Any]]:
    """The outputs of a cell with their HTML in the sanitizer's spelling.

    Raises `OutputError` for an output that is not text or HTML, and for HTML that loses content in the sanitizer.
    """
    try:
        typed = msgspec.convert(outputs, list[_Printed | _Value])
    except (msgspec.ValidationError, RecursionError) as error:
        raise OutputError(f"an output is not text or HTML: {error}") from error
    for output in typed:
        if isinstance(output, _Value) and output.data.html:
            html = "".join(output.data.html)
            output.data.html = clean_html(html)
            if _spelled_alike(html) != _spelled_alike(output.data.html):
                raise OutputError(f"an output has disallowed HTML: {_lost(html, output.data.html)}")
    return [msgspec.to_builtins(output) for output in typed]


def _spelled_alike(html: str) -> str:
    """HTML without differences that are only the sanitizer's spelling; tags and attributes stay."""
    return unescape(html).replace('=""', "")


def _lost(html: str, cleaned: str) -> str:
    """The place of content that the sanitizer removed."""
    before, after = _spelled_alike(html), _spelled_alike(cleaned)
    same = next((place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(after))
    return ascii(before[max(0, before.rfind("<", 0, same + 1)) :][:60])


def output_problems(content: dict[str, Any]) -> Iterator[str]:
    """Problems with the outputs of a notebook: not text or sanitized HTML, two tables of one name, or too large."""
    try:
        for cell in content["cells"]:
            if any(map(_is_other_html, cell.get("outputs", []), clean_outputs(cell.get("outputs", [])))):
                yield "an output has HTML that is not written as the sanitizer writes it"
        msgspec.convert(content["cells"], list[_Cell])
        msgspec.convert(content["metadata"], _Metadata)
        msgspec.convert(content.get("nbformat_minor"), int)
        written = dumped(content)
    except OutputError as error:
        yield str(error)
        return
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        yield f"it has more than cells and outputs: {error}"
        return
    names = Counter(re.findall(r'aria-label=\\"([^"]*)\\"', written.decode()))
    yield from (
        f"two tables have the same name, so a screen reader cannot distinguish them: {name}"
        for name in names
        if names[name] > 1
    )
    if len(written) > LIMIT_BYTES:
        yield f"{len(written):,} bytes; at most {LIMIT_BYTES:,}: show less, or profile a smaller step"


def _is_other_html(output: dict[str, Any], cleaned: dict[str, Any]) -> bool:
    html, clean = ("".join(one.get("data", {}).get("text/html", "")) for one in (output, cleaned))
    return html != clean


def without_outputs(content: dict[str, Any], run_info: object) -> dict[str, Any]:
    """The cells of a notebook, without their outputs and all other content."""
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate(content["cells"]):
        is_code = cell["cell_type"] == "code"
        empty: dict[str, Any] = {"execution_count": None, "outputs": []} if is_code else {}
        own = {"cell_type": cell["cell_type"], "id": f"cell-{number}", "metadata": {}, "source": cell["source"]}
        cells.append(own | empty)
    return {"cells": cells, "metadata": {"recording": run_info} if run_info else {}, "nbformat": 4, "nbformat_minor": 5}


def dumped(content: dict[str, Any]) -> bytes:
    """A notebook in Jupyter's format."""
    return (json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
