"""Bands: which figures they contain, how they read, and whether they contain a whole spread, none of it or a part."""

from __future__ import annotations

import pytest

from snippets.lab.finding.band import (
    Band,
    Interval,
    OneOf,
    Pattern,
    at_least,
    at_most,
    between,
    contains_spread,
    equals,
    matches,
)
from snippets.lab.finding.figure import Figure


@pytest.mark.parametrize(
    ("band", "inside", "outside"),
    [
        (equals(5), [5, 5.0], [4, "5"]),
        (equals("a", "b"), ["a", "b"], ["c", "ab"]),
        (equals(True), [True], [False]),
        (at_least(2.0), [2.0, 3], [1.99]),
        (at_most(2.0), [2.0, -1], [2.01]),
        (between(1.0, 2.0), [1.0, 1.5, 2.0], [0.99, 2.01]),
        (matches("nvjet_.*"), ["nvjet_x"], ["a nvjet_x", "nvjet", 5]),
    ],
)
def test_bands(band: Band, inside: list[float | str], outside: list[float | str]) -> None:
    assert [value for value in inside if not band(Figure(value))] == []
    assert [value for value in outside if band(Figure(value))] == []


def test_equal_bands_are_equal() -> None:
    assert (at_least(2), at_most(2), between(1, 2)) == (Interval(low=2), Interval(high=2), Interval(1, 2))
    assert (equals(1, "a"), matches("a.*")) == (OneOf((1, "a")), Pattern("a.*"))


@pytest.mark.parametrize(
    ("band", "unit", "text"),
    [
        (Interval(low=1.2), "x", "at least 1.20x"),
        (Interval(high=10.0), "us", "at most 10.0 µs"),
        (Interval(8, 12), "%", "8.00 % to 12.0 %"),
        (Interval(low=2), "", "at least 2"),
    ],
)
def test_a_band_as_a_reader_sees_it(band: Interval, unit: str, text: str) -> None:
    assert band.text(unit) == text


def is_small(figure: Figure) -> bool:
    return figure.number < 2


@pytest.mark.parametrize(
    ("band", "spread", "expected"),
    [
        (between(1.8, 2.2), (1.8, 2.2), True),
        (between(1.8, 2.2), (1.7, 2.1), None),
        (between(1.8, 2.2), (1.9, 2.3), None),
        (between(1.8, 2.2), (1.0, 3.0), None),  # both ends are outside, and the band is between them
        (between(1.8, 2.2), (2.3, 2.4), False),
        (between(1.8, 2.2), (2.2, 2.4), None),
        (at_least(2.0), (2.0, 2.5), True),
        (at_least(2.0), (1.9, 2.5), None),
        (at_least(2.0), (1.0, 1.9), False),
        (at_most(2.0), (1.0, 2.0), True),
        (at_most(2.0), (1.0, 2.1), None),
        (at_most(2.0), (2.1, 2.2), False),
        (equals(2), (2, 2), True),
        (equals(3), (2, 2), False),
        (equals(2), (1, 3), None),
        (equals(2.5), (2, 3), None),
        (equals(4), (1, 3), False),
        (is_small, (1.0, 1.9), True),
        (is_small, (1.0, 2.1), None),
        (is_small, (2.1, 2.2), False),
        (lambda figure: figure.number != 1.5, (1.0, 2.0), None),  # the value alone is out
    ],
)
def test_a_spread_in_a_band(band: Band, spread: tuple[float, float], expected: bool | None) -> None:
    middle = (spread[0] + spread[1]) / 2
    assert contains_spread(band, Figure(middle, "x", spread)) is expected


def test_a_number_without_a_spread_is_in_a_band_or_out() -> None:
    assert contains_spread(between(1, 2), Figure(1.5)) is True
    assert contains_spread(between(1, 2), Figure(2.5)) is False
    assert contains_spread(equals(5), Figure(5)) is True
    assert contains_spread(is_small, Figure(5)) is False
