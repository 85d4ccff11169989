"""Table cells, and an estimate of the frame width that they need, from which the style sheet chooses a layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape, unescape


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


Cell = str | int | float | None
PHONE_REM, CONTENT_REM = 16, 34
"""Frames: on a phone, and beside the contents of a page."""
FRAMES_REM = (*range(18, 48, 2), 50, 56, 64, 80)
"""Widths of frames that docs/assets/css/frames.css knows."""
_PADDING_REM, _LETTER_REM = 0.95, 0.36
"""Of a cell, left and right together; of an average letter in a wide font."""
_NAMES_REM = 9.0
"""Least width of text with code or small type in it: book.css."""
_LINE = 20
"""Letters in a line of text that wraps."""
_WORDY = 30
"""Letters from which a line among numbers is text."""
_BREAK = re.compile(r'<(?:br|p|dt|dd|div|details|span class="(?:after|shares)")\b[^>]*>|</small>')
_HIDDEN = re.compile(r"<span popover.*?</span></span>|<details.*?</details>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def cell_html(cell: Cell) -> str:
    """A cell's content: `Html` unchanged, None as a dash, everything else escaped."""
    if cell is None:
        return '<span class="none" title="none">–</span>'
    return cell if isinstance(cell, Html) else escape(str(cell))


def plain_text(cell: Cell) -> str:
    """A cell's visible text, line by line, without folded and hover content."""
    seen = _BREAK.sub("\n", _HIDDEN.sub("", cell_html(cell)).replace("<small", "\n<small"))
    return "\n".join(filter(None, unescape(_TAG.sub("", seen)).split("\n")))


def is_wordy(cell: Cell) -> bool:
    """Whether a cell in a number column has a line so long that it must wrap."""
    return any(len(line) >= _WORDY for line in plain_text(cell).split("\n"))


def frame_class(columns: Iterable[Sequence[Cell]], text_columns: int) -> str:
    """The classes of a table's frame, by an estimate of its width: empty if it fits everywhere.

    `columns` are the cells of each column, its heading first.
    """
    widths = [_column_rem(cells, index < text_columns) for index, cells in enumerate(columns)]
    needed = sum(widths)
    if needed <= PHONE_REM or len(widths) < 3:  # two columns have nothing to gain
        return ""
    bucket = next((width for width in FRAMES_REM if width >= needed), FRAMES_REM[-1])
    return f" needs-{bucket}" + (" wide" if bucket > CONTENT_REM else "")


def _column_rem(cells: Sequence[Cell], is_text: bool) -> float:
    """The width of a column in rem. Numbers need their longest line; headings and text wrap between words."""
    heading, *rest = cells
    letters = 1.1 * _longest_word(plain_text(heading))  # bold
    least = 0.0
    for cell in rest:
        for line in plain_text(cell).split("\n"):
            wraps = is_text or len(line) >= _WORDY
            letters = max(letters, min(len(line), _LINE) if wraps else len(line))
        if is_text and ("<code" in cell_html(cell) or "<small" in cell_html(cell)):
            least = _NAMES_REM
    return max(letters * _LETTER_REM + _PADDING_REM, least)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)
