"""Sets of times as sorted, disjoint intervals in whole nanoseconds: sums are exact, and every function is a sweep."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from operator import itemgetter

from kinetoscope.trace.events import Span

Interval = tuple[int, int]
"""Start and end in ns; the end is outside."""
_start, _end = itemgetter(0), itemgetter(1)
_MANY = 16
_ROUNDING_US = 0.002


def ns(us: float) -> int:
    """Microseconds with three decimals, as in the trace, in nanoseconds."""
    return round(us * 1000)


def interval(span: Span) -> Interval:
    """The time of a span."""
    start = ns(span.start_us)
    return start, start + ns(span.duration_us)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Times that are in at least one of `intervals`, which may overlap and come in any order.

    Intervals in start order are merged as they come, without a copy of all.
    """
    merged: list[Interval] = []
    first, reached = 0, -math.inf
    rest = iter(intervals)
    for each in rest:
        start, end = each
        if end <= start:
            continue
        if start > reached:
            merged.append(each)
            first, reached = each
        elif start < first:
            return union(sorted([*merged, each, *rest]))
        elif end > reached:
            merged[-1] = first, end
            reached = end
    return merged


def union_of(spans: Iterable[Span]) -> list[Interval]:
    """Times in at least one span."""
    merged: list[Interval] = []
    first, reached = 0, -math.inf
    first_us = inside_us = -math.inf  # a span between them is in the last interval, whatever its ends round to
    rest = iter(spans)
    for span in rest:  # as `union`, but with half of its time: the spans of a large trace are millions
        start_us = span.start_us
        if first_us <= start_us < inside_us and start_us + span.duration_us < inside_us:
            continue
        start = round(start_us * 1000)
        end = start + round(span.duration_us * 1000)
        if end <= start:
            continue
        if start > reached:
            merged.append((start, end))
            first, reached, first_us = start, end, start_us
        elif start < first:
            return union([*merged, (start, end), *map(interval, rest)])
        elif end > reached:
            merged[-1] = first, end
            reached = end
        inside_us = reached / 1000 - _ROUNDING_US
    return merged


def covered_us(spans: Sequence[Span]) -> float:
    """Time in at least one span: `length_us(union_of(spans))`, without a list of intervals."""
    total, first, reached = 0, 0, 0
    for span in spans:
        start = round(span.start_us * 1000)
        end = start + round(span.duration_us * 1000)
        if end <= start:
            continue
        if start > reached or reached == first:
            total += reached - first
            first, reached = start, end
        elif start < first:
            return length_us(union_of(spans))
        elif end > reached:
            reached = end
    return (total + reached - first) / 1000


def intersect(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Times in both; each sorted and disjoint."""
    few, many = (left, right) if len(left) < len(right) else (right, left)
    common: list[Interval] = []
    index, count, is_sparse = 0, len(many), len(many) > _MANY * len(few)
    for start, end in few:
        if is_sparse:
            index = bisect_right(many, start, index, key=_end)
            stop = bisect_left(many, end, index, key=_start)
        else:
            while index < count and many[index][1] <= start:
                index += 1
            stop = index
            while stop < count and many[stop][0] < end:
                stop += 1
        if stop > index:
            first = len(common)
            common += many[index:stop]
            if common[first][0] < start:
                common[first] = start, common[first][1]
            if common[-1][1] > end:
                common[-1] = common[-1][0], end
            index = stop - 1  # it may reach into the next interval of `few`
    return common


def subtract(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Times in `left` and not in `right`; each sorted and disjoint."""
    rest: list[Interval] = []
    first, count, is_sparse = 0, len(right), len(right) > _MANY * len(left)
    for each in left:
        start, end = each
        if is_sparse:
            first = bisect_right(right, start, first, key=_end)
        while first < count and right[first][1] <= start:
            first += 1
        if first == count or right[first][0] >= end:
            rest.append(each)
            continue
        for index in range(first, count):
            begin, until = right[index]
            if begin >= end:
                break
            if begin > start:
                rest.append((start, begin))
            start, first = until, index  # the last may reach into the next interval of `left`
        if start < end:
            rest.append((start, end))
    return rest


def length_us(intervals: Iterable[Interval]) -> float:
    """Sum of the lengths of disjoint intervals, in microseconds."""
    return length_ns(intervals) / 1000


def length_ns(intervals: Iterable[Interval]) -> int:
    """Sum of the lengths of disjoint intervals."""
    return sum([end - start for start, end in intervals])


def lengths_in(windows: Sequence[Interval], intervals: Sequence[Interval]) -> list[int]:
    """The time of the intervals in each window; both sorted and disjoint."""
    if len(windows) == 1:
        return [length_ns(intersect(windows, intervals))]
    lengths = []
    first = 0
    for start, end in windows:
        while first < len(intervals) and intervals[first][1] <= start:
            first += 1
        total, index = 0, first
        while index < len(intervals):
            begin, until = intervals[index]
            if begin >= end:
                break
            total += (end if until > end else until) - (start if begin < start else begin)
            index += 1
        lengths.append(total)
    return lengths


def contains(intervals: Sequence[Interval], time: int) -> bool:
    """Whether a time is in one of the sorted, disjoint intervals."""
    before = bisect_right(intervals, time, key=_start)
    return before > 0 and time < intervals[before - 1][1]


def depths(sets: Iterable[Sequence[Interval]]) -> dict[int, int]:
    """Number of sets -> the time in ns that exactly so many of them cover; the intervals of a set are disjoint."""
    bounds = sorted(chain.from_iterable(((start, 1), (end, -1)) for times in sets for start, end in times))
    covered: dict[int, int] = defaultdict(int)
    depth = 0
    for (at, change), (until, _) in pairwise(bounds):
        depth += change
        covered[depth] += until - at
    return covered
