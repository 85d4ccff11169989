"""Find the marks of a process's steps, by the first of these rules that applies.

1. `ProfilerStep#N`, as `prof.step()` records it, on the thread that has most of them. A last one without any operator,
   launch or GPU work is not a step: there the loop ended. One inside another of its number is the same step.
2. Annotated parts that take turns on one thread, such as `forward`, `backward` and `Optimizer.step#SGD.step`, if none
   of them has nearly all of the GPU time: a step lasts until the next. An annotation beside them, as in rule 3, marks
   other steps, such as `evaluate`.
3. An annotation that repeats on one thread without overlapping itself, with more than half of the GPU time launched
   during it (of the CPU time, if there is no GPU work): of several, that with most, then the longest, the outermost,
   and those beside it that have a tenth, as `train` and `validate`. Names that differ only in numbers are one:
   `execute_context_3(...)`; but layers that take turns are parts by rule 2. Fetching a batch is a part of a step, and
   an epoch has steps, if annotations in it mark them.
4. In a trace with `Optimizer.step#...`: fetches of a `DataLoader`, as in rule 6, else a step for each of the
   optimizer's, with more than half of the GPU time.
5. CUDA graph launches that repeat on one thread, with more than half of the GPU time: a step lasts until the next, or
   until the prompt of the next request. Of several graphs that are replayed in turn, the first begins a step.
6. Fetches of a `DataLoader` that repeat on one thread, with more than half of the time after the first: likewise.
7. Launches that repeat: see loops.py. Tokens that it finds come before rule 6, and before rule 5 unless each is a
   replay.
8. Calls of compiled functions, if nearly all GPU time is in them.
9. The whole trace is one step.

A last step without an end of its own ends with its own work, on the CPU and on the GPU.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from functools import cache
from itertools import pairwise
from statistics import median_low

from kinetoscope.trace.annotations import (
    FETCH,
    WHOLE_STEP,
    Group,
    annotation_groups,
    find_iterations,
    pattern,
    starts_in,
    step_annotations,
    with_steps,
)
from kinetoscope.trace.events import CpuOp, CudaCall
from kinetoscope.trace.loops import Loop, find_loop
from kinetoscope.trace.process_events import CLOCK_NOISE_US, Mark, Part, Work, find_work, launched_us, until_next
from kinetoscope.trace.tokens import may_start_token, outermost

PROFILER_STEP, GRAPH_REPLAYS, WHOLE = "ProfilerStep", "CUDA graph replays", "the whole trace"
FETCHES, TOKENS, ITERATIONS = "batches of a DataLoader", "tokens of a loop", "iterations of a loop"
STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")

COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "TorchDynamo Cache Lookup")
MIN_BATCH = 0.1
"""Least number of launches after a fetch, as a part of the usual number: with fewer, it found the data at its end."""
MANY_MORE = 4
"""How many times as many launches as usual (and 4 more) follow a replay if a prompt is among them."""
_MAX_BUFFERS = 3
_EPOCH = re.compile("epoch", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")


def find_marks(part: Part) -> tuple[str, list[Mark]]:
    """The kind of marks of a process's steps, and their places."""
    if marks := _profiler_steps(part):
        return PROFILER_STEP, marks
    work = cache(lambda: find_work(part))
    if annotated := _annotated(part, work):
        return annotated
    loop = find_loop(part.ops, part.calls, part.activities)
    if loop is not None and loop.are_tokens and not loop.are_replays:
        return TOKENS, _marks(loop, "token")
    if marks := _graph_replays(part):
        return GRAPH_REPLAYS, marks
    if loop is not None and loop.are_tokens:
        return TOKENS, _marks(loop, "token")
    if marks := _fetches(part, work):
        return FETCHES, marks
    if loop is not None:
        return ITERATIONS, _marks(loop, "iteration")
    compiled = [group for group in annotation_groups(part) if _is_compiled(group)]
    if compiled and (called := _annotated_by(compiled, part, work)) and work().share(called[1]) >= WHOLE_STEP:
        return called
    return WHOLE, [Mark(0, "whole trace", part.start_us(), part.end_us())]


def _marks(loop: Loop, name: str) -> list[Mark]:
    return [Mark(number, f"{name} #{number}", *span) for number, span in enumerate(loop.spans)]


def _profiler_steps(part: Part) -> list[Mark]:
    """The steps of one thread, each cut where the next begins: two steps cannot share work, and a hostile file has
    many."""
    numbers = {name: int(match[1]) for name in {op.name for op in part.ops} if (match := STEP_NAME.fullmatch(name))}
    if not numbers:
        return []
    named = [op for op in part.ops if op.name in numbers]
    named = [op for op in named if op.is_annotation] or named  # operators until PyTorch 1.9
    by_thread: dict[str, list[Mark]] = defaultdict(list)
    for op in named:
        by_thread[op.thread].append(Mark(numbers[op.name], op.name, op.start_us, op.end_us, op))
    marks = max(by_thread.values(), key=len, default=[])
    kept: list[Mark] = []
    for mark in marks:
        if not kept or not (mark.start_us <= kept[-1].start_us or _is_same(kept[-1], mark)):
            kept.append(mark)
    return [*(_cut(mark, following) for mark, following in pairwise(kept)), *kept[-1:]]


def _is_same(mark: Mark, inner: Mark) -> bool:
    """Whether the mark inside another is of the same step, as two profilers at once record it."""
    return mark.number == inner.number and inner.start_us < mark.end_us - CLOCK_NOISE_US


def _cut(mark: Mark, following: Mark) -> Mark:
    return mark if mark.end_us <= following.start_us + CLOCK_NOISE_US else _cut_at(mark, following.start_us)


def _annotated(part: Part, find: Callable[[], Work]) -> tuple[str, list[Mark]] | None:
    """Steps by rules 2 to 4 of this file. Annotated epochs mark no steps if annotations in them do."""
    groups = [group for group in annotation_groups(part) if not _is_compiled(group)]
    if not groups:
        return None
    inner = [group for group in groups if not _EPOCH.search(group[0].name)]
    if 0 < len(inner) < len(groups):
        found = _annotated_by(inner, part, find)
        if found and find().share(found[1]) >= WHOLE_STEP:
            return found
    return _annotated_by(groups, part, find)


def _is_compiled(group: Group) -> bool:
    """Whether these are PyTorch's annotations of compiled functions, of which a model may have one for each layer."""
    return group[0].name.startswith(COMPILED)


def _annotated_by(groups: Sequence[Group], part: Part, find: Callable[[], Work]) -> tuple[str, list[Mark]] | None:
    work = find()
    steps = step_annotations(groups, work)
    is_whole = any(work.share(group) >= WHOLE_STEP for group in steps)
    beside = [group for group in groups if not steps or group[0].thread == steps[0][0].thread]
    iterations = None if is_whole else find_iterations(part, beside, work)
    if iterations and iterations.are_annotated and len(iterations.names) > 1:
        others = [group for group in steps if not starts_in(group, iterations.cores)]
        return _all_names([iterations.text], others), with_steps(iterations.marks, others)
    if steps:
        return _all_names([], steps), with_steps([], steps)
    if iterations:
        marks = _fetches(part, find)
        return (FETCHES, marks) if marks else (iterations.text, iterations.marks)
    return None


def _all_names(marked_by: list[str], groups: Sequence[Group]) -> str:
    names = [repr(pattern(group)) for group in groups]
    return ", ".join(marked_by + ([f"annotation{'s' * (len(names) > 1)} {', '.join(names)}"] if names else []))


def _graph_replays(part: Part) -> list[Mark]:
    by_thread: dict[str, list[CudaCall]] = defaultdict(list)
    names = {name for name in {call.name for call in part.calls} if _GRAPH_LAUNCH.match(name)}
    for call in part.calls if names else ():
        if call.name in names:
            by_thread[call.thread].append(call)
    replays = max(by_thread.values(), key=len, default=[])
    if len(replays) < 2:
        return []
    ids = set(map(id, replays))
    replayed = sum(activity.duration_us for activity in part.activities if id(activity.launch) in ids)
    if replayed <= sum(activity.duration_us for activity in part.activities) / 2:
        return []
    starts = [call.start_us for call in replays]
    return _without_prompts(part, ids, until_next(part, starts[:: _graphs_in_turn(part, replays)], "graph replay"))


def _without_prompts(part: Part, replays: Set[int], marks: list[Mark]) -> list[Mark]:
    """Replays whose steps end after as many launches without a graph as usual, where many more follow that begin with
    an embedding: the prompt of the next request."""
    places = [mark.start_us for mark in marks]
    launched: list[list[tuple[float, bool]]] = [[] for _ in marks]
    for activity in part.activities:
        at = launched_us(part, activity)
        index = -1 if at is None else bisect_right(places, at) - 1
        if at is not None and index >= 0 and id(activity.launch) not in replays:
            outer = outermost(activity.op)
            starts_token = may_start_token(activity.name) or (outer is not None and may_start_token(outer.name))
            launched[index].append((at if outer is None else min(at, outer.start_us), starts_token))
    usual = median_low(map(len, launched))
    return [
        _cut_at(mark, _prompt_us(sorted(times), usual)) if len(times) > MANY_MORE * (usual + 1) else mark
        for mark, times in zip(marks, launched, strict=True)
    ]


def _prompt_us(launched: Sequence[tuple[float, bool]], usual: int) -> float:
    """When a prompt begins among the launches after a replay; infinite without one."""
    return next((at for at, starts_token in launched[usual:] if starts_token), math.inf)


def _cut_at(mark: Mark, end_us: float) -> Mark:
    return Mark(mark.number, mark.name, mark.start_us, max(mark.start_us, min(mark.end_us, end_us)), mark.op)


def _graphs_in_turn(part: Part, replays: Sequence[CudaCall]) -> int:
    """The number of different graphs that are replayed in turn, as where each layer has a graph of its own; else 1.

    Two or three graphs with the same kernels may each be a whole step, with buffers of its own.
    """
    kernels: dict[int, list[tuple[object, ...]]] = {id(call): [] for call in replays}
    for activity in part.activities:
        if (found := kernels.get(id(activity.launch))) is not None:
            found.append((activity.graph_id, activity.name, activity.grid))
    graphs = [tuple(kernels[id(call)]) for call in replays]
    count = len(set(graphs))
    if count <= _MAX_BUFFERS and len({tuple(work[1:] for work in graph) for graph in graphs}) == 1:
        return 1
    is_in_turn = all(graph == graphs[index % count] for index, graph in enumerate(graphs))
    return count if is_in_turn and 2 * count <= len(graphs) else 1


def _fetches(part: Part, find: Callable[[], Work]) -> list[Mark]:
    """A step for each batch that a `DataLoader` yields, by rule 6 of this file; empty if it is not the training
    loop's. A fetch without work until the next found the data at its end."""
    by_thread: dict[str, list[CpuOp]] = defaultdict(list)
    for op in part.ops:
        if op.is_annotation and op.name.startswith(FETCH):
            fetches = by_thread[op.thread]
            if not fetches or op.start_us >= fetches[-1].end_us - CLOCK_NOISE_US:  # not one inside another
                fetches.append(op)
    fetches = max(by_thread.values(), key=len, default=[])
    if len(fetches) < 2:
        return []
    work = find()
    if work.during_us(fetches[0].start_us, part.end_us()) <= work.total_us / 2:
        return []
    marks = until_next(part, [op.start_us for op in fetches], "batch")
    launches = [work.launches(mark.start_us, mark.end_us) for mark in marks]
    least = MIN_BATCH * median_low(launches)
    kept = [mark for mark, count in zip(marks, launches, strict=True) if count >= least]
    return [Mark(number, f"batch #{number}", mark.start_us, mark.end_us) for number, mark in enumerate(kept)]
