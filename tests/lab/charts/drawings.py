"""Drawings of charts, read back: their text, their description, and where each box and word is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from snippets.lab.charts.svg import LETTER


def drawing(content: str) -> Element:
    """The only drawing of a chart."""
    (svg,) = re.findall(r"<svg .*?</svg>", content, re.DOTALL)
    return ElementTree.fromstring(svg)


def texts(content: str) -> list[str]:
    """The texts of the drawing, in drawing order."""
    return ["".join(element.itertext()) for element in drawing(content).iter("text")]


def description(content: str) -> str:
    """The drawing's text for a screen reader."""
    element = drawing(content).find("desc")
    assert element is not None
    return element.text or ""


def boxes(content: str) -> list[tuple[float, float, float, float]]:
    """Left, top, width and height of each filled rectangle but those behind words, as drawn."""
    boxes = []
    for path in drawing(content).iter("path"):
        corners = re.fullmatch(r"M(\S+) (\S+)L(\S+) \2L\3 (\S+)L\1 \4z", path.get("d", ""))
        if corners and "fill:var(--md-default-bg-color)" not in path.get("style", ""):
            left, one, right, other = map(float, corners.groups())
            boxes.append((left, min(one, other), round(right - left, 1), round(abs(one - other), 1)))
    return boxes


def words(content: str) -> Iterator[tuple[str, float, float, float]]:
    """The texts, each with the horizontal range that it covers in letters of a common font's width, and its height."""
    styles = {element: group.get("style", "") for group in drawing(content).iter() for element in group}
    for element, of_group in styles.items():
        if element.tag == "text":
            text = "".join(element.itertext())
            length = len(text) * LETTER
            anchor = re.search(r"text-anchor:(\w+)", element.get("style", "") + of_group)
            before = {"middle": length / 2, "end": length}.get(anchor[1], 0) if anchor else 0
            left = float(element.get("x", "")) - before
            yield text, left, left + length, float(element.get("y", ""))
