"""Find durations that reach over later events, and cut them (AMD-AGI/TraceLens#669, AMD-AGI/Hyperloom#1116)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from kinetoscope.trace.communication import communicates
from kinetoscope.trace.events import CudaCall, Damage, DamagedEvent, GpuActivity
from kinetoscope.trace.left_out import MAX_EVENTS

OVER_LATER = "with a duration that reaches over later events of the stream"
OVER_TRACE = "with a duration longer than the rest of the trace"
OVER_WAIT = "with a duration that reaches past a call that waited for the GPU"

DEPENDENT_US = 20.0
"""Programmatic dependent launch starts an event before the one before it ends, by less than this (our recordings)."""
CLOCK_US = 1000.0
"""Clocks of CPU and GPU differ by less than this (our limit)."""
RUNAWAY = 10
"""A duration this many times the longest sound one of its name is an exception (our limit)."""
RARE = 0.25
"""Exceptions are at most this share of the events of their name (our limit)."""
_MAX_LATER = 100


def cut_runaways(
    activities: tuple[GpuActivity, ...], calls: Sequence[CudaCall], processes: Sequence[str]
) -> tuple[tuple[GpuActivity, ...], list[Damage]]:
    """Cut impossible durations. `processes`: one for each activity, empty for a single process.

    Events of one stream run in order, so one cannot end after a later one has run. That is certain for launches of
    CUDA. Graph replays, dependent launches and other vendors' queues may run beside each other under one stream: there,
    the stream must be in order without such events, and their durations exceptions. Work that was launched before a
    call waited for the only GPU cannot end after the call.
    """
    if not activities:
        return activities, []
    streams: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for index, activity in enumerate(activities):
        streams[processes[index] if processes else "", activity.device, activity.stream].append(index)
    late = {key: found for key, stream in streams.items() if (found := _outlasting(activities, stream))}
    is_one_gpu = not processes and len({activity.device for activity in activities}) == 1
    wait = _last_wait(calls) if is_one_gpu else None
    past = _past(activities, wait) if wait else []
    tails = set(_tails(activities, calls, streams.values())) - set(past)
    if not late and not past and not tails:
        return activities, []
    usual = _Usual.of(activities, calls, tails.union(past, *late.values()))
    cuts: dict[str, dict[int, float]] = {OVER_LATER: {}, OVER_WAIT: {}, OVER_TRACE: {}}
    for key, suspects in late.items():
        are_damaged = usual.are_exceptions(suspects) and _is_in_order(activities, streams[key], set(suspects))
        for index in suspects:
            later = _later(activities, streams[key], index)
            if later and (are_damaged or any(_is_certain(activities[index], other) for other in later)):
                cuts[OVER_LATER][index] = round(later[0].start_us - activities[index].start_us, 3)
    for index in past:
        if wait and index not in cuts[OVER_LATER] and usual.are_exceptions([index]):
            cuts[OVER_WAIT][index] = round(wait.end_us - activities[index].start_us, 3)
    for index in tails:
        if usual.is_longer_than_trace(index) and usual.is_unlike_its_name(index):
            cuts[OVER_TRACE][index] = usual.longest_us[activities[index].name]
    return _cut(activities, cuts)


def _cut(
    activities: tuple[GpuActivity, ...], cuts: dict[str, dict[int, float]]
) -> tuple[tuple[GpuActivity, ...], list[Damage]]:
    """Replace durations; `cuts`: for each reason, index -> the longest possible duration in us."""
    how = {
        OVER_LATER: "cut where the next event starts",
        OVER_WAIT: "cut where the call ends",
        OVER_TRACE: "cut to the longest other of the same name",
    }
    mended, damages = list(activities), []
    for reason, places in cuts.items():
        for index, most_us in places.items():
            mended[index] = replace(activities[index], duration_us=most_us)
        longest = sorted(places, key=lambda index: (-activities[index].duration_us, index))[:MAX_EVENTS]
        shown = [DamagedEvent(activities[i].name, activities[i].duration_us, places[i]) for i in longest]
        if places:
            damages.append(Damage(reason, how[reason], len(places), tuple(shown), len(places)))
    return tuple(mended), damages


def _outlasting(activities: Sequence[GpuActivity], stream: Sequence[int]) -> list[int]:
    """The activities of a stream that end after a later one has ended."""
    found, earliest_us = [], math.inf
    for index in reversed(stream):
        activity = activities[index]
        end_us = activity.start_us + activity.duration_us
        if end_us > earliest_us + DEPENDENT_US:
            found.append(index)
        elif end_us < earliest_us:
            earliest_us = end_us
    return found[::-1]


def _later(activities: Sequence[GpuActivity], stream: Sequence[int], index: int) -> list[GpuActivity]:
    """The first activities of the stream, at most 100, that start after this one and before it ends."""
    at = bisect_left(stream, index) + 1
    end_us, start_us = activities[index].end_us, activities[index].start_us
    near = (activities[other] for other in stream[at : at + _MAX_LATER])
    return [other for other in near if start_us < other.start_us < end_us]


def _is_in_order(activities: Sequence[GpuActivity], stream: Sequence[int], without: set[int]) -> bool:
    """Whether the other activities of a stream run one after the other."""
    reached_us = -math.inf
    for index in stream:
        if index not in without:
            if activities[index].start_us < reached_us - DEPENDENT_US:
                return False
            reached_us = max(reached_us, activities[index].end_us)
    return True


def _is_certain(each: GpuActivity, later: GpuActivity) -> bool:
    """Whether the later activity must have run after this one, and yet ended before."""
    ended = each.end_us - later.end_us > DEPENDENT_US
    return ended and _is_ordered(each.launch, "Graph") and _is_ordered(later.launch, "Graph", "Ex")


def _is_ordered(call: CudaCall | None, *exceptions: str) -> bool:
    return call is not None and call.name.startswith("cu") and not any(part in call.name for part in exceptions)


class _Usual(Struct, frozen=True):
    """What is usual in a trace, from the activities that are no suspects."""

    activities: Sequence[GpuActivity]
    longest_us: Mapping[str, float]
    """Name of a suspect -> the longest duration of the others of this name."""
    rare: Set[str]
    """Names of which few are suspects. Collectives wait for other GPUs, so they have no usual duration."""
    span_us: float
    """From the first start to the last end of calls and activities."""

    @classmethod
    def of(cls, activities: Sequence[GpuActivity], calls: Sequence[CudaCall], suspects: set[int]) -> _Usual:
        """Measure all but the suspects, in one pass."""
        longest = {activities[index].name: 0.0 for index in suspects}
        counts, suspected = Counter[str](), Counter(activities[index].name for index in suspects)
        begins, ends = [call.start_us for call in calls[:1]], [call.end_us for call in calls]
        for index, activity in enumerate(activities):
            if activity.name in longest:
                counts[activity.name] += 1
            if index not in suspects:
                begins.append(activity.start_us)
                ends.append(activity.end_us)
                if activity.name in longest:
                    longest[activity.name] = max(longest[activity.name], activity.duration_us)
        rare = {name for name in longest if suspected[name] <= RARE * counts[name] and not communicates(name)}
        return cls(activities, longest, rare, max(ends, default=math.inf) - min(begins, default=0.0))

    def is_longer_than_trace(self, index: int) -> bool:
        """Whether an activity is longer than the trace without the suspects."""
        return self.activities[index].duration_us > self.span_us

    def is_unlike_its_name(self, index: int) -> bool:
        """Whether an activity is 10 times as long as nearly all of its name."""
        activity = self.activities[index]
        return activity.name in self.rare and activity.duration_us > RUNAWAY * self.longest_us[activity.name] > 0

    def are_exceptions(self, indices: Iterable[int]) -> bool:
        """Whether each is longer than the trace, or unlike the others of its name."""
        return all(self.is_longer_than_trace(index) or self.is_unlike_its_name(index) for index in indices)


def _tails(activities: Sequence[GpuActivity], calls: Sequence[CudaCall], streams: Iterable[Sequence[int]]) -> list[int]:
    """The last activities of streams that may be longer than all of the trace."""
    if not calls:
        return []
    first_us, last_us = min(calls[0].start_us, activities[0].start_us), max(calls[-1].start_us, activities[-1].start_us)
    ends = (stream[-1] for stream in streams)
    return [
        index
        for index in ends
        if activities[index].launch is not None and activities[index].duration_us > last_us - first_us
    ]


def _past(activities: Sequence[GpuActivity], wait: CudaCall) -> list[int]:
    """The activities that were launched before a call waited for the GPU, and end after the call."""
    latest_us = wait.end_us + CLOCK_US
    return [
        index
        for index, each in enumerate(activities)
        if each.start_us + each.duration_us > latest_us and each.start_us < wait.end_us
        if each.launch is not None and each.launch.start_us < wait.start_us
    ]


def _last_wait(calls: Sequence[CudaCall]) -> CudaCall | None:
    """The last call that waits for all work of its GPU."""
    return next((call for call in reversed(calls) if "DeviceSynchronize" in call.name), None)
