"""Helpers of chapters' tests: the default device's recordings, some of them altered in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Step, Trace
from snippets.lab.finding.book import Verdict, find_claim, findings, judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.ranks import on_ranks
from snippets.lab.recording.schema import NotRecorded, NotTimed, Point, Recording, Timing
from tests.lab.samples import BOOK, with_ceilings

replace = msgspec.structs.replace
RECORDED = BOOK
"""The default device as it is recorded."""


@cache
def _recording(experiment: str) -> Recording:
    return RECORDED[experiment].recording


@cache
def _is_recorded(experiment: str) -> bool:
    return RECORDED[experiment].is_recorded


@cache
def _trace(experiment: str, rank: int) -> Trace:
    return on_ranks(RECORDED[experiment])[rank].trace


def verdict(device: Device, claim_id: str) -> Verdict:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, device)


def status(device: Device, claim_id: str) -> Status:
    return verdict(device, claim_id).status


def measured(device: Device, claim_id: str) -> Figure:
    figure = verdict(device, claim_id).measured
    assert figure is not None
    return figure


def poor_figures(chapter: str, device: Device, *, may_be_missing: bool = False) -> list[str]:
    """The figures of a chapter that are not conclusive or have no text, each with the reason."""
    found = []
    for name, measure in findings(chapter).figures.items():
        try:
            figure = measure(device)
        except (NotRecorded, NotTimed) as error:
            if not may_be_missing:
                found.append(f"{name}: {error}")
            continue
        if not figure.text:
            found.append(f"{name}: has no text")
        elif not figure.conclusive:
            found.append(f"{name}: {figure.text} is not conclusive {figure.doubt}".rstrip())
    return found


@dataclass(frozen=True, eq=False)
class AlteredDevice(Device):
    """The default device; an entry of `recordings` or `traces` replaces the recording or trace of its name.

    `traces` has those of rank 0, and `rank_traces` those of other ranks, by name and rank.

    Each method alters the result of earlier methods.
    """

    root: Path = RECORDED.root
    name: str = RECORDED.name
    recordings: dict[str, Recording] = field(default_factory=dict)
    traces: dict[str, Trace] = field(default_factory=dict)
    rank_traces: dict[tuple[str, int], Trace] = field(default_factory=dict)

    def __getitem__(self, experiment: str) -> Run:
        path, _, selector = experiment.partition("[")
        run = Run(self, path, selector.removesuffix("]"))
        if not _is_recorded(path):
            run.require_existence()
        return run

    def recording_of(self, run: Run) -> Recording:
        return self.recordings.get(run.id) or _recording(run.id)

    def trace_of(self, run: Run) -> Trace:
        altered = self.rank_traces.get((run.id, run.rank)) if run.rank else self.traces.get(run.id)
        return altered or _trace(run.id, run.rank)

    def record(self, experiment: str, **changed: Any) -> None:
        """Change fields of a recording; `ceilings` apply to every point."""
        ceilings = changed.pop("ceilings", None)
        recording = replace(self[experiment].recording, **changed)
        self.recordings[experiment] = recording if ceilings is None else with_ceilings(recording, ceilings)

    def data(self, experiment: str, **changed: Any) -> None:
        """Change fields of a probe's data."""
        self.record(experiment, data={**self[experiment].data, **changed})

    def point(self, experiment: str, **changed: Any) -> None:
        """Change fields of every point of a recording."""
        points = tuple(replace(point, **changed) for point in self[experiment].points)
        self.record(experiment, points=points)

    def time(self, experiment: str, us: float, kind: str = "interleaved") -> None:
        """Give the only point of a recording a constant time."""
        timings = replace(self[experiment].timings, **{kind: constant(us)})
        self.point(experiment, timings=timings)

    def scale(self, experiment: str, kind: str, factor: float) -> None:
        """Make one kind of timing of every point longer or shorter."""

        def scaled(point: Point) -> Point:
            old: Timing = getattr(point.timings, kind)
            return replace(point, timings=replace(point.timings, **{kind: scaled_timing(old, factor)}))

        self.record(experiment, points=tuple(map(scaled, self[experiment].points)))

    def trace(self, experiment: str, **changed: Any) -> None:
        """Change fields of a trace."""
        self.traces[experiment] = replace(self[experiment].trace, **changed)

    def steps(self, experiment: str, change: Callable[[Step], Step], only: int | None = None) -> None:
        """Change every step of a trace, or only one."""
        steps = self[experiment].trace.steps
        self.trace(experiment, steps=tuple(change(s) if only in (None, index) else s for index, s in enumerate(steps)))

    def activities(
        self, experiment: str, change: Callable[[GpuActivity], GpuActivity | None], only: int | None = None
    ) -> None:
        """Change every kernel, copy and fill of a trace, or drop it by None; or only those of one step."""

        def changed(activities: tuple[GpuActivity, ...]) -> tuple[GpuActivity, ...]:
            return tuple(new for activity in activities if (new := change(activity)) is not None)

        self.steps(experiment, lambda step: replace(step, activities=changed(step.activities)), only)
        if only is None:
            self.trace(experiment, activities=changed(self[experiment].trace.activities))

    def kernels(self, experiment: str, change: Callable[[GpuActivity], GpuActivity]) -> None:
        """Change every kernel of a trace."""
        self.activities(experiment, lambda activity: change(activity) if activity.kind == "kernel" else activity)

    def ops(self, experiment: str, change: Callable[[CpuOp], CpuOp]) -> None:
        """Change every operator of a trace, wherever it is referred to."""
        changed: dict[CpuOp, CpuOp] = {}

        def new(op: CpuOp | None) -> CpuOp | None:
            if op is not None and op not in changed:
                changed[op] = change(replace(op, parent=new(op.parent)))
            return None if op is None else changed[op]

        self.trace(experiment, cpu_ops=tuple(map(new, self[experiment].trace.cpu_ops)))
        self.steps(experiment, lambda step: replace(step, ops=tuple(map(new, step.ops))))
        self.activities(experiment, lambda activity: replace(activity, op=new(activity.op)))

    def launches(self, experiment: str, change: Callable[[CudaCall], CudaCall]) -> None:
        """Change the call that launched each activity of a trace."""
        self.activities(
            experiment, lambda activity: replace(activity, launch=activity.launch and change(activity.launch))
        )


def scaled_timing(timing: Timing, factor: float) -> Timing:
    """A timing, each sample of it longer or shorter."""
    times = (timing.median_us, timing.q1_us, timing.q3_us)
    median, q1, q3 = (factor * us for us in times)
    samples = tuple(factor * sample for sample in timing.samples_us)
    return replace(timing, median_us=median, q1_us=q1, q3_us=q3, samples_us=samples)


def constant(us: float) -> Timing:
    """A timing without a spread, of three samples."""
    return Timing(us, us, us, (us, us, us))
