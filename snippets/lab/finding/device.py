"""The recordings of one GPU, by experiment: `device["mlp/eager"].trace`.

Fences and commands pass a `Device` to every function that measures; there is no global current device. Each missing
thing has its exception: `UnknownName` for a name that does not exist, with the nearest name, on every machine;
`NotRecorded` for a missing recording; `NotTimed` for a timing or a ceiling that a recording lacks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.trace.events import Step, Trace
from kinetoscope.trace.queries import require_steps
from snippets.lab.experiment import Parameters, UnknownName, find, nearest
from snippets.lab.finding.figure import Figure, per_step
from snippets.lab.finding.part import Reads, part_of, part_of_timing, thirds, timing_of_samples
from snippets.lab.recording.ceilings import CeilingRates
from snippets.lab.recording.device import DEFAULT_DEVICE, SAMPLE_DEVICE, recorded_devices, recorded_names, short_name
from snippets.lab.recording.loading import load_recording, load_trace, trace_path
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
    index: int | None = None
    """The process whose samples are read, and the third of the active steps; None: all."""
    reads: Reads | None = field(default=None, compare=False, repr=False)
    """Notes what is read; None: nobody asks."""

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

    def part(self, index: int) -> Device:
        """The same device, from which runs read only one process's samples and one third of the active steps.

        Of a timing from one process they read a third of the samples; where there is no such part, all. `Run.trace`
        and the data of probes stay whole.
        """
        return replace(self, index=index)

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

    @property
    def recording(self) -> Recording:
        """The recording, without the trace."""
        if self.device.reads is not None:
            self.device.reads.runs[f"{self.id}[{self.selector}]" if self.selector else self.id] = None
        return self._load()

    def _load(self) -> Recording:
        try:
            return load_recording(self.device.root, self.device.name, self.id)
        except NotRecorded:
            self.require_existence()
            raise

    @property
    def disturbed(self) -> str:
        """Why the timings of the recording, or of the point that the selector names, are unreliable; else empty."""
        points = (self.point,) if self.selector else self.points
        return msgspec.structs.replace(self.recording, points=points).disturbed

    def require_existence(self) -> None:
        """Raise `UnknownName` if the experiment does not exist or has no point with this selector."""
        chapter, slash, _ = self.id.partition("/")
        if not slash:
            known = (experiment.id for experiment in find(chapter))
            raise UnknownName(f"{self.id!r} is not an experiment{nearest(self.id, known)}")
        (experiment,) = find(self.id)
        if self.selector:
            select_point(self.id, experiment.points, self.selector)

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

    # -- the trace

    @property
    def trace(self) -> Trace:
        """The whole trace. Also raises `TraceError`."""
        if not self.recording.has_trace:
            raise self._lacking(UnknownName(f"{self.id} has no trace: it is a sweep or a probe"))
        return load_trace(self.device.root, self.device.name, self.id)

    @property
    def trace_path(self) -> str:
        """The path of the trace, relative to the folder of all recordings, for a link."""
        path = trace_path(self.device.root, self.device.name, self.recording)
        return path.relative_to(self.device.root).as_posix()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The active steps. Raises `TraceError` if there is none."""
        trace = self.trace
        require_steps(trace)
        return part_of(thirds(trace.steps), self.device.index, self.device.reads) or trace.steps

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

    # -- points and timings

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
        return Run(self.device, self.id, ",".join(f"{name}={value}" for name, value in parameters.items()))

    @property
    def timings(self) -> Timings:
        """The timings of the point. Raises `NotTimed`."""
        timings = self._timings()
        if self.device.index is None:
            return timings
        parts = {kind: self.timing(kind) for kind in KINDS if getattr(timings, kind) is not None}
        return msgspec.structs.replace(timings, **parts)

    def _timings(self) -> Timings:
        if self.point.timings is None:
            raise NotTimed(f"{self.id} was recorded without timings; make record CHAPTER={self.recording.chapter}")
        return self.point.timings

    def timing(self, kind: str = "interleaved") -> Timing:
        """One timing of the point, by its field in `Timings`, or `iteration` of a loop. Raises `NotTimed`."""
        timing: Timing | None = self.point.iteration if kind == "iteration" else getattr(self._timings(), kind)
        if timing is None:
            raise NotTimed(f"{self.id} has no {kind} timing; make record CHAPTER={self.recording.chapter}")
        return part_of_timing(timing, self.device.index, self.device.reads)

    def time(self, kind: str = "interleaved") -> Figure:
        """One timing of the point as a figure: median, and how far processes differ. Raises `NotTimed`."""
        return Figure.from_timing(self.timing(kind), self.origin)

    @property
    def ceilings(self) -> CeilingRates:
        """The rates of the ceilings of its turns, by name; of a whole sweep, each name's first."""
        return {ceiling.name: self.ceiling(ceiling.name).rate for ceiling in self._ceilings()}

    def _ceilings(self) -> tuple[Ceiling, ...]:
        return self.point.ceilings if self.selector else self.recording.ceilings

    def ceiling(self, name: str) -> Ceiling:
        """A ceiling of its session, `copy` or `matmul MxKxN`. Raises `NotTimed` if it was not measured."""
        for ceiling in self._ceilings():
            if ceiling.name == name:
                return msgspec.structs.replace(
                    ceiling, timing=part_of_timing(ceiling.timing, self.device.index, self.device.reads)
                )
        raise NotTimed(f"{self.id} has no ceiling {name!r}; make record CHAPTER={self.recording.chapter}")


def select_point(experiment: str, points: Sequence[Parameters], selector: str) -> int:
    """The index of the point that `batch=1,seq=1` selects; an only point needs no selector. Raises `UnknownName`."""
    chosen = dict(pair.split("=", 1) for pair in selector.split(",")) if selector else {}
    indices: list[int] = [*range(len(points))]
    for key, text in chosen.items():
        indices = [index for index in indices if str(points[index].get(key)) == text]
    if len(indices) == 1:
        return indices[0]
    known = [",".join(f"{key}={value}" for key, value in point.items()) for point in points]
    if selector and not indices:
        raise UnknownName(f"{experiment} has no point {selector!r}{nearest(selector, known)}")
    raise UnknownName(f"{experiment} has {len(points)} points; pick one, such as [{known[0] if known else ''}]")
