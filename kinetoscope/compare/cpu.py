"""Compare traces without GPU work: the time of a step, what the CPU does in it, and each operator's own time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from kinetoscope.compare.damaged import damage_of
from kinetoscope.compare.noise import Shift, shift, typical
from kinetoscope.compare.same_steps import ADVICE, UNMARKED, marked_differently, marks_of, other_shares
from kinetoscope.diagnosis.cpu_states import CAUSES
from kinetoscope.diagnosis.cpu_times import STATES, cpu_causes, is_cpu_only, own_times
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.ranks.one_job import ranks_text
from kinetoscope.trace.alignment import ChangeKind
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.marks import WHOLE
from kinetoscope.trace.queries import require_steps, step_us

CLOCK_US = 0.001
"""Step of the clock in a trace."""
Sides = tuple[Sequence[Trace], Sequence[Trace]]


@dataclass(frozen=True)
class OperatorDifference:
    """An operator's own time before and after."""

    name: str
    kind: ChangeKind
    calls: tuple[float, float]
    """Per step."""
    before_us: float
    after_us: float
    """Mean time per step, without the operators inside."""
    shift: Shift | None
    """None if either side has no such operator."""

    @property
    def change_us(self) -> float:
        """Positive: it takes longer."""
        return round(self.after_us - self.before_us, 3)


@dataclass(frozen=True)
class CpuComparison:
    """Two sides compared, without their warm-up."""

    unit: Literal["run", "step"]
    """The unit of the samples: a value is a run or a step."""
    samples: tuple[int, int]
    step: Shift
    totals: Mapping[str, tuple[float, float]]
    """`step`, then what the CPU does -> mean us per step before and after; the others add up to `step`."""
    differences: tuple[OperatorDifference, ...]
    """The largest change first."""
    options: tuple[str, ...]
    """Options of the profiler with which one side was recorded and the other was not."""
    steps_from: tuple[str, str]
    """What marks the steps of each side."""
    do_steps_compare: bool
    """False: the steps of the sides call other operators, and their marks or kinds differ too."""
    notes: tuple[str, ...]
    """Why steps do not compare, or may not."""
    damage: tuple[str, ...] = ()
    """What the files of each side lost, a sentence each."""
    ranks: str = ""
    """That the files are ranks of one job, or may be, in a sentence; empty if nothing says so."""


def are_cpu(before: Sequence[Trace], after: Sequence[Trace]) -> bool:
    """Whether all traces are of a CPU alone. Raises `TraceError` if those of one side are."""
    sides = [[bool(trace.steps) and is_cpu_only(Facts(trace)) for trace in side] for side in (before, after)]
    has_gpu = [any(step.activities for trace in side for step in trace.steps) for side in (before, after)]
    if all(all(side) for side in sides):
        return True
    if any(all(side) for side in sides) and any(has_gpu):
        raise TraceError(
            "one side has GPU work and the other has none: record both sides with the same activities and on like "
            "machines"
        )
    return False


def compare_cpu(before: Sequence[Trace], after: Sequence[Trace]) -> CpuComparison:
    """Compare runs with runs, all of a CPU alone. Raises `TraceError` if a trace has no step, or steps of no time."""
    for trace in (*before, *after):
        require_steps(trace)
    sides = [list(map(Facts, side)) for side in (before, after)]
    unit: Literal["run", "step"] = "run" if max(map(len, sides)) > 1 else "step"
    steps = [[[step_us(step) for step in facts.steps] for facts in side] for side in sides]
    changed = _shift(unit, steps[0], steps[1])
    if changed is None:
        raise TraceError("the steps of one side take no time; record the trace again")
    counts = [len(side) if unit == "run" else len(side[0].steps) for side in sides]
    differences = sorted(_operators(sides, unit), key=lambda each: (-abs(each.change_us), each.name))
    why = _incomparable(before, after, differences)
    is_whole = {trace.steps_from for trace in (*before, *after)} == {WHOLE}
    return CpuComparison(
        unit=unit,
        samples=(counts[0], counts[1]),
        step=changed,
        totals=_totals(sides, steps),
        differences=tuple(differences),
        options=tuple(_options(before, after)),
        steps_from=(marks_of(before), marks_of(after)),
        do_steps_compare=not why,
        notes=(why,) if why else (UNMARKED,) if is_whole else (),
        damage=damage_of(before, after),
        ranks=ranks_text(before, after),
    )


def _incomparable(before: Sequence[Trace], after: Sequence[Trace], differences: Sequence[OperatorDifference]) -> str:
    """Why the steps of the sides do not compare; empty if they do."""
    marks = marks_of(before), marks_of(after)
    if marks[0] != marks[1] and any(round(each.calls[0]) != round(each.calls[1]) for each in differences):
        return f"{marked_differently(*marks)}, and their operators differ. {ADVICE}."
    return other_shares((before, after))


def _shift(unit: str, before: list[list[float]], after: list[list[float]]) -> Shift | None:
    """Compare the times of the runs' steps; None if a side has none above zero."""
    samples = [[[us for us in run if us > 0] for run in side] for side in (before, after)]
    old, new = ([run for run in side if run] for side in samples)
    if not old or not new:
        return None
    values = (old[0], new[0]) if unit == "step" else (list(map(typical, old)), list(map(typical, new)))
    return shift(*values, CLOCK_US / fmean(values[0]))


def _totals(sides: list[list[Facts]], steps: list[list[list[float]]]) -> dict[str, tuple[float, float]]:
    """Means per step of each run, and their means."""
    old, new = (round(fmean(map(fmean, side)), 3) for side in steps)
    totals = {"step": (old, new)}
    states = [list(map(cpu_causes, side)) for side in sides]
    for cause in CAUSES:
        pair = [round(fmean(times.get(cause, 0.0) for times in side), 3) for side in states]
        if any(pair):
            totals[STATES[cause][0]] = pair[0], pair[1]
    return totals


def _operators(sides: list[list[Facts]], unit: str) -> Iterator[OperatorDifference]:
    times = [[_by_operator(facts) for facts in side] for side in sides]
    names = dict.fromkeys(name for side in times for run in side for name in run)
    for name in names:
        calls, means, samples = [], [], []
        for side, facts in zip(times, sides, strict=True):
            counted = [run.get(name, (0, [])) for run in side]
            calls.append(fmean(count / len(each.steps) for (count, _), each in zip(counted, facts, strict=True)))
            means.append(fmean(sum(us) / len(each.steps) for (_, us), each in zip(counted, facts, strict=True)))
            samples.append([us for _, us in counted])
        kind: ChangeKind = "same" if all(calls) else "removed" if calls[0] else "added"
        changed = _shift(unit, samples[0], samples[1])
        old, new = (round(us, 3) for us in means)
        yield OperatorDifference(name, kind, (calls[0], calls[1]), old, new, changed)


def _by_operator(facts: Facts) -> dict[str, tuple[int, list[float]]]:
    """Operator -> its calls, and its own time in each step in us."""
    starts = [step.start_us for step in facts.steps]
    own: dict[str, list[int]] = defaultdict(lambda: [0] * len(starts))
    counts: dict[str, int] = defaultdict(int)
    for op, own_ns in own_times(facts.step_operators):
        own[op.name][bisect_right(starts, op.start_us) - 1] += own_ns
        counts[op.name] += 1
    return {name: (counts[name], [ns / 1000 for ns in times]) for name, times in own.items()}


def _options(before: Sequence[Trace], after: Sequence[Trace]) -> Iterator[str]:
    recorded = {
        "with_stack": [bool(trace.functions) for trace in (*before, *after)],
        "profile_memory": [bool(trace.memory) for trace in (*before, *after)],
        "record_shapes": [any(op.input_types for op in trace.cpu_ops) for trace in (*before, *after)],
    }
    return (option for option, has in recorded.items() if any(a != b for a, b in pairwise(has)))
