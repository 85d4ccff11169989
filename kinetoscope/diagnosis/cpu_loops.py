"""Short operators in a row on the CPU, as a loop in Python runs them, and what running them as one would save."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import fmean

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import LONG_US
from kinetoscope.diagnosis.sites import MAX_DEPTH, find_places
from kinetoscope.trace.events import CpuOp, Span
from kinetoscope.trace.intervals import length_us, ns

MAX_GAP_US = 100.0
"""A longer time between two operators of a loop is not the loop's own Python: something else took it."""
MAX_PLACED = 100_000
"""Of more operators, an even sample tells which line calls most of them."""
OPTIMIZER = "Optimizer.step#"
_BACKWARD = "autograd::engine::evaluate_function: "


def called_operators(facts: Facts) -> list[CpuOp]:
    """The operators in steps that the program or autograd called, not another operator, in start order."""
    return [op for op in facts.step_operators if is_called(op)]


def is_called(op: CpuOp) -> bool:
    """Whether no other operator called it; an annotation is not called."""
    return not op.is_annotation and (op.parent is None or op.parent.is_annotation)


def is_node(name: str) -> bool:
    """Whether an operator of this name is autograd's engine at a node of the backward pass."""
    return name.startswith(_BACKWARD)


def in_optimizer(op: CpuOp) -> bool:
    """Whether an optimizer's step called it."""
    around = op.parent
    for _ in range(MAX_DEPTH):
        if around is None:
            return False
        if around.name.startswith(OPTIMIZER):
            return True
        around = around.parent
    return False


def shown_name(op: CpuOp) -> str:
    """`SelectBackward0` for the operator with which autograd's engine calls it."""
    return op.name.removeprefix(_BACKWARD)


def runs(ops: Iterable[CpuOp], belongs: Callable[[CpuOp], bool]) -> list[Span]:
    """Times from the first to the last of successive operators of a thread for which `belongs` is true, with the short
    gaps between them; each is named after its longest operator."""
    found: list[Span] = []
    by_thread = attrgetter("thread")
    for _, of_thread in groupby(sorted(ops, key=by_thread), key=by_thread):  # sorting keeps the start order
        for inside, group in groupby(of_thread, key=belongs):
            if inside:
                found += _without_pauses(list(group))
    return found


def _without_pauses(run: list[CpuOp]) -> list[Span]:
    starts = pairwise([op.start_us for op in run])
    far = [index for index, (start, next_start) in enumerate(starts, 1) if next_start - start > MAX_GAP_US]
    cuts = [index for index in far if run[index].start_us - run[index - 1].end_us > MAX_GAP_US]
    found = []
    for begin, end in pairwise((0, *cuts, len(run))):
        first, last = run[begin], run[end - 1]
        name = max(run[begin:end], key=attrgetter("duration_us")).name
        found.append(Span(name, first.start_us, round(last.end_us - first.start_us, 3)))
    return found


def one_of_each_us(ops: Iterable[CpuOp]) -> float:
    """The mean call of each name, added up: what is left of a loop that one operator each replaces, at the least."""
    durations: dict[str, list[float]] = defaultdict(list)
    for op in ops:
        durations[op.name].append(op.duration_us)
    return math.fsum(map(fmean, durations.values()))


def loop_overhead_us(facts: Facts, called: Sequence[CpuOp]) -> float:
    """Times in which the steps' threads run no operator, per step: those below `LONG_US`, and those before a node of
    the backward pass, in which autograd orders the graph."""

    def comes_before_node(time: int) -> bool:
        index = bisect_right(called, time, key=_start_ns)
        return index < len(called) and is_node(called[index].name)

    times = facts.cpu_parts["Python"]
    short = [each for each in times if each[1] - each[0] < LONG_US * 1000 or comes_before_node(each[0])]
    return length_us(short) / len(facts.steps)


def _start_ns(op: CpuOp) -> int:
    return ns(op.start_us)


def busiest_place(facts: Facts, ops: Sequence[CpuOp]) -> str:
    """The program's line that calls most of the operators, by their time; without stacks, the annotation around them.

    Operators of the backward pass come from no line of their own: the forward's count if there are any.
    """
    forward = [op for op in ops if not is_node(op.name)] or list(ops)
    forward = forward[:: 1 + len(forward) // MAX_PLACED]
    times: dict[str, float] = defaultdict(float)
    for op, place in zip(forward, find_places(facts.trace, [(op.thread, op.start_us) for op in forward]), strict=True):
        times[place] += op.duration_us
    return max(times, key=lambda place: (times[place], place), default="")
