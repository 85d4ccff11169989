"""The palette: what style sheets give can be read and told apart in both schemes, by all eyes."""

from __future__ import annotations

import colorsys
import math
import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from kinetoscope.timeline.canvas import PATTERNS, SLICE_KINDS
from snippets.lab.charts.svg import MEMORY_KINDS, MEMORY_PATTERNS, VARIABLES
from snippets.lab.recording.device import PROJECT

KINDS = ("gemm", "pointwise", "copy", "other", "call")
"""The last is of the CPU, which has lanes and bars of its own."""


def variables(scheme: str) -> dict[str, str]:
    """The style sheets' values: for paper and the light scheme, or for `slate`."""
    given: dict[str, str] = {}
    for name in ("charts", "colors", "drawing"):
        sheet = (PROJECT / f"docs/assets/css/{name}.css").read_text(encoding="utf-8")
        both = re.findall(r"(--[\w-]+): light-dark\((.+?), (.+?)\);", sheet)
        given |= {variable: dark if scheme == "slate" else light for variable, light, dark in both}
    return given


def test_every_color_of_a_drawing_is_given() -> None:
    used = set(VARIABLES.values()) - {"--md-default-bg-color"}
    assert used < set(variables(""))


def linear(color: str) -> list[float]:
    """Light of #rrggbb."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, 1 to 21."""
    red_green_blue = [(0.2126, 0.7152, 0.0722)]
    (darker,), (lighter,) = sorted(times(red_green_blue, linear(color)) for color in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def background(scheme: str) -> str:
    """The color behind the text of a page, out of the installed theme."""
    import material

    folder = Path(material.__file__).parent / "templates/assets/stylesheets"
    sheets = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.css")))
    block = re.search(rf"\[data-md-color-scheme={scheme}\]\{{([^}}]*--md-default-bg-color:[^}}]*)\}}", sheets)
    hue = re.search(r"--md-hue:(\d+)deg", sheets)
    assert block is not None
    assert hue is not None
    given = re.search(r"--md-default-bg-color:([^;]+);", block[1])
    assert given is not None
    if given[1] == "#fff":
        return "#ffffff"
    parts = re.fullmatch(r"hsla\(var\(--md-hue\), (\d+)%, (\d+)%, 1\)", given[1])
    assert parts is not None
    rgb = colorsys.hls_to_rgb(int(hue[1]) / 360, int(parts[2]) / 100, int(parts[1]) / 100)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_contrast(scheme: str) -> None:
    paper = background(scheme)
    given = variables("slate" if scheme == "slate" else "")
    assert contrast(given["--chart-ink"], paper) >= 4.5
    assert contrast(given["--chart-ink"], given["--chart-band"]) >= 4.5
    assert contrast(given["--gpu"], paper) >= 4.5
    for kind in KINDS:
        assert contrast(given[f"--{kind}-edge"], paper) >= 3, kind
        assert contrast(given["--chart-ink"], given[f"--{kind}-kind"]) >= 4.5, kind
    assert contrast(given["--call-edge"], given["--chart-band"]) >= 3


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert (background("default"), background("slate")) == ("#ffffff", "#1e2129")


RED_BLIND = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
GREEN_BLIND = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
ALL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
"""What eyes make of linear red, green and blue: Machado, Oliveira and Fernandes, 2009."""
CONES = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
LAB = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))
"""Ottosson's Oklab, 2020, where distances are as large as they look."""


def times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(one * other for one, other in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize("eyes", [ALL, RED_BLIND, GREEN_BLIND], ids=["all", "red-blind", "green-blind"])
@pytest.mark.parametrize("scheme", ["", "slate"])
def test_kinds_differ_for_all_eyes_by_color_or_by_pattern(scheme: str, eyes: Sequence[Sequence[float]]) -> None:
    given = variables(scheme)
    seen = {
        kind: times(LAB, [*map(math.cbrt, times(CONES, times(eyes, linear(given[f"--{kind}-edge"]))))])
        for kind in KINDS
    }
    alike = {pair for pair in combinations(KINDS[:4], 2) if math.dist(*(seen[kind] for kind in pair)) < 0.08}
    patterns: dict[str, str] = {kind: pattern for kind, pattern in PATTERNS.items() if kind in KINDS}
    assert [pair for pair in alike if patterns.get(pair[0], "") == patterns.get(pair[1], "")] == []
    assert len(set(patterns.values())) == 3


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_contrast_of_bytes(scheme: str) -> None:
    paper = background(scheme)
    given = variables("slate" if scheme == "slate" else "")
    for kind in MEMORY_KINDS:
        assert contrast(given[f"--{kind}-edge"], paper) >= 3, kind
        if kind != "used":
            assert contrast(given["--chart-ink"], given[f"--{kind}-kind"]) >= 4.5, kind


def test_bytes_that_lie_on_each_other_have_different_patterns() -> None:
    """From the bottom up, so that a border and a pattern tell them apart where a color does not."""
    stacked = MEMORY_KINDS[: MEMORY_KINDS.index("used")]
    order = ("parameters", "states", "others", "gradients", "activations", "temporaries")
    assert set(order) == set(stacked)
    for lower, upper in pairwise(order):
        if {lower, upper} != {"others", "gradients"}:
            assert MEMORY_PATTERNS.get(lower) != MEMORY_PATTERNS.get(upper), (lower, upper)
    assert contrast(variables("")["--gradients-edge"], variables("")["--others-kind"]) >= 3


@pytest.mark.parametrize(("scheme", "ink", "share"), [("default", "#000000", 0.87), ("slate", "#e2e4e9", 0.82)])
def test_slices_can_be_told_and_names_on_them_read(scheme: str, ink: str, share: float) -> None:
    """`share` of the theme's color of text is seen."""
    ground, given = background(scheme), variables(scheme)
    kinds = {name[2:].rpartition("-")[0] for name in given if name.endswith("-edge")} - {*MEMORY_KINDS}
    assert kinds == {*SLICE_KINDS, "ghost"}
    for kind in kinds:
        under = given.get(f"--{kind}-kind", ground)
        mixed = zip(*(bytes.fromhex(color[1:]) for color in (ink, under)), strict=True)
        seen = "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in mixed)
        assert contrast(seen, under) >= 4.5, kind
        assert contrast(given[f"--{kind}-edge"], ground) >= 3, kind
        assert (f"--{kind}-strokes" in given) == (kind in PATTERNS), kind
