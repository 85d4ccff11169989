"""Drawings of charts, read back: what is written in them, and where what is drawn stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from snippets.lab.drawing.svg import LETTER

# KEEP svg


def drawing(shown: str) -> Element:
    """The one drawing of a chart."""
    found = re.findall(r"<svg .*?</svg>", shown, re.DOTALL)
    assert len(found) == 1
    return ElementTree.fromstring(found[0])


def texts(shown: str) -> list[str]:
    """What is written in the drawing, in the order in which it is drawn."""
    return ["".join(element.itertext()) for element in drawing(shown).iter("text")]


def said(shown: str) -> str:
    """What the drawing says of itself to who cannot see it."""
    found = drawing(shown).find("desc")
    assert found is not None
    return found.text or ""


def boxes(shown: str) -> list[tuple[float, float, float, float]]:
    """Left, top, width and height of each filled rectangle but those behind words, as drawn."""
    found = []
    for path in drawing(shown).iter("path"):
        corners = re.fullmatch(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4z", path.get("d", ""))
        if corners and "fill:var(--md-default-bg-color)" not in path.get("style", ""):
            left, one, right, other = map(float, corners.groups())
            found.append((left, min(one, other), round(right - left, 1), round(abs(one - other), 1)))
    return found


def words(shown: str) -> Iterator[tuple[str, float, float, float]]:
    """What is written, from where to where it reaches if letters are as wide as fonts have them, and its height."""
    styles = {element: group.get("style", "") for group in drawing(shown).iter() for element in group}
    for element, of_group in styles.items():
        if element.tag == "text":
            text = "".join(element.itertext())
            length = len(text) * LETTER
            anchor = re.search(r"text-anchor:(\w+)", element.get("style", "") + of_group)
            before = {"middle": length / 2, "end": length}.get(anchor[1], 0) if anchor else 0
            left = float(element.get("x", "")) - before
            yield text, left, left + length, float(element.get("y", ""))
