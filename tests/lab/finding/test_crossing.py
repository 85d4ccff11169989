"""Sizes at which one limit gives way to another, of values written by hand."""

from __future__ import annotations

import pytest

from snippets.lab.finding.crossing import crossing, grows_from


@pytest.mark.parametrize(
    ("falling", "rising", "expected"),
    [
        ((10, 10, 10), (1, 10, 100), 10.0),
        ((10, 10, 10), (1, 5, 20), 10**1.5),
        ((10, 10, 10), (2, 50, 500), 10**0.5),
        ((10, 40, 10), (1, 20, 20), 10**1.5),
    ],
    ids=["at a size", "halfway", "halfway, earlier", "both grow"],
)
def test_a_crossing_is_between_two_sizes_on_logarithmic_scales(
    falling: tuple[float, ...], rising: tuple[float, ...], expected: float
) -> None:
    assert crossing((1, 10, 100), falling, rising) == pytest.approx(expected)


def test_the_last_of_several_crossings_counts() -> None:
    assert crossing((1, 10, 100, 1000), (8, 1, 8, 1), (2, 2, 2, 4)) == pytest.approx(100 * 10**0.5)


@pytest.mark.parametrize(("falling", "rising"), [((1, 1), (2, 2)), ((2, 2), (1, 1)), ((1, 3), (2, 2))])
def test_without_a_crossing_there_is_no_size(falling: tuple[float, ...], rising: tuple[float, ...]) -> None:
    assert crossing((1, 10), falling, rising) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((10, 10, 11, 22, 44), 4),
        ((10, 20, 40, 80, 160), 1),
        ((10, 20, 20, 40, 80), 4),
        ((10, 10, 10, 10, 11), None),
        ((10, 10, 10, 10, 20), 8),
        ((10, 10, 10, 14.2, 20.2), 4),
        ((10, 10, 10, 14.1, 20.2), 8),
    ],
    ids=["a knee", "throughout", "a stop counts", "never", "at the last step", "just enough", "just not enough"],
)
def test_the_size_from_which_on_a_value_grows(values: tuple[float, ...], expected: float | None) -> None:
    assert grows_from((1, 2, 4, 8, 16), values) == expected


def test_a_step_over_several_doublings_needs_as_much_for_each() -> None:
    assert grows_from((1, 4, 8), (10, 19, 40)) == 4
    assert grows_from((1, 4, 8), (10, 21, 40)) == 1
