"""The recordings of one GPU, by experiment: `device["mlp/eager"].trace`.

Fences and commands pass a `Device` to every function that measures; there is no global current device. Each missing
thing has its exception: `UnknownName` for a name that does not exist, with the nearest name, on every machine;
`NotRecorded` for a missing recording; `NotTimed` for a timing or a ceiling that a recording lacks.

A view (views.py) is a device, too: it notes what is read, or reads a part of each recording.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.trace.events import Step, Trace
from kinetoscope.trace.queries import require_steps
from snippets.lab.cache import once
from snippets.lab.experiment import Experiment, UnknownName, find, nearest
from snippets.lab.finding.figure import Figure, per_step
from snippets.lab.finding.part import timing_of_samples
from snippets.lab.finding.points import select_point
from snippets.lab.recording.ceilings import CeilingRates
from snippets.lab.recording.device import DEFAULT_DEVICE, SAMPLE_DEVICE, recorded_devices, recorded_names, short_name
from snippets.lab.recording.loading import load_ranks, load_recording, trace_path
from snippets.lab.recording.schema import (
    Ceiling,
    Environment,
    NotRecorded,
    NotTimed,
    Point,
    Recording,
    Timing,
    Timings,
)

KINDS = ("interleaved", "cold", "from_python", "enqueue", "steady")
"""The fields of `Timings` that are timings."""


@dataclass(frozen=True)
class Device:
    """The recordings of one GPU."""

    root: Path
    """The folder of all recordings."""
    name: str
    """`nvidia-h200`, the name of its folder."""

    def __getitem__(self, experiment: str) -> Run:
        """One experiment, `mlp/eager`, or a point of it: `mlp/sweep_eager[batch=1,seq=1]`. Reads nothing yet.

        Raises `UnknownName` if the experiment is neither recorded nor declared, also on a device without recordings.
        """
        path, bracket, selector = experiment.partition("[")
        run = Run(self, path, selector.removesuffix("]") if bracket else "")
        # not pathlib: a build asks 30,000 times
        if not os.path.isfile(f"{self.root}/{self.name}/{path}.json"):
            run.require_existence()
        return run

    @property
    def whole(self) -> Device:
        """The device itself; of a part, the device that it is a part of."""
        return self

    @property
    def unnoted(self) -> Device:
        """The device itself; of a device that notes what is read, the device below."""
        return self

    def beside(self, name: str) -> Device:
        """Another device with recordings in the same folder; of a part, the same part of the other."""
        return Device(self.root, name)

    def recording_of(self, run: Run) -> Recording:
        """The recording of a run, without the trace. Raises `NotRecorded`, `RecordingError`."""
        return load_recording(self.root, self.name, run.id)

    def trace_of(self, run: Run) -> Trace:
        """The trace of a run that has one, on its rank. Also raises `TraceError`."""
        return load_ranks(self.root, self.name, run.id)[run.rank]

    def steps_of(self, trace: Trace) -> tuple[Step, ...]:
        """The active steps that a measure reads."""
        return trace.steps

    def samples_of(self, timing: Timing) -> Timing:
        """The timing with the samples that a measure reads."""
        return timing

    @property
    def short_name(self) -> str:
        """The name on pages: `H200`."""
        return short_name(self.name)

    @property
    def is_default(self) -> bool:
        """Whether this is the device that the prose describes."""
        return self.name == DEFAULT_DEVICE

    @property
    def is_sample(self) -> bool:
        """Whether its numbers are made up, for a preview or a test."""
        return self.name == SAMPLE_DEVICE

    def recorded_names(self, chapter: str) -> tuple[str, ...]:
        """Names of a chapter's recorded experiments."""
        return recorded_names(self.root, self.name, chapter)


def all_devices(root: Path) -> tuple[Device, ...]:
    """The recorded devices, the default first; if none is recorded, only the default device."""
    return tuple(Device(root, name) for name in recorded_devices(root) or (DEFAULT_DEVICE,))


@dataclass(frozen=True)
class Run:
    """One experiment on one device. Members that read raise `UnknownName`, `NotRecorded` or `RecordingError`."""

    device: Device
    id: str
    """`chapter/experiment`."""
    selector: str = ""
    """The point of a sweep: `batch=1,seq=1`."""
    rank: int = 0
    """Of an experiment on several GPUs: the rank whose trace and steps it has; `finding.ranks.on_ranks` gives all."""

    @property
    def whole(self) -> Run:
        """The same run with all samples, steps and the trace, also if its device is a part of another."""
        whole = self.device.whole
        return self if whole is self.device else replace(self, device=whole)

    @property
    def recording(self) -> Recording:
        """The recording, without the trace; that of a part has no samples, which `timing` and `ceiling` return."""
        try:
            return self.device.recording_of(self)
        except NotRecorded as error:
            if (gpus := self.require_existence().gpus) > 1:
                raise NotRecorded(f"{error}; it needs {gpus} GPUs") from None
            raise

    @property
    def disturbed(self) -> str:
        """Why the timings of the recording, or of the point that the selector names, are unreliable; else empty."""
        points = (self.point,) if self.selector else self.points
        return msgspec.structs.replace(self.recording, points=points).disturbed

    def require_existence(self) -> Experiment:
        """The experiment. Raises `UnknownName` if it does not exist or has no point with this selector."""
        chapter, slash, _ = self.id.partition("/")
        if not slash:
            known = (experiment.id for experiment in find(chapter))
            raise UnknownName(f"{self.id!r} is not an experiment{nearest(self.id, known)}")
        (experiment,) = once(find)(self.id)
        if self.selector:
            select_point(self.id, experiment.points, self.selector)
        return experiment

    @property
    def is_recorded(self) -> bool:
        """Whether the experiment is recorded on this device."""
        try:
            return self.recording is not None
        except NotRecorded:
            return False

    @property
    def label(self) -> str:
        """The annotation around each step."""
        return self.recording.label

    @property
    def environment(self) -> Environment:
        """Machine, versions, clocks and time of the recording."""
        return self.recording.environment

    @property
    def data(self) -> dict[str, Any]:
        """The result of a probe, or the notes of a subject."""
        return self.recording.data

    @property
    def origin(self) -> str:
        """The origin of its figures: device and experiment."""
        return f"{self.environment.device}, {self.id}"

    @property
    def trace(self) -> Trace:
        """The trace. Also raises `TraceError`, and `NoPart` in a part: the events around its steps have no parts."""
        if not self.recording.has_trace:
            raise self._lacking(UnknownName(f"{self.id} has no trace: it is a sweep or a probe"))
        return self.device.trace_of(self)

    @property
    def trace_path(self) -> str:
        """The path of the trace, relative to the folder of all recordings, for a link."""
        path = trace_path(self.device.root, self.device.name, self.recording)
        return path.relative_to(self.device.root).as_posix()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The active steps. Raises `TraceError` if there is none."""
        trace = self.whole.trace
        require_steps(trace)
        return self.device.steps_of(trace)

    @property
    def step(self) -> Step:
        """The middle step. Raises `TraceError` if there is none."""
        steps = self.steps
        return steps[len(steps) // 2]

    def per_step(self, of: Callable[[Step], float | int | str | bool], unit: str = "") -> Figure:
        """Evaluate every active step: return the median number, or the middle step's name or order.

        With a unit, the figure is a quantity; its spread is the smallest and the largest step. Without a unit, it is a
        count, a name or a truth value, and inconclusive if the steps disagree.
        """
        return per_step(self.steps, of, unit, f"{self.origin}, per step of its trace")

    def step_timing(self, of: Callable[[Step], float]) -> Timing:
        """A time from the trace, in microseconds, as a timing with one sample per active step."""
        return timing_of_samples([of(step) for step in self.steps])

    @property
    def points(self) -> tuple[Point, ...]:
        """All points of a sweep, or the only point."""
        return self.recording.points

    @property
    def point(self) -> Point:
        """The point that the selector names; without a selector, the only point."""
        points = self.recording.points
        try:
            return points[select_point(self.id, [point.parameters for point in points], self.selector)]
        except UnknownName as error:
            raise self._lacking(error) from None

    def _lacking(self, error: UnknownName) -> UnknownName | NotRecorded:
        """The error about a missing part of a recording: on a GPU other than the default it was never recorded.

        A sweep may have been recorded there before it got this point. Otherwise the name is a mistake.
        """
        if self.device.is_default or self.device.is_sample:
            return error
        chapter = self.recording.chapter
        return NotRecorded(f"{error} On a machine with the {self.device.short_name} run make record CHAPTER={chapter}")

    def at(self, **parameters: int | str) -> Run:
        """The same experiment at a point of its sweep."""
        return replace(self, selector=",".join(f"{name}={value}" for name, value in parameters.items()))

    @property
    def timings(self) -> Timings:
        """The timings of the point. Raises `NotTimed`."""
        timings = self._timings()
        parts = {kind: self.device.samples_of(timing) for kind in KINDS if (timing := getattr(timings, kind))}
        return msgspec.structs.replace(timings, **parts)

    def _timings(self) -> Timings:
        if (timings := self.whole.point.timings) is None and self.whole.point.iteration is not None:
            raise NotTimed(f'{self.id} is a loop: ask for kind="iteration"')
        if timings is None:
            raise NotTimed(f"{self.id} was recorded without timings; make record CHAPTER={self.recording.chapter}")
        return timings

    def timing(self, kind: str = "interleaved") -> Timing:
        """One timing of the point, by its field in `Timings`, or `iteration` of a loop. Raises `NotTimed`."""
        timing: Timing | None = self.whole.point.iteration if kind == "iteration" else getattr(self._timings(), kind)
        if timing is None and kind == "iteration" and self.whole.point.timings is not None:
            raise NotTimed(f"{self.id} is no loop: ask for kind={' or '.join(map(repr, KINDS))}")
        if timing is None:
            raise NotTimed(f"{self.id} has no {kind} timing; make record CHAPTER={self.recording.chapter}")
        return self.device.samples_of(timing)

    def time(self, kind: str = "interleaved") -> Figure:
        """One timing of the point as a figure: median, and how far processes differ. Raises `NotTimed`."""
        return Figure.from_timing(self.timing(kind), self.origin)

    @property
    def ceilings(self) -> CeilingRates:
        """The rates of the ceilings of its turns, by name; of a whole sweep, each name's first."""
        return {ceiling.name: self.ceiling(ceiling.name).rate for ceiling in self._ceilings()}

    def _ceilings(self) -> tuple[Ceiling, ...]:
        return self.whole.point.ceilings if self.selector else self.whole.recording.ceilings

    def ceiling(self, name: str) -> Ceiling:
        """A ceiling of its session, `copy` or `matmul MxKxN`. Raises `NotTimed` if it was not measured."""
        for ceiling in self._ceilings():
            if ceiling.name == name:
                return msgspec.structs.replace(ceiling, timing=self.device.samples_of(ceiling.timing))
        raise NotTimed(f"{self.id} has no ceiling {name!r}; make record CHAPTER={self.recording.chapter}")
