"""Find steps that compare: where nothing marks steps in one of two traces, its work may repeat a step of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from kinetoscope.trace.events import GpuActivity, Step, Trace, starting_in
from kinetoscope.trace.marks import WHOLE
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.step_kinds import kinds_of_step

MIN_COVERED = 0.9
"""Least share of a trace's GPU time in whole iterations; the rest is what comes before the first and after the last."""
MAX_SHIFT = 0.05
"""Most by which the share of a kind of step may differ between the sides."""
MIN_UNIT = 3
"""Least number of activities that are taken for an iteration where nothing marks steps in either trace."""
ADVICE = "Mark the steps of both in the same way, with prof.step() after each iteration"
UNMARKED = f"Nothing marks steps: whole traces are compared, which may hold different numbers of iterations. {ADVICE}."

Key = tuple[tuple[str, str], ...]
Side = Sequence[Trace]


@dataclass(frozen=True)
class SameSteps:
    """Two sides whose steps hold the same work, if possible."""

    sides: tuple[Side, Side]
    do_compare: bool = True
    """False: the steps of the sides hold other work, and their marks or kinds differ too."""
    notes: tuple[str, ...] = ()


def sequence(activities: Sequence[GpuActivity]) -> Key:
    """Kind and name of each activity, in start order."""
    return tuple((activity.kind, activity.name) for activity in activities)


def same_steps(before: Side, after: Side) -> SameSteps:
    """Split whole traces, where nothing marks steps, into iterations if they repeat the work of the other side's
    steps."""
    sides = before, after
    if text := other_shares(sides):
        return SameSteps(sides, do_compare=False, notes=(text,))
    traces = [*before, *after]
    marks = {trace.steps_from for trace in traces}
    if marks == {WHOLE}:
        return _whole_traces(sides)
    usual = [_usual(trace) for trace in traces]
    if len(marks) == 1 or len(set(usual)) == 1:
        return SameSteps(sides)
    units = {work for work, trace in zip(usual, traces, strict=True) if trace.steps_from != WHOLE}
    split = _split_all(sides, units.pop()) if len(units) == 1 else None
    text = marked_differently(*(marks_of(side) for side in sides))
    if split is None:
        return SameSteps(sides, do_compare=False, notes=(f"{text}, and their work differs. {ADVICE}.",))
    return SameSteps(split, notes=(f"{text}. The whole trace repeats the work of a step: iterations are compared.",))


def marked_differently(before: str, after: str) -> str:
    """The start of a sentence for two sides with other marks of steps."""
    return f"Steps are marked differently, by {before} before and by {after} after"


def marks_of(side: Side) -> str:
    """What marks the steps of a side."""
    return "; ".join(dict.fromkeys(trace.steps_from for trace in side))


def _whole_traces(sides: tuple[Side, Side]) -> SameSteps:
    """Whole traces, which may hold other numbers of iterations."""
    works = {sequence(step.activities) for side in sides for trace in side for step in trace.steps}
    if len({len(work) for work in works}) == 1:
        return SameSteps(sides)
    unit = _repeated(min(works, key=len))
    split = _split_all(sides, unit) if len(unit) >= MIN_UNIT else None
    if split is not None:
        counts = " and ".join(f"{len(side[0].steps):,}" for side in split)
        text = f"Nothing marks steps, but the work of the traces repeats, {counts} times: iterations are compared."
        return SameSteps(split, notes=(text,))
    return SameSteps(sides, notes=(UNMARKED,))


def other_shares(sides: tuple[Side, Side]) -> str:
    """That both sides have several kinds of step, but in other shares; else empty."""
    counts: list[list[int]] = []
    for side in sides:
        kinds = [sorted(kinds_of_step(trace), key=lambda kind: -kind.step_us) for trace in side]
        if not all(kinds) or len({len(each) for each in kinds}) > 1:
            return ""
        counts.append([sum(len(kind.steps) for kind in alike) for alike in zip(*kinds, strict=True)])
    shares = [[count / sum(each) for count in each] for each in counts]
    is_same = len(shares[0]) == len(shares[1]) and all(
        abs(old - new) <= MAX_SHIFT for old, new in zip(*shares, strict=True)
    )
    if is_same:
        return ""
    before, after = (" and ".join(map(str, each)) for each in counts)
    text = f"The sides have kinds of step in other shares, {before} before, {after} after."
    return f"{text} Record as many of each kind, or each kind alone."


def _usual(trace: Trace) -> Key:
    return Counter(sequence(step.activities) for step in trace.steps).most_common(1)[0][0]


def _repeated(work: Key) -> Key:
    """The shortest work that, repeated, is all of this work; by the failure function of Knuth, Morris and Pratt."""
    borders, border = [0], 0
    for item in work[1:]:
        while border and item != work[border]:
            border = borders[border - 1]
        border += item == work[border]
        borders.append(border)
    period = len(work) - borders[-1] if work else 0
    return work[:period] if period and len(work) % period == 0 else work


def _split_all(sides: tuple[Side, Side], unit: Key) -> tuple[Side, Side] | None:
    """Both sides with steps that hold `unit`; None if a whole trace does not repeat it."""
    split: list[list[Trace]] = [[], []]
    for side, made in zip(sides, split, strict=True):
        for trace in side:
            steps = trace.steps
            if trace.steps_from == WHOLE:
                steps = tuple(iteration for step in steps for iteration in _split(step, unit))
            if not steps:
                return None
            made.append(msgspec.structs.replace(trace, steps=steps))
    return split[0], split[1]


def _split(step: Step, unit: Key) -> list[Step]:
    """The iterations of a whole trace, each with the work `unit`; empty if they are not nearly all of its GPU time, or,
    if that work itself repeats something, not all of it."""
    work, size = sequence(step.activities), len(unit)
    first = next((index for index in range(len(work) - size + 1) if work[index : index + size] == unit), None)
    if first is None or not size:
        return []
    stop = first
    while work[stop : stop + size] == unit:
        stop += size
    share = 1.0 if len(_repeated(unit)) < size else MIN_COVERED
    if busy_us(step.activities[first:stop]) < share * busy_us(step.activities):
        return []
    parts = [step.activities[index : index + size] for index in range(first, stop, size)]
    starts = [min(a.start_us if a.launch is None else a.launch.start_us for a in part) for part in parts]
    end = max(starts[-1], min(step.end_us, max(activity.end_us for activity in parts[-1])))
    if stop < len(work) and (launch := step.activities[stop].launch) is not None:
        end = max(starts[-1], min(end, launch.start_us))
    return [
        msgspec.structs.replace(
            step,
            number=number,
            name=f"iteration #{number}",
            start_us=start,
            end_us=following,
            ops=tuple(starting_in(step.ops, start, following)),
            calls=tuple(starting_in(step.calls, start, following)),
            activities=part,
        )
        for number, (part, (start, following)) in enumerate(zip(parts, pairwise([*starts, end]), strict=True))
    ]
