"""The book's recordings of its default device, some of them altered in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from snippets.lab.finding import Device, Run
from snippets.lab.recording.schema import Recording, Timing
from snippets.lab.trace.events import CpuOp, GpuActivity, Step, Trace
from tests.lab.samples import BOOK

replace = msgspec.structs.replace


class AlteredRun(Run):
    """A run whose recording or trace may have been altered."""

    device: AlteredDevice

    @property
    def recording(self) -> Recording:
        return self.device.recordings.get(self.id) or super().recording

    @property
    def trace(self) -> Trace:
        return self.device.traces.get(self.id) or super().trace

    def at(self, **parameters: int | str) -> Run:
        return AlteredRun(self.device, self.id, super().at(**parameters).selector)


@dataclass(frozen=True)
class AlteredDevice(Device):
    """Recordings and traces by experiment take the place of those that were stored."""

    recordings: dict[str, Recording] = field(default_factory=dict, compare=False)
    traces: dict[str, Trace] = field(default_factory=dict, compare=False)

    def __getitem__(self, experiment: str) -> Run:
        run = super().__getitem__(experiment)
        return AlteredRun(self, run.id, run.selector)

    def change_steps(self, experiment: str, change: Callable[[Step], Step], only: int | None = None) -> None:
        """Change every step of a trace, or only one."""
        trace = self[experiment].trace
        steps = (change(step) if only in (None, index) else step for index, step in enumerate(trace.steps))
        self.traces[experiment] = replace(trace, steps=tuple(steps))

    def change_kernels(self, experiment: str, change: Callable[[GpuActivity], GpuActivity]) -> None:
        """Change every kernel of the steps."""
        self.change_steps(
            experiment,
            lambda step: replace(
                step, activities=tuple(change(each) if each.kind == "kernel" else each for each in step.activities)
            ),
        )

    def change_ops(self, experiment: str, change: Callable[[CpuOp], CpuOp]) -> None:
        """Change every operator: in the trace, in its steps, around other operators and above GPU activities."""
        trace = self[experiment].trace
        changed: dict[CpuOp | None, CpuOp | None] = {None: None}
        for op in trace.cpu_ops:  # in start order, so that what is around an operator comes before it
            changed[op] = replace(change(op), parent=changed[op.parent])

        def relaunched(activities: tuple[GpuActivity, ...]) -> tuple[GpuActivity, ...]:
            return tuple(replace(activity, op=changed[activity.op]) for activity in activities)

        steps = (
            replace(step, ops=tuple(changed[op] for op in step.ops), activities=relaunched(step.activities))
            for step in trace.steps
        )
        self.traces[experiment] = replace(
            trace,
            cpu_ops=tuple(changed[op] for op in trace.cpu_ops),
            activities=relaunched(trace.activities),
            steps=tuple(steps),
        )

    def change_recording(self, experiment: str, **changed: Any) -> None:
        """Change fields of a recording."""
        self.recordings[experiment] = replace(self[experiment].recording, **changed)

    def change_data(self, experiment: str, **changed: Any) -> None:
        """Change fields of what a probe returned."""
        self.change_recording(experiment, data={**self[experiment].data, **changed})

    def change_points(self, experiment: str, **changed: Any) -> None:
        """Change fields of every point."""
        self.change_recording(experiment, points=tuple(replace(point, **changed) for point in self[experiment].points))

    def scale_timings(self, experiment: str, kind: str, factor: float) -> None:
        """Make one kind of timing of every point longer or shorter."""

        def scaled(point: Any) -> Any:
            old: Timing = getattr(point.timings, kind)
            samples = tuple(factor * sample for sample in old.samples_us)
            timing = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
            return replace(point, timings=replace(point.timings, **{kind: timing}))

        self.change_recording(experiment, points=tuple(map(scaled, self[experiment].points)))


def altered_device() -> AlteredDevice:
    """The default device, nothing altered yet."""
    return AlteredDevice(BOOK.root, BOOK.name)
