"""Compare a trace, or several runs, with another: by kernel, by cause, and whether the change exceeds the noise.

Work is aligned kernel by kernel (trace/alignment.py) in the sequence that most steps of a side have. Steps with other
work count in the totals only. If fewer than half of a side's steps agree, kernels are matched by their names. With
several runs on a side, each run is one value of the sample. With one run on each side, each step is one value, and
steps of one run are not independent of each other.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from kinetoscope.compare.damaged import damage_of
from kinetoscope.compare.noise import Shift, shift, typical
from kinetoscope.compare.same_steps import marks_of, same_steps, sequence
from kinetoscope.ranks.one_job import ranks_text
from kinetoscope.trace.alignment import Change, ChangeKind, align
from kinetoscope.trace.events import GpuActivity, Step, Trace, TraceError
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import busy_us, extent_us, require_steps

MAX_ALIGNED = 400_000_000
"""Alignment needs a bit for each pair of activities, 50 MB; above, activities are matched by their names."""
TICK_US = 0.032
"""Step of the GPU's clock in the book's recordings: durations are multiples of it. Old profilers write whole us."""
Sample = list[list[float]]  # times of each run, step by step
Calls = dict[int, list[GpuActivity]]  # index of a step -> its calls of one kernel


@dataclass(frozen=True)
class Difference:
    """Matched GPU work: the same kernels before and after, replaced, removed or added kernels."""

    kind: ChangeKind
    before: tuple[str, ...]
    after: tuple[str, ...]
    """Names, each once."""
    calls: tuple[int, int]
    """Per step."""
    before_us: float
    after_us: float
    """Mean time per step, summed over the calls."""
    shift: Shift | None
    """None if either side has no such work."""

    @property
    def change_us(self) -> float:
        """Positive: it takes longer."""
        return round(self.after_us - self.before_us, 3)

    @property
    def name(self) -> str:
        """Decoded, for people: `cuBLAS GEMM bf16 → CUTLASS GEMM bf16`."""
        before, after = (_decoded(names) for names in (self.before, self.after))
        return before if self.kind == "same" or not after else f"{before} → {after}" if before else after


@dataclass(frozen=True)
class Comparison:
    """Two sides compared."""

    devices: tuple[str, str]
    unit: Literal["run", "step"]
    """The unit of the samples: a value is a run or a step."""
    samples: tuple[int, int]
    busy: Shift
    totals: Mapping[str, tuple[float, float]]
    """Name -> mean us per step before and after."""
    causes: Mapping[str, float]
    """Why a step's wall time changed, in us per step; the causes add up to the change."""
    differences: tuple[Difference, ...]
    """The largest change first."""
    left_out: tuple[int, int]
    """Steps that differ from the usual work: they count in the totals, not in the differences."""
    steps_from: tuple[str, str]
    """What marks the steps of each side."""
    do_steps_compare: bool
    """False: the steps of the sides hold other work, and their marks or kinds differ too."""
    notes: tuple[str, ...]
    """What was done about steps that are marked differently, or why they do not compare."""
    damage: tuple[str, ...] = ()
    """What the files of each side lost, a sentence each."""
    ranks: str = ""
    """That the files are ranks of one job, or may be, in a sentence; empty if nothing says so."""


def compare(before: Sequence[Trace], after: Sequence[Trace]) -> Comparison:
    """Compare runs with runs. Raises `TraceError` if a trace has no step or no GPU work."""
    for trace in (*before, *after):
        require_steps(trace)
        if not any(step.activities for step in trace.steps):
            raise TraceError("no GPU work in any step; record the GPU, and steps that contain the work")
    damage, ranks = damage_of(before, after), ranks_text(before, after)
    same = same_steps(before, after)
    sides = before, after = same.sides
    unit: Literal["run", "step"] = "run" if max(map(len, sides)) > 1 else "step"
    totals = {name: _means(sides, of) for name, of in TOTALS.items()}
    references, steps = zip(*map(_usual_steps, sides), strict=True)
    noise = _Noise(unit, _tick_us(step for side in sides for trace in side for step in trace.steps))
    counts = [sum(len(trace.steps) for trace in side) for side in sides]
    left_out = [count - sum(map(len, kept)) for count, kept in zip(counts, steps, strict=True)]
    is_long = math.prod(len(step.activities) for step in references) > MAX_ALIGNED
    if is_long or any(2 * left > count for left, count in zip(left_out, counts, strict=True)):
        left_out, found = [0, 0], list(_matched_by_name(sides, noise))
    else:
        changes = _grouped(align(references[0], references[1]), references)
        found = [_difference(change, references, steps, noise) for change in changes]
    fullest = max((step.activities for trace in before for step in trace.steps), key=len)
    busy = noise.shift(_busy(before), _busy(after), fullest)
    if busy is None:
        raise TraceError("the GPU is not busy in any step; record steps that contain the work")
    return Comparison(
        devices=(before[0].device or "unknown", after[0].device or "unknown"),
        unit=unit,
        samples=(_count(before, unit), _count(after, unit)),
        busy=busy,
        totals=totals,
        causes=wall_causes(totals),
        differences=tuple(sorted(found, key=lambda each: (-abs(each.change_us), each.before, each.after))),
        left_out=(left_out[0], left_out[1]),
        steps_from=(marks_of(before), marks_of(after)),
        do_steps_compare=same.do_compare,
        notes=same.notes,
        damage=damage,
        ranks=ranks,
    )


def _busy(side: Sequence[Trace]) -> Sample:
    return [[busy_us(step.activities) for step in trace.steps] for trace in side]


def _count(side: Sequence[Trace], unit: str) -> int:
    return len(side) if unit == "run" else len(side[0].steps)


def _wall_us(step: Step) -> float:
    return step.end_us - step.start_us


def _sum_us(activities: Iterable[GpuActivity]) -> float:
    return math.fsum(activity.duration_us for activity in activities)


TOTALS: Mapping[str, Callable[[Step], float]] = {
    "step on the CPU": _wall_us,
    "GPU, first start to last end": lambda step: extent_us(step.activities),
    "GPU busy": lambda step: busy_us(step.activities),
    "sum of GPU activities": lambda step: _sum_us(step.activities),
}


def _means(sides: tuple[Sequence[Trace], Sequence[Trace]], of: Callable[[Step], float]) -> tuple[float, float]:
    before, after = (fmean(fmean(map(of, trace.steps)) for trace in side) for side in sides)
    return round(before, 3), round(after, 3)


def wall_causes(totals: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Split the change of a step's wall time. `totals` are those of `Comparison`, in their order."""
    wall, extent, busy, work = (after - before for before, after in totals.values())
    causes = {
        "GPU work takes longer or shorter": work,
        "GPU work overlaps less or more": busy - work,
        "gaps between GPU work": extent - busy,
        "before and after the GPU work": wall - extent,
    }
    return {cause: round(us, 3) for cause, us in causes.items()}


def _usual_steps(side: Sequence[Trace]) -> tuple[Step, list[list[Step]]]:
    """A step with the work that most steps have, and the steps of each run with that work."""
    keys = [[sequence(step.activities) for step in trace.steps] for trace in side]
    usual = Counter(key for of_run in keys for key in of_run).most_common(1)[0][0]
    kept = [
        [step for step, key in zip(trace.steps, of_run, strict=True) if key == usual]
        for trace, of_run in zip(side, keys, strict=True)
    ]
    kept = [steps for steps in kept if steps]
    return kept[0][0], kept


def _matched_by_name(sides: tuple[Sequence[Trace], Sequence[Trace]], noise: _Noise) -> Iterator[Difference]:
    """The calls of each kernel in all steps, for steps that differ from each other or are too long to align."""
    calls: dict[tuple[str, str], tuple[list[Calls], list[Calls]]] = {}
    for side, traces in enumerate(sides):
        for run, trace in enumerate(traces):
            for number, step in enumerate(trace.steps):
                for activity in step.activities:
                    key = activity.kind, activity.name
                    if key not in calls:
                        calls[key] = [defaultdict(list) for _ in sides[0]], [defaultdict(list) for _ in sides[1]]
                    calls[key][side][run][number].append(activity)
    for (_, name), of_sides in calls.items():
        samples = [[list(map(_sum_us, of_run.values())) for of_run in runs] for runs in of_sides]
        old, new = (
            [math.fsum(times) / len(trace.steps) for times, trace in zip(sample, side, strict=True)]
            for sample, side in zip(samples, sides, strict=True)
        )
        counts = [
            fmean(sum(map(len, of_run.values())) / len(trace.steps) for of_run, trace in zip(runs, side, strict=True))
            for runs, side in zip(of_sides, sides, strict=True)
        ]
        kind: ChangeKind = "same" if all(counts) else "removed" if counts[0] else "added"
        timed = next((activities for of_run in of_sides[0] for activities in of_run.values()), [])
        names = (name,) if counts[0] else (), (name,) if counts[1] else ()
        rounded = round(counts[0]), round(counts[1])
        changed = noise.shift(samples[0], samples[1], timed)
        yield Difference(kind, *names, rounded, round(fmean(old), 3), round(fmean(new), 3), changed)


Places = tuple[list[int], list[int]]


def _grouped(
    changes: Sequence[Change], references: tuple[Step, ...]
) -> list[tuple[ChangeKind, tuple[str, ...], tuple[str, ...], Places]]:
    """Joined changes between the same kernels, with their places in the sequences of both sides."""
    indices = [{id(activity): index for index, activity in enumerate(step.activities)} for step in references]
    groups: dict[tuple[ChangeKind, tuple[str, ...], tuple[str, ...]], Places] = {}
    for change in changes:
        old, new = (tuple(dict.fromkeys(each.name for each in side)) for side in (change.before, change.after))
        places = groups.setdefault((change.kind, old, new), ([], []))
        for side, index_of, listed in zip((change.before, change.after), indices, places, strict=True):
            listed.extend(index_of[id(activity)] for activity in side)
    return [(*key, places) for key, places in groups.items()]


def _difference(
    change: tuple[ChangeKind, tuple[str, ...], tuple[str, ...], Places],
    references: tuple[Step, ...],
    steps: tuple[list[list[Step]], ...],
    noise: _Noise,
) -> Difference:
    kind, before, after, places = change
    samples: list[Sample] = [
        [[_sum_us(step.activities[index] for index in listed) for step in of_run] for of_run in kept]
        for listed, kept in zip(places, steps, strict=True)
    ]
    old, new = (round(fmean(map(fmean, sample)), 3) for sample in samples)
    timed = [references[0].activities[index] for index in places[0]]
    changed = noise.shift(samples[0], samples[1], timed) if before and after else None
    return Difference(kind, before, after, (len(places[0]), len(places[1])), old, new, changed)


@dataclass(frozen=True)
class _Noise:
    unit: Literal["run", "step"]
    tick_us: float

    def shift(self, before: Sample, after: Sample, timed: Sequence[GpuActivity]) -> Shift | None:
        """Compare the sums of the activities `timed`, over the steps that have some; None if no step has any."""
        old, new = ([[us for us in run if us > 0] for run in sample] for sample in (before, after))
        old, new = (list(filter(None, sample)) for sample in (old, new))
        total = _sum_us(timed)
        if not old or not new or total <= 0:
            return None
        # rounding start and end of each activity to a tick has a variance of tick^2 / 6
        resolution = self.tick_us * math.sqrt(len(timed) / 6) / total
        if self.unit == "step":
            return shift(old[0], new[0], resolution)
        steps = min(map(len, (*old, *new)))
        return shift(list(map(typical, old)), list(map(typical, new)), resolution / math.sqrt(steps))


def _tick_us(steps: Iterator[Step]) -> float:
    is_whole = all(activity.duration_us.is_integer() for step in steps for activity in step.activities)
    return 1.0 if is_whole else TICK_US


def _decoded(names: Sequence[str]) -> str:
    shorts = [decode_kernel_name(name).short for name in names]
    return " + ".join(dict.fromkeys(shorts))
