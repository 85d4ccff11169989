"""HTML building blocks of pages. Cells are escaped unless they are `Html`: names in a trace are untrusted text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from kinetoscope.cells import Cell as Cell, Html as Html, cell_html as cell_html, frame_class, is_wordy, plain_text
from kinetoscope.trace.text import shortened

_CODE = re.compile(r"`([^`\n]{1,200})`")


@dataclass(frozen=True)
class Part:
    """A section of a report."""

    heading: str
    """Plain text."""
    html: Html


def table(
    caption: str,
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    *,
    text_columns: int = 1,
    is_searched: bool = False,
    folded: Collection[str] = (),
    has_own_layout: bool = False,
    scrolls: bool = False,
) -> Html:
    """A table: the first `text_columns` columns are text, the others numbers, aligned right.

    Its class is the frame width that it needs (tables.css): in a narrower frame each row becomes a card, with the
    headings before its cells, unless the table `scrolls` there. The cells below the headings in `folded` move into a
    fold of the row's first cell, except cells that are None. Unless `is_searched`, the search index omits its numbers.
    Raises `ValueError` if a row has more or fewer cells than the head.
    """
    lines = list(rows)
    for row in lines:
        if len(row) != len(head):
            raise ValueError(f"{len(row)} cells in a table of {len(head)} columns: {row!r}")
    shown = [index for index, heading in enumerate(head) if heading not in folded]
    cells = [[_with_fold(head, row, folded) if index == 0 else row[index] for index in shown] for row in lines]
    headings = [head[index] for index in shown]
    texts = sum(index < text_columns for index in shown)
    columns = [[head[index], *(row[index] for row in lines)] for index in shown]
    is_card = not (has_own_layout or scrolls)
    needs = frame_class(columns, texts) if is_card else " wide" * scrolls
    out = "" if is_searched else " data-search-exclude"
    body = "".join(f"<tr>{_row(row, headings if needs and is_card else (), texts)}</tr>" for row in cells)
    return Html(
        f'<div class="lab-table{needs}" role="region" tabindex="0" aria-label="{escape(caption)}"{out}><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{_head(headings, texts)}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _head(headings: Sequence[Cell], text_columns: int) -> str:
    """The heading cells, one per line, because a search that strips tags must not join them. An empty heading is a
    <td>."""
    lines = []
    for index, heading in enumerate(headings):
        kind = "" if index < text_columns else ' class="number"'
        lines.append(f'<th scope="col"{kind}>{cell_html(heading)}</th>' if heading != "" else f"<td{kind}></td>")
    return "\n".join(lines)


def _row(cells: Sequence[Cell], headings: Sequence[Cell], text_columns: int) -> str:
    """A row's cells, one per line. If the table may become cards, each cell carries its heading for the style sheet."""
    lines = []
    for index, cell in enumerate(cells):
        kind = "" if index < text_columns else f' class="number{" words" if is_wordy(cell) else ""}"'
        heading = plain_text(headings[index]) if index and headings else ""
        told = f' data-head="{escape(heading)}"' if heading else ""
        lines.append(f"<td{kind}{told}>{cell_html(cell)}</td>")
    return "\n".join(lines)


def _with_fold(head: Sequence[Cell], row: Sequence[Cell], folded: Collection[str]) -> Cell:
    """A row's first cell, and below it the cells in its fold."""
    pairs = [(name, cell) for name, cell in zip(head, row, strict=True) if name in folded and cell is not None]
    if not pairs:
        return row[0]
    listed = "".join(f"<dt>{cell_html(name)}</dt><dd>{cell_html(cell)}</dd>" for name, cell in pairs)
    fold = f'<details class="row-fold"><summary>more of it</summary><dl>{listed}</dl></details>'
    return Html(f"{cell_html(row[0])}{fold}")


def code(text: str, width: int = 60) -> Html:
    """A name in code type, shortened in the middle to `width` characters; the full name on hover."""
    short = shortened(text, width)
    title = "" if short == text else f' title="{escape(text)}"'
    return Html(f"<code{title}>{escape(short)}</code>")


def with_code(text: str) -> Html:
    """Text as HTML, with text in backticks as code."""
    return Html(_CODE.sub(r"<code>\1</code>", escape(text)))


def bold(text: str, is_best: bool) -> str:
    """A cell, bold if it is the best of its row."""
    return Html(f"<strong>{escape(text)}</strong>") if is_best else text


def note(text: str) -> Html:
    """A line below a table or a chart that explains its numbers; empty for an empty text."""
    return Html(f'<p class="lab-note" data-search-exclude>{escape(text)}</p>' if text else "")


def details(summary: str, content: str) -> Html:
    """Content folded under a summary line."""
    return Html(f'<details class="lab-details"><summary>{escape(summary)}</summary>{content}</details>')


def hold_back(content: str, about: str = "") -> Html:
    """Content that a page shows later: plain text in the page until a script puts it in place.

    Without scripts a browser shows it immediately. Content held back inside of it is no longer held back, since a
    `<noscript>` ends at the first end tag. A build moves it into a file next to the page, under the heading `about`.
    """
    whole = content.replace("<noscript>", "").replace("</noscript>", "")
    plain = escape(re.sub(r"--+", "-", about))
    return Html(f"<noscript>{f'<!-- {plain} -->' if plain else ''}{whole}</noscript>")
