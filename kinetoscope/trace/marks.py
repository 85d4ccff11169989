"""Find the marks of a process's steps, by the first of these rules that applies.

1. `ProfilerStep#N`, as `prof.step()` records it, on the thread that has most of them. A last one without any operator,
   call or GPU work is not a step: there the loop ended.
2. An annotation that repeats on one thread without overlapping itself, with more than half of the GPU time launched
   during it (of the CPU time, if there is no GPU work): of several, that with most, then the longest, the outermost.
   Names that differ only in numbers are one: `execute_context_3(...)`. Fetching a batch is a part of a step.
3. CUDA graph launches that repeat on one thread, with more than half of the GPU time: a step lasts until the next.
4. Fetches of a `DataLoader` that repeat on one thread, with more than half of the time after the first: likewise.
5. The whole trace is one step.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, last_end_us

PROFILER_STEP, GRAPH_REPLAYS, WHOLE = "ProfilerStep", "CUDA graph replays", "the whole trace"
FETCHES = "batches of a DataLoader"
STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")

_FETCH = "enumerate(DataLoader)#"
_GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_NUMBERS = re.compile(r"[0-9]+")
_CLOCK_NOISE_US = 0.002
_MAX_NAME = 200


class Mark(Struct, frozen=True):
    """The place of a step. `op`: the annotation that marks it."""

    number: int
    name: str
    start_us: float
    end_us: float
    op: CpuOp | None = None


class Part(Struct, frozen=True):
    """The events of one process, in start order."""

    process: str
    ops: Sequence[CpuOp]
    calls: Sequence[CudaCall]
    activities: Sequence[GpuActivity]

    def end_us(self) -> float:
        """The end of the last event."""
        lists: tuple[Sequence[Span], ...] = (self.ops, self.calls, self.activities)
        return max(map(last_end_us, lists))


def find_marks(part: Part) -> tuple[str, list[Mark]]:
    """The kind of marks of a process's steps, and their places."""
    if marks := _profiler_steps(part):
        return PROFILER_STEP, marks
    if repeated := _repeated_annotation(part):
        marks = [Mark(number, op.name, op.start_us, op.end_us, op) for number, op in enumerate(repeated)]
        return f"annotation {_pattern(repeated)!r}", marks
    if marks := _graph_replays(part):
        return GRAPH_REPLAYS, marks
    if marks := _fetches(part):
        return FETCHES, marks
    starts = [spans[0].start_us for spans in (part.ops, part.calls, part.activities) if spans]
    return WHOLE, [Mark(0, "whole trace", min(starts, default=0.0), part.end_us())]


def _profiler_steps(part: Part) -> list[Mark]:
    """The steps of one thread, each cut where the next begins: two steps cannot share work, and a hostile file has
    many."""
    named = [(op, match) for op in part.ops if (match := STEP_NAME.fullmatch(op.name))]
    named = [(op, match) for op, match in named if op.is_annotation] or named  # operators until PyTorch 1.9
    by_thread: dict[str, list[Mark]] = defaultdict(list)
    for op, match in named:
        by_thread[op.thread].append(Mark(int(match[1]), op.name, op.start_us, op.end_us, op))
    marks = max(by_thread.values(), key=len, default=[])
    marks = [mark for index, mark in enumerate(marks) if not index or mark.start_us > marks[index - 1].start_us]
    return [*(_cut(mark, following) for mark, following in pairwise(marks)), *marks[-1:]]


def _cut(mark: Mark, following: Mark) -> Mark:
    if mark.end_us <= following.start_us + _CLOCK_NOISE_US:
        return mark
    return Mark(mark.number, mark.name, mark.start_us, following.start_us, mark.op)


def _repeated_annotation(part: Part) -> list[CpuOp]:
    """The annotations that mark steps, by rule 2 of this file; empty without any."""
    keys: dict[str, str] = {}
    groups: dict[tuple[str, str], list[CpuOp]] = defaultdict(list)
    for op in part.ops:
        if op.is_annotation and not op.name.startswith(_FETCH):
            key = keys.get(op.name) or keys.setdefault(op.name, _NUMBERS.sub("#", op.name[:_MAX_NAME]))
            groups[op.thread, key].append(op)
    total, during = _work_during(part)
    best: tuple[float, float, list[CpuOp]] = (total / 2, 0.0, [])
    for group in groups.values():
        if len(group) < 2 or any(next_.start_us < op.end_us - _CLOCK_NOISE_US for op, next_ in pairwise(group)):
            continue
        covered = sum(during(op.start_us, op.end_us) for op in group)
        lasted = sum(op.duration_us for op in group)
        if (covered, lasted) > best[:2] and covered > total / 2:
            best = covered, lasted, group
    return best[2]


class _During(Struct, frozen=True):
    """GPU time launched in a stretch of time."""

    starts: list[float]
    sums: list[float]

    def __call__(self, start_us: float, end_us: float) -> float:
        return self.sums[bisect_left(self.starts, end_us)] - self.sums[bisect_left(self.starts, start_us)]


def _work_during(part: Part) -> tuple[float, _During | _Length]:
    """Total GPU time, and the part of it launched in a stretch of time; CPU time if there is no GPU work."""
    if not part.activities:
        start = part.ops[0].start_us if part.ops else 0.0
        return part.end_us() - start, _Length()
    launched = sorted((a.launch.start_us, a.duration_us) for a in part.activities if a.launch is not None)
    sums = [0.0, *accumulate(us for _, us in launched)]
    return sum(activity.duration_us for activity in part.activities), _During([start for start, _ in launched], sums)


class _Length(Struct, frozen=True):
    def __call__(self, start_us: float, end_us: float) -> float:
        return end_us - start_us


def _pattern(repeated: Sequence[CpuOp]) -> str:
    """The common name, with `#` for numbers that differ."""
    name = repeated[0].name
    return name if all(op.name == name for op in repeated) else _NUMBERS.sub("#", name[:_MAX_NAME])


def _graph_replays(part: Part) -> list[Mark]:
    by_thread: dict[str, list[CudaCall]] = defaultdict(list)
    for call in part.calls:
        if _GRAPH_LAUNCH.match(call.name):
            by_thread[call.thread].append(call)
    replays = max(by_thread.values(), key=len, default=[])
    ids = set(map(id, replays))
    replayed = sum(activity.duration_us for activity in part.activities if id(activity.launch) in ids)
    if len(replays) < 2 or replayed <= sum(activity.duration_us for activity in part.activities) / 2:
        return []
    starts = [*(call.start_us for call in replays), part.end_us()]
    return [Mark(number, f"graph replay #{number}", start, end) for number, (start, end) in enumerate(pairwise(starts))]


def _fetches(part: Part) -> list[Mark]:
    """A step for each batch that a `DataLoader` yields, by rule 4 of this file; empty if it is not the training
    loop's."""
    groups: dict[tuple[str, str], list[CpuOp]] = defaultdict(list)
    for op in part.ops:
        if op.is_annotation and op.name.startswith(_FETCH):
            groups[op.thread, op.name].append(op)
    fetches = max(groups.values(), key=len, default=[])
    if len(fetches) < 2 or any(next_.start_us < op.end_us - _CLOCK_NOISE_US for op, next_ in pairwise(fetches)):
        return []
    total, during = _work_during(part)
    starts = [*(op.start_us for op in fetches), part.end_us()]
    if during(starts[0], starts[-1]) <= total / 2:
        return []
    return [Mark(number, f"batch #{number}", start, end) for number, (start, end) in enumerate(pairwise(starts))]
