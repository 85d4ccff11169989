"""Sets of times: exact, and the same as counting every nanosecond."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from kinetoscope.trace.events import Span
from kinetoscope.trace.intervals import (
    Interval,
    contains,
    covered_us,
    intersect,
    interval,
    length_us,
    lengths_in,
    subtract,
    union,
    union_of,
)

TIMES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def ticks(intervals: list[Interval]) -> set[int]:
    return {tick for start, end in intervals for tick in range(start, end)}


@given(TIMES, TIMES)
def test_the_operations_of_sets(left: list[Interval], right: list[Interval]) -> None:
    a, b = union(left), union(right)
    assert ticks(a) == ticks(left)
    assert ticks(intersect(a, b)) == ticks(a) & ticks(b)
    assert ticks(subtract(a, b)) == ticks(a) - ticks(b)
    assert all(contains(a, tick) == (tick in ticks(a)) for tick in range(42))
    for times in (a, intersect(a, b), subtract(a, b)):
        assert all(start < end for start, end in times)
        assert all(before[1] <= after[0] for before, after in pairwise(times))


@given(TIMES, TIMES)
def test_lengths_in_windows(left: list[Interval], right: list[Interval]) -> None:
    windows, times = union(left), union(right)
    expected = [len(ticks([window]) & ticks(times)) for window in windows]
    assert lengths_in(windows, times) == expected


@given(TIMES)
def test_the_time_of_spans_in_any_order(given_times: list[Interval]) -> None:
    spans = [Span("", start / 1000, max(0, end - start) / 1000) for start, end in given_times]
    assert union_of(spans) == union(given_times)
    assert covered_us(spans) == len(ticks(given_times)) / 1000


def test_intervals_of_a_few_windows_are_found_by_bisection() -> None:
    many = [(10 * index, 10 * index + 4) for index in range(100)]
    windows = [(12, 33), (400, 401), (995, 2000)]
    assert intersect(windows, many) == [(12, 14), (20, 24), (30, 33), (400, 401)]
    assert subtract(windows, many) == [(14, 20), (24, 30), (995, 2000)]


@given(TIMES)
def test_a_union_has_no_touching_intervals(given_times: list[Interval]) -> None:
    times = union(given_times)
    assert all(before[1] < after[0] for before, after in pairwise(times))


def test_nanoseconds_are_exact_where_floats_are_not() -> None:
    spans = [Span("", 0.1 * index, 0.1) for index in range(30)]
    assert length_us(union(map(interval, spans))) == 3.0


def test_by_hand() -> None:
    assert union([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert intersect([(0, 4), (5, 9)], [(-1, 1), (3, 6), (8, 20)]) == [(0, 1), (3, 4), (5, 6), (8, 9)]
    assert intersect([(0, 10)], [(1, 2), (3, 4)]) == intersect([(1, 2), (3, 4)], [(0, 10)]) == [(1, 2), (3, 4)]
    assert intersect([], [(0, 1)]) == []
