"""Steps that several threads annotate at the same time, such as requests of a server: none of them is the trace's step.

Two threads overlap if each launches GPU work in its own annotation while an annotation of the other lasts (in a trace
without GPU work: if each runs operators). If neither has more than twice as much work as the other, no step is of all
threads; else the steps are those of the thread with more GPU work. A thread that waits for others, as in
`DataParallel`, does not overlap: if its annotation is around theirs, it marks the steps.

Work that is launched on a thread without annotations, as a backward pass is, may belong to any of the threads: between
annotations of different names, it counts for the thread with more work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, chain, pairwise

from msgspec import Struct

from kinetoscope.trace.annotations import (
    COMPILED,
    FETCH,
    MIN_SHARE,
    PARTS,
    Group,
    annotation_groups,
    is_layer,
    overlaps_itself,
)
from kinetoscope.trace.events import Span, by_start
from kinetoscope.trace.intervals import Interval, intersect, union_of
from kinetoscope.trace.process_events import Part, Work
from kinetoscope.trace.text import without_numbers

MIN_TOGETHER = 0.1
"""Least part of a thread's own work that it launches during annotations of the other."""
MIN_AROUND = 0.9
"""Least part of the overlapping annotations that lie in one around them."""
_MAX_THREADS = 256
_OTHERS = ""
"""All threads without annotations."""


class Overlap(Struct, frozen=True):
    """The annotation of each thread that overlaps with an equal one, that with most GPU work first, and the threads
    that have much less work than one with which they overlap."""

    groups: list[Group]
    lesser: frozenset[str] = frozenset()


NO_OVERLAP = Overlap([])


class _Own(Struct, frozen=True):
    """An annotation of a thread with the work of this thread in it, and with that of threads without annotations."""

    group: Group
    own_us: float
    at_most_us: float
    times: list[Interval]

    def has_equal(self, other: _Own) -> bool:
        """Whether neither has more than twice as much work as the other."""
        of_one_name = without_numbers(self.group[0].name) == without_numbers(other.group[0].name)
        most_us = max((each.own_us if of_one_name else each.at_most_us) for each in (self, other))
        return 2 * min(self.own_us, other.own_us) >= most_us


def find_overlap(part: Part) -> Overlap:
    """The annotations of threads that overlap: each is compared with that with most work, and with the next."""
    groups = _own(annotation_groups(part))
    threads = {group[0].thread for group in groups}
    if len(threads) < 2:
        return NO_OVERLAP
    work = _by_thread(part, threads)
    total_us = sum(each.total_us for each in work.values())
    equal: set[int] = set()
    lesser: set[str] = set()
    ranked = _ranked(groups, work)
    for one, other in (*((ranked[0], each) for each in ranked[2:]), *pairwise(ranked)):
        if not (_launches_during(work, one, other) and _launches_during(work, other, one)):
            continue
        if one.has_equal(other):
            equal |= {id(one), id(other)}
        else:
            lesser.add(other.group[0].thread)
    found = [each for each in ranked if id(each) in equal and each.group[0].thread not in lesser]
    members = [each.group for each in found]
    is_most = len(found) > 1 and 2 * sum(each.own_us for each in found) > total_us
    if not is_most or any(_is_around(group, members) for group in groups):
        members = []
    return Overlap(members, frozenset(lesser if part.activities else ()))


def _ranked(groups: Iterable[Group], work: Mapping[str, Work]) -> list[_Own]:
    """The annotation of each thread with most of the thread's own work, that with most work first."""
    chosen: dict[str, _Own] = {}
    for group in groups:
        own_us = _during(work, group[0].thread, group)
        if own_us > 0 and (group[0].thread not in chosen or own_us > chosen[group[0].thread].own_us):
            at_most_us = own_us + _during(work, _OTHERS, group)
            chosen[group[0].thread] = _Own(group, own_us, at_most_us, union_of(group))
    ranked = sorted(chosen.values(), key=lambda each: -each.own_us)[:_MAX_THREADS]
    return [each for each in ranked if each.own_us >= MIN_SHARE * ranked[0].own_us]


def taking_turns(part: Part) -> list[Group]:
    """Annotations of one name on several threads, of which one begins when the other has ended, as in a pool of
    threads. Not of a model's layers: a backward pass may repeat them on its own thread."""
    by_name: dict[str, list[Group]] = defaultdict(list)
    for group in _own(annotation_groups(part)):
        if not is_layer(group):
            by_name[without_numbers(group[0].name)].append(group)
    several = (groups for groups in by_name.values() if len({group[0].thread for group in groups}) > 1)
    merged = (sorted(chain.from_iterable(groups), key=by_start) for groups in several)
    return [group for group in merged if not overlaps_itself(group)]


def _own(groups: Iterable[Group]) -> list[Group]:
    """The user's own annotations."""
    return [group for group in groups if not group[0].name.startswith((FETCH, *PARTS, *COMPILED))]


def _by_thread(part: Part, threads: Set[str]) -> dict[str, Work]:
    """The GPU work that each of these threads launches, and that of the others together; without GPU work, the
    outermost operators."""
    launched: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for thread, at_us, us in _launched(part):
        launched[thread if thread in threads else _OTHERS].append((at_us, us))
    found = {}
    for thread, pairs in launched.items():
        pairs.sort()
        sums = [0.0, *accumulate(us for _, us in pairs)]
        found[thread] = Work(sums[-1], [start for start, _ in pairs], sums)
    return found


def _launched(part: Part) -> Iterator[tuple[str, float, float]]:
    """Thread, launch and duration of each piece of work."""
    for activity in part.activities:
        if activity.launch is not None:
            yield activity.launch.thread, activity.launch.start_us, activity.duration_us
    for op in () if part.activities else part.ops:
        if not op.is_annotation and (op.parent is None or op.parent.is_annotation):
            yield op.thread, op.start_us, op.duration_us


def _during(work: Mapping[str, Work], thread: str, times: Iterable[Span]) -> float:
    """The GPU time that a thread launches in some times."""
    own = work.get(thread)
    return sum(own.during_us(each.start_us, each.end_us) for each in times) if own is not None else 0.0


def _launches_during(work: Mapping[str, Work], one: _Own, other: _Own) -> bool:
    """Whether the thread of an annotation launches enough of its own work during the annotation of another thread."""
    times = [Span("", start / 1000, (end - start) / 1000) for start, end in intersect(one.times, other.times)]
    return _during(work, one.group[0].thread, times) >= MIN_TOGETHER * one.own_us


def _is_around(group: Group, members: Sequence[Group]) -> bool:
    """Whether nearly all of these annotations lie in one of another thread."""
    if any(group[0].thread == member[0].thread for member in members):
        return False
    spans = list(chain.from_iterable(members))
    within = 0
    for span in spans:
        index = bisect_right(group, span.start_us, key=by_start) - 1
        within += index >= 0 and span.end_us <= group[index].end_us
    return within >= MIN_AROUND * len(spans)
