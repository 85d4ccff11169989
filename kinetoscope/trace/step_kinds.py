"""Tell kinds of step apart: prefill and decode, training and validation.

Steps are of two kinds if different annotations mark them, or if their own work differs: the GPU is busy at least 1.5
times as long, in all or, if they launch 1.5 times as many kernels, in the median, and they launch other kernels or
launch them in other sizes or with other shapes, or their marks have other names. Equal launches are two kinds only from
3 times on, and only without shapes: a slower clock seldom does that. Collectives do not count, since they wait, nor
copies: a step that saves a checkpoint does the same work. Without GPU work, operators count. A step whose time is long
for another reason, such as a late batch, is no kind of its own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, median_low

from msgspec import Struct

from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.events import GpuActivity, Step, Trace
from kinetoscope.trace.intervals import length_us, union_of
from kinetoscope.trace.missing_gpu import is_launch
from kinetoscope.trace.queries import busy_us, step_us
from kinetoscope.trace.text import without_numbers

MIN_RATIO, MIN_RATIO_OF_EQUAL = 1.5, 3.0
MIN_STEPS, MAX_KINDS = 2, 3
MIN_SHARE = 0.8
"""Least share of the steps that are of a kind with others: where more are single, the work varies, without kinds."""


class KindOfStep(Struct, frozen=True):
    """Steps that do the same kind of work."""

    steps: tuple[Step, ...]

    @property
    def total_us(self) -> float:
        """Time of all these steps."""
        return sum(map(long_run_us, self.steps))

    @property
    def step_us(self) -> float:
        """Time of a step: the low median."""
        return median_low(map(long_run_us, self.steps))

    @property
    def gpu_busy_us(self) -> float:
        """Mean time per step in which a GPU works."""
        return round(sum(busy_us(step.activities) for step in self.steps) / len(self.steps), 3)

    @property
    def name(self) -> str:
        """The name that all marks of these steps have; empty if they differ."""
        names = {step.name for step in self.steps}
        return names.pop() if len(names) == 1 else ""


def long_run_us(step: Step) -> float:
    """Wall time of a step, or its GPU work if that takes longer, because the CPU runs ahead."""
    return max(step_us(step), busy_us(step.activities))


def kinds_of_step(trace: Trace) -> tuple[KindOfStep, ...]:
    """The kinds of step, that with most time first; empty if there is only one, or if the trace cannot tell.

    Where several processes are merged into the file, their steps differ for other reasons.
    """
    steps = () if trace.processes else trace.steps
    if len(steps) < 2 * MIN_STEPS:
        return ()
    clusters = _by_name(steps) or _by_work(steps)
    kinds = (KindOfStep(tuple(steps[index] for index in sorted(cluster))) for cluster in clusters)
    return tuple(sorted(kinds, key=lambda kind: -kind.total_us))


def _by_name(steps: Sequence[Step]) -> list[list[int]]:
    """The indices of steps whose marks have one name, apart from numbers; empty without several such names."""
    clusters: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        clusters[without_numbers(step.name)].append(index)
    return _enough(list(clusters.values()), len(steps))


def _enough(clusters: list[list[int]], count: int) -> list[list[int]]:
    """The clusters without single steps; empty if these are too many, or the clusters too few or many."""
    clusters = [cluster for cluster in clusters if len(cluster) >= MIN_STEPS]
    is_clear = 2 <= len(clusters) <= MAX_KINDS and sum(map(len, clusters)) >= MIN_SHARE * count
    return clusters if is_clear else []


def _by_work(steps: Sequence[Step]) -> list[list[int]]:
    if any(map(_lacks_kernels, steps)):
        return []
    works = list(map(work_us, steps))
    clusters = _clusters(works, steps) or _clusters([float(_launches(step)) for step in steps], steps)
    medians = [median(works[index] for index in cluster) for cluster in clusters]
    return clusters if all(high >= MIN_RATIO * low for low, high in pairwise(medians)) else []


def _clusters(works: Sequence[float], steps: Sequence[Step]) -> list[list[int]]:
    """The indices of steps with about as much work, the least first; empty without two or more clear clusters."""
    if min(works) <= 0:
        return []
    order = sorted(range(len(steps)), key=works.__getitem__)
    clusters = [[order[0]]]
    for before, after in pairwise(order):
        if works[after] >= MIN_RATIO * works[before]:
            clusters.append([])
        clusters[-1].append(after)
    clusters = _enough(clusters, len(steps))
    names = Counter(step.name for step in steps)
    launched = [{_launched(steps[index], names) for index in cluster} for cluster in clusters]
    is_unknown = bool(steps[0].activities) and not has_shapes(steps[0])
    least = MIN_RATIO_OF_EQUAL if is_unknown else math.inf
    for (low, high), (some, others) in zip(pairwise(clusters), pairwise(launched), strict=True):
        if some & others and works[high[0]] < least * works[low[-1]]:
            return []
    return clusters


def usual_us(steps: Sequence[Step]) -> float:
    """The time in the long run that the first of several steps has if it is like the others of its kind.

    The median of the later steps with as much work of their own, else of all later steps; the first step's own time,
    if a step is at least half as long again after a shorter one.
    """
    first, *others = map(long_run_us, steps)
    own_work_us, *works = map(work_us, steps)
    alike = [
        us
        for us, work in zip(others, works, strict=True)
        if max(work, own_work_us) < MIN_RATIO * min(work, own_work_us)
    ]
    usual = median(alike or others)
    since_short = next((index for index, us in enumerate(others) if 2 * us < first), len(others))
    return first if any(2 * us >= first for us in others[since_short:]) else usual


def has_larger_work(first: Step, others: Sequence[Step]) -> bool:
    """Whether a step is longer than the others because its kernels have more to do, as a prompt before tokens, or a
    longer sequence.

    Most of the additional time is GPU work of its own, in about as many kernels, of which most have other sizes.
    Without GPU work, operators count. A step that tunes runs more kernels. Compiling and allocating add CPU time.
    """
    usual = sorted(others, key=work_us)[(len(others) - 1) // 2]
    sizes, usual_sizes = map(_sizes, (first, usual))
    counts = sorted((sizes.total(), usual_sizes.total()))
    if not counts[0] or counts[1] >= MIN_RATIO * counts[0]:
        return False
    longer_us = step_us(first) - median(map(step_us, others))
    is_work = 2 * (work_us(first) - work_us(usual)) > longer_us > 0
    return is_work and (sizes & usual_sizes).total() <= counts[1] / 2


def _sizes(step: Step) -> Counter[object]:
    """The kernels of a step with their grids and shapes; without GPU work, its operators with their shapes."""
    if step.activities:
        return Counter(map(sized, step.kernels))
    return Counter((op.name, op.input_shapes) for op in step.ops if not op.is_annotation)


def work_us(step: Step) -> float:
    """Time of a step's own work: of its kernels, without collectives, which wait; else in operators."""
    if step.activities:
        return busy_us(kernel for kernel in step.kernels if not is_collective(kernel))
    return length_us(union_of(op for op in step.ops if not op.is_annotation))


def _launches(step: Step) -> int:
    return len(step.kernels) or sum(not op.is_annotation for op in step.ops)


def _lacks_kernels(step: Step) -> bool:
    """Whether the profiler lost kernels: then the others tell nothing of the step's work."""
    there = {id(activity.launch) for activity in step.activities}
    return any(is_launch(call.name) and id(call) not in there for call in step.calls)


def _launched(step: Step, names: Counter[str]) -> object:
    """What a step launches, and the name of its mark if other steps have it too."""
    name = step.name if names[step.name] > 1 else ""
    if step.activities:
        return name, tuple(map(sized, step.kernels))
    return name, tuple((op.name, op.input_shapes) for op in step.ops if not op.is_annotation)


def sized(kernel: GpuActivity) -> tuple[object, ...]:
    """A kernel with its grid, and the shapes of its operator if the trace has them."""
    return kernel.name, kernel.grid, kernel.op.input_shapes if kernel.op is not None else ()


def has_shapes(step: Step) -> bool:
    """Whether the operators of most kernels of a step have shapes."""
    kernels = step.kernels
    return 2 * sum(kernel.op is not None and bool(kernel.op.input_shapes) for kernel in kernels) > len(kernels)
