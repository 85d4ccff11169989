"""The tree *What do you see?* as one sheet of paper: an SVG of A4, landscape, that needs no style sheet and no font."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape

from kinetoscope.diagnosis.symptoms import ROOT, TREE, Branch, Symptom

WIDTH, HEIGHT = 1123, 794
"""A4 at 96 units per inch."""
_MARGIN, _GUTTER, _TOP = 38, 20, 106
_COLUMN = (WIDTH - 2 * _MARGIN - 2 * _GUTTER) / 3
_LINE, _LETTER = 12.6, 5.8
"""Of text of 11 units: height of a line, and the width of a letter in a wide font."""
_FIRST_ROW, _LAST_ROW, _APART, _PADDING = _TOP + 48, HEIGHT - 30, 8, 12
"""The top of the first leaves, the bottom of the last, the space between leaves, and the space within."""
_FIRST_LINE, _SPACE, _END = 37, 4, 8
"""Where the first line of a leaf is, the space between its paragraphs, and the space below its last line."""
_CODE = re.compile("`")
_REPORT = "kinetoscope report trace.json.gz runs these rules on a trace of yours."


def sheet_svg(title: str, title_of: Callable[[str], str]) -> str:
    """The whole sheet, whose links are relative to the site's root.

    Args:
        title: the name of the book.
        title_of: the heading of a section, as plain text.

    Raises `ValueError` if the text of a leaf does not fit.
    """
    columns = "".join(_column(index, branch, title_of) for index, branch in enumerate(TREE))
    middle, bar = WIDTH / 2, 86
    ends = [_left(index) + _COLUMN / 2 for index in range(len(TREE))]
    stems = "".join(f'<path d="M{x:g} {bar}V{_TOP}"/>' for x in ends)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="297mm" height="210mm" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#21252b">'
        f"<title>What do you see? From what a trace shows to what to do</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f'<text x="{_MARGIN}" y="44" font-size="23" font-weight="700">What do you see?</text>'
        f'<text x="{WIDTH - _MARGIN}" y="44" text-anchor="end" fill="#5a5f66">{escape(title)}</text>'
        f'<text x="{middle:g}" y="66" text-anchor="middle" font-size="14" font-weight="700">{escape(ROOT)}</text>'
        f'<g fill="none" stroke="#5d6776"><path d="M{middle:g} 73V{bar}M{ends[0]:g} {bar}H{ends[-1]:g}"/>{stems}</g>'
        f'{columns}<text x="{_MARGIN}" y="{HEIGHT - 12}" fill="#5a5f66">{escape(_REPORT)}</text></svg>\n'
    )


def _left(index: int) -> float:
    return _MARGIN + index * (_COLUMN + _GUTTER)


def _column(index: int, branch: Branch, title_of: Callable[[str], str]) -> str:
    x = _left(index)
    middle = x + _COLUMN / 2
    cards = "".join(_cards(x, branch, title_of))
    return (
        f'<g><text x="{middle:g}" y="{_TOP + 17}" text-anchor="middle" font-size="15" font-weight="700">'
        f"{escape(branch.title)}</text>"
        f'<text x="{middle:g}" y="{_TOP + 36}" text-anchor="middle" font-size="12">{escape(branch.question)}</text>'
        f"{cards}</g>"
    )


def _cards(x: float, branch: Branch, title_of: Callable[[str], str]) -> Iterator[str]:
    """The leaves of a branch, with the spare height of the column shared among them."""
    texts = {symptom: _paragraphs(symptom, title_of) for symptom in branch.symptoms}
    spare = _LAST_ROW - _FIRST_ROW - _APART * (len(texts) - 1) - sum(map(_height, texts.values()))
    if spare < 0:
        longest = max(texts, key=lambda symptom: _height(texts[symptom]))
        lines = sum(map(len, texts[longest]))
        raise ValueError(f"the sheet has no room for {lines} lines of {longest.name}")
    y = float(_FIRST_ROW)
    for symptom, paragraphs in texts.items():
        height = _height(paragraphs) + spare / len(texts)
        yield _card(x, y, height, symptom, paragraphs)
        y += height + _APART


def _paragraphs(symptom: Symptom, title_of: Callable[[str], str]) -> list[list[tuple[str, str]]]:
    """The lines of a leaf below its title."""
    texts = [(symptom.look_for, 0), (f"Do: {symptom.do}", 3)]
    texts.append((f"→ {symptom.section.partition('/')[0]}: {title_of(symptom.section)}", 0))
    if symptom.rules:
        texts.append((f"Rules: {', '.join(symptom.rules)}", 0))
    return [list(_lines(text, bold)) for text, bold in texts]


def _height(paragraphs: Sequence[Sequence[tuple[str, str]]]) -> float:
    """The least height of a leaf."""
    return _FIRST_LINE + (sum(map(len, paragraphs)) - 1) * _LINE + (len(paragraphs) - 1) * _SPACE + _END


def _card(x: float, y: float, height: float, symptom: Symptom, paragraphs: Sequence[Sequence[tuple[str, str]]]) -> str:
    at = float(_FIRST_LINE)
    texts = []
    for paragraph in paragraphs:
        for bold, text in paragraph:
            texts.append(f'<text x="{x + _PADDING:g}" y="{y + at:g}">{_bold(bold)}{escape(text, quote=False)}</text>')
            at += _LINE
        at += _SPACE
    return (
        f'<a href="{escape(symptom.section)}"><rect x="{x:g}" y="{y:g}" width="{_COLUMN:g}" '
        f'height="{height:g}" rx="6" fill="#fff" stroke="#9aa3b0"/>'
        f'<text x="{x + _PADDING:g}" y="{y + 20:g}" font-size="13" font-weight="700">{escape(symptom.title)}</text>'
        f"{''.join(texts)}</a>"
    )


def _bold(text: str) -> str:
    return f'<tspan font-weight="700">{escape(text, quote=False)}</tspan>' if text else ""


def _lines(text: str, bold: int = 0) -> Iterator[tuple[str, str]]:
    """Lines that fit into a leaf: (bold start, rest). `bold` is the number of bold letters of the first line."""
    most = int((_COLUMN - 2 * _PADDING) / _LETTER)
    line = ""
    for word in _CODE.sub("", text).split():
        if line and len(line) + 1 + len(word) > most:
            yield line[:bold], line[bold:]
            line, bold = word, 0
        else:
            line = f"{line} {word}" if line else word
    yield line[:bold], line[bold:]
