"""The colors of slices: read in both schemes, and the same in pages and in reports."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from kinetoscope.timeline.canvas import PATTERNS, SLICE_KINDS
from snippets.lab.charts.svg import MEMORY_KINDS
from snippets.lab.recording.device import PROJECT

STYLE = (PROJECT / "docs/assets/css/colors.css").read_text(encoding="utf-8")


Color = tuple[float, float, float]
GROUNDS: dict[str, tuple[Color, Color, float]] = {
    "": ((255, 255, 255), (0, 0, 0), 0.87),
    "slate": ((30, 33, 41), (226, 228, 233), 0.82),
}
"""Of the theme's two schemes: background, text, and how much of the text's color is seen."""


def palette(scheme: str) -> dict[str, dict[str, Color]]:
    """Kind -> property -> color, as the style sheet gives them for a scheme."""
    block = re.findall(r"\{([^{}]*--gemm-edge:[^{}]*)\}", STYLE)[scheme == "slate"]
    found: dict[str, dict[str, Color]] = defaultdict(dict)
    for kind, name, *rgb in re.findall(r"--(\w+)-(kind|edge|strokes): #(\w\w)(\w\w)(\w\w)", block):
        found[kind][name] = tuple(int(part, 16) for part in rgb)  # type: ignore[assignment]
    return found


def contrast(one: Color, other: Color) -> float:
    def luminance(color: Color) -> float:
        parts = [value / 255 for value in color]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", GROUNDS)
def test_colors_can_be_told_and_names_on_them_read(scheme: str) -> None:
    ground, ink, share = GROUNDS[scheme]
    found = {kind: colors for kind, colors in palette(scheme).items() if kind not in MEMORY_KINDS}
    assert set(found) == {*SLICE_KINDS, "ghost"}
    for kind, colors in found.items():
        under = colors.get("kind", ground)
        seen = tuple(share * a + (1 - share) * b for a, b in zip(ink, under, strict=True))
        assert contrast(seen, under) >= 4.5, kind
        assert contrast(colors["edge"], ground) >= 3, kind
        assert ("strokes" in colors) == (kind in PATTERNS), kind


def colors_of(path: str, scheme: str) -> dict[str, str]:
    """`--gemm-edge` -> its color, of a style sheet that has a block for each scheme."""
    css = (PROJECT / path).read_text(encoding="utf-8")
    blocks = re.findall(r"\{([^{}]*--gemm-edge:[^{}]*)\}", css)
    assert len(blocks) == 2
    return dict(re.findall(r"--([a-z]+-(?:kind|edge|strokes)): (#\w{6})", blocks[scheme == "dark"]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_kinds_have_the_colors_of_the_book(scheme: str) -> None:
    """All kinds but those of bytes, which a report doesn't tell apart."""
    book = colors_of("docs/assets/css/colors.css", scheme)
    colors = {name: color for name, color in book.items() if name.partition("-")[0] not in MEMORY_KINDS}
    assert len(colors) > 20
    assert colors_of("kinetoscope/report/style.css", scheme) == colors
