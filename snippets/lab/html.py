"""HTML building blocks of pages. Cells are escaped unless they are `Html`: names in a trace are untrusted text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from snippets.lab.trace.text import shortened


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


Cell = str | int | float | None
_CODE = re.compile(r"`([^`\n]{1,200})`")


def cell_html(cell: Cell) -> str:
    """A cell's content: `Html` unchanged, None as a dash, everything else escaped."""
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
    """A table: the first `text_columns` columns are text, the others numbers, aligned right.

    It scrolls in its own frame, so that a wide table does not widen the page on a phone. Unless `is_searched`, the
    search index, which every page loads, omits its numbers. Raises `ValueError` if a row has more or fewer cells than
    the head.
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
    """A row's cells, one per line: a search that strips tags must not join them. An empty heading becomes a <td>."""
    if len(cells) != columns:
        raise ValueError(f"{len(cells)} cells in a table of {columns} columns: {cells!r}")
    lines = []
    for index, cell in enumerate(cells):
        kind = "" if index < text_columns else ' class="number"'
        heads = tag == "th" and cell != ""
        start, end = (f'<th scope="col"{kind}>', "</th>") if heads else (f"<td{kind}>", "</td>")
        lines.append(f"{start}{cell_html(cell)}{end}")
    return "\n".join(lines)


def code(text: str, width: int = 60) -> Html:
    """A name in code type, shortened in the middle to `width` characters; the full name on hover."""
    short = shortened(text, width)
    title = "" if short == text else f' title="{escape(text)}"'
    return Html(f"<code{title}>{escape(short)}</code>")


def with_code(text: str) -> Html:
    """Text as HTML in which what stands in backticks is code."""
    return Html(_CODE.sub(r"<code>\1</code>", escape(text)))


def bold(text: str, is_best: bool) -> str:
    """A cell, bold if it is the best of its row."""
    return Html(f"<strong>{escape(text)}</strong>") if is_best else text


def note(text: str) -> Html:
    """A line below a table or a chart that explains its numbers; nothing for an empty text."""
    return Html(f'<p class="lab-note" data-search-exclude>{escape(text)}</p>' if text else "")


def details(summary: str, content: str) -> Html:
    """Content folded under a summary line."""
    return Html(f'<details class="lab-details"><summary>{escape(summary)}</summary>{content}</details>')


def hold_back(content: str) -> Html:
    """Content that a page shows later: where scripts run, plain text in the page until one of them puts it in place.

    Without scripts a browser shows it right away. What was held back inside of it no longer is, since a `<noscript>`
    ends at the first end tag.
    """
    whole = content.replace("<noscript>", "").replace("</noscript>", "")
    return Html(f"<noscript>{whole}</noscript>")
