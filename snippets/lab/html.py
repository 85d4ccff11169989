"""The HTML that pages are made of. A cell is escaped unless it is `Html`: names in a trace are untrusted text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from snippets.lab.trace.text import shortened


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Cell = str | int | float | None


def cell_html(cell: Cell) -> str:
    """A cell's content: `Html` as it is, None as a dash, all else escaped."""
    if cell is None:
        return '<span class="none" title="none">–</span>'
    return cell if isinstance(cell, Html) else escape(str(cell))


def table(
    caption: str,
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    *,
    text_columns: int = 1,
    is_searched: bool = False,
) -> Html:
    """A table whose first `text_columns` columns are text and whose others are numbers, aligned right.

    It scrolls in a frame of its own, so that a wide table never makes a phone's page wide. The site's search leaves its
    numbers out, which every page would have to load, unless `is_searched`. Raises `ValueError` when a row has not as
    many cells as the head.
    """
    lines = [f"<tr>{_cells(head, 'th', len(head), text_columns)}</tr>"]
    body = [f"<tr>{_cells(row, 'td', len(head), text_columns)}</tr>" for row in rows]
    out = "" if is_searched else " data-search-exclude"
    frame = f'<div class="lab-table" role="region" tabindex="0" aria-label="{escape(caption)}"{out}><table>'
    return Html(
        f"{frame}<caption>{escape(caption)}</caption><thead>{''.join(lines)}</thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cells(cells: Sequence[Cell], tag: str, columns: int, text_columns: int) -> str:
    """A row's cells, a line each: a search that strips tags must not join them. An empty heading heads nothing."""
    if len(cells) != columns:
        raise ValueError(f"{len(cells)} cells in a table of {columns} columns: {cells!r}")
    lines = []
    for place, cell in enumerate(cells):
        kind = "" if place < text_columns else ' class="number"'
        heads = tag == "th" and cell != ""
        start, end = (f'<th scope="col"{kind}>', "</th>") if heads else (f"<td{kind}>", "</td>")
        lines.append(f"{start}{cell_html(cell)}{end}")
    return "\n".join(lines)


def code(text: str, width: int = 60) -> Html:
    """A name in code type, shortened in the middle to `width` characters; the whole of it on hover."""
    short = shortened(text, width)
    title = "" if short == text else f' title="{escape(text)}"'
    return Html(f"<code{title}>{escape(short)}</code>")


def bold(text: str, is_best: bool) -> str:
    """A cell, in bold for the best of a row."""
    return Html(f"<strong>{escape(text)}</strong>") if is_best else text


def details(summary: str, content: str) -> Html:
    """Content folded under a line."""
    return Html(f'<details class="lab-details"><summary>{escape(summary)}</summary>{content}</details>')
