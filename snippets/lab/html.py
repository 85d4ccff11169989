"""The HTML that pages are made of. A cell is escaped unless it is `Html`: names in a trace are untrusted text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Cell = str | int | float | None


def cell_html(cell: Cell) -> str:
    """A cell's content: `Html` as it is, None as a dash, all else escaped."""
    if cell is None:
        return '<span class="none" title="none">–</span>'
    return cell if isinstance(cell, Html) else escape(str(cell))


def table(caption: str, head: Sequence[Cell], rows: Iterable[Sequence[Cell]], *, text_columns: int = 1) -> Html:
    """A table whose first `text_columns` columns are text and whose others are numbers, aligned right.

    It scrolls in a frame of its own, so that a wide table never makes a phone's page wide. Raises `ValueError` when
    a row has not as many cells as the head.
    """
    lines = [f"<tr>{_cells(head, 'th', len(head), text_columns)}</tr>"]
    body = [f"<tr>{_cells(row, 'td', len(head), text_columns)}</tr>" for row in rows]
    frame = f'<div class="lab-table" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
    return Html(
        f"{frame}<caption>{escape(caption)}</caption><thead>{''.join(lines)}</thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cells(cells: Sequence[Cell], tag: str, columns: int, text_columns: int) -> str:
    if len(cells) != columns:
        raise ValueError(f"{len(cells)} cells in a table of {columns} columns: {cells!r}")
    scope = ' scope="col"' if tag == "th" else ""
    classes = ("" if i < text_columns else ' class="number"' for i in range(columns))
    return "".join(f"<{tag}{scope}{kind}>{cell_html(cell)}</{tag}>" for cell, kind in zip(cells, classes, strict=True))


def code(text: str, most: int = 60) -> Html:
    """A name in code type, shortened in the middle to `most` characters; the whole of it on hover."""
    short = text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-(most - most * 2 // 3 - 1) :]}"
    title = "" if short == text else f' title="{escape(text)}"'
    return Html(f"<code{title}>{escape(short)}</code>")


def details(summary: str, content: str) -> Html:
    """Content folded under a line."""
    return Html(f'<details class="lab-details"><summary>{escape(summary)}</summary>{content}</details>')
