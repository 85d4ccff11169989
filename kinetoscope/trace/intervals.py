"""Sets of times as sorted, disjoint intervals in whole nanoseconds: sums are exact, and every function is a sweep."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kinetoscope.trace.events import Span

Interval = tuple[int, int]
"""Start and end in ns; the end is outside."""


def ns(us: float) -> int:
    """Microseconds with three decimals, as in the trace, in nanoseconds."""
    return round(us * 1000)


def interval(span: Span) -> Interval:
    """The time of a span."""
    start = ns(span.start_us)
    return start, start + ns(span.duration_us)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Times that are in at least one of `intervals`, which may overlap and come in any order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def union_of(spans: Iterable[Span]) -> list[Interval]:
    """Times in at least one span."""
    return union(map(interval, spans))


def intersect(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Times in both; each sorted and disjoint."""
    common: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Times in `left` and not in `right`; each sorted and disjoint."""
    rest: list[Interval] = []
    j = 0
    for start, end in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if right[k][0] > start:
                rest.append((start, right[k][0]))
            start = right[k][1]
            k += 1
        if start < end:
            rest.append((start, end))
        j = max(j, k - 1)  # the last may reach into the next interval of `left`
    return rest


def length_us(intervals: Iterable[Interval]) -> float:
    """Sum of the lengths of disjoint intervals."""
    return sum(end - start for start, end in intervals) / 1000


def lengths_in(windows: Sequence[Interval], intervals: Sequence[Interval]) -> list[int]:
    """The time of the intervals in each window; both sorted and disjoint."""
    lengths = []
    first = 0
    for start, end in windows:
        while first < len(intervals) and intervals[first][1] <= start:
            first += 1
        total, index = 0, first
        while index < len(intervals) and intervals[index][0] < end:
            total += min(end, intervals[index][1]) - max(start, intervals[index][0])
            index += 1
        lengths.append(total)
    return lengths


def contains(intervals: Sequence[Interval], time: int) -> bool:
    """Whether a time is in one of the sorted, disjoint intervals."""
    before = bisect_right(intervals, time, key=lambda each: each[0])
    return before > 0 and time < intervals[before - 1][1]
