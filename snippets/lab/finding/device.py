"""The recordings of one GPU, by experiment: `device["mlp/eager"].trace`.

A `Device` is handed down from the fence or the command to everything that measures; nothing else says which one is
meant. What can be missing has an exception each: `UnknownName` for what does not exist, with the nearest name, on every
machine; `NotRecorded` for what has yet to be recorded; `NotTimed` for a timing or a ceiling that a recording lacks.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snippets.lab.experiment import Parameters, UnknownName, find, nearest
from snippets.lab.finding.figure import Figure, per_step
from snippets.lab.recording.ceilings import CeilingRates, ceiling_rates
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
from snippets.lab.trace.events import Step, Trace
from snippets.lab.trace.queries import middle_step, require_steps


@dataclass(frozen=True)
class Device:
    """The recordings of one GPU."""

    root: Path
    """Of all recordings."""
    name: str
    """`nvidia-h200`, as its folder is called."""

    def __getitem__(self, experiment: str) -> Run:
        """One experiment, `mlp/eager`, or a point of it: `mlp/sweep_eager[batch=1,seq=1]`. Reads nothing yet.

        Raises `UnknownName` for one that is neither recorded nor described, also where nothing is recorded.
        """
        path, bracket, selector = experiment.partition("[")
        run = Run(self, path, selector.removesuffix("]") if bracket else "")
        if not (self.root / self.name / f"{path}.json").is_file():
            run.require_existence()
        return run

    @property
    def short_name(self) -> str:
        """As a page calls it: `H200`."""
        return short_name(self.name)

    @property
    def is_default(self) -> bool:
        """Whether it is the device that the prose was written for."""
        return self.name == DEFAULT_DEVICE

    @property
    def is_sample(self) -> bool:
        """Whether its numbers were made up, for a preview or a test."""
        return self.name == SAMPLE_DEVICE

    def recorded_names(self, chapter: str) -> tuple[str, ...]:
        """Names of the recorded experiments of a chapter."""
        return recorded_names(self.root, self.name, chapter)


def all_devices(root: Path) -> tuple[Device, ...]:
    """The recorded devices, the default one first; where none is recorded the default one, without recordings."""
    return tuple(Device(root, name) for name in recorded_devices(root) or (DEFAULT_DEVICE,))


@dataclass(frozen=True)
class Run:
    """One experiment on one device. What it reads raises `UnknownName`, `NotRecorded` or `RecordingError`."""

    device: Device
    id: str
    """`chapter/experiment`."""
    selector: str = ""
    """Which point of a sweep: `batch=1,seq=1`."""

    @property
    def recording(self) -> Recording:
        """All that was recorded but the trace."""
        try:
            return load_recording(self.device.root, self.device.name, self.id)
        except NotRecorded:
            self.require_existence()
            raise

    def require_existence(self) -> None:
        """Raise `UnknownName` where no experiment has this name, or none of its points this selector."""
        chapter, slash, _ = self.id.partition("/")
        if not slash:
            raise UnknownName(f"{self.id!r} is no experiment{nearest(self.id, (one.id for one in find(chapter)))}")
        (experiment,) = find(self.id)
        if self.selector:
            select_point(self.id, experiment.points, self.selector)

    @property
    def is_recorded(self) -> bool:
        """Whether there is a recording."""
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
        """Where and when it was recorded."""
        return self.recording.environment

    @property
    def data(self) -> dict[str, Any]:
        """What a probe returned, or the notes of a subject."""
        return self.recording.data

    @property
    def origin(self) -> str:
        """Where its figures come from: device and experiment."""
        return f"{self.environment.device}, {self.id}"

    # -- the trace

    @property
    def trace(self) -> Trace:
        """The whole trace. Also raises `TraceError`."""
        if not self.recording.has_trace:
            raise UnknownName(f"{self.id} has no trace: it is a sweep or a probe")
        return load_trace(self.device.root, self.device.name, self.id)

    @property
    def trace_path(self) -> str:
        """The file of the trace below the folder of all recordings, for a link."""
        path = trace_path(self.device.root, self.device.name, self.recording)
        return path.relative_to(self.device.root).as_posix()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The active steps, one at least. Raises `TraceError` where there is none."""
        require_steps(self.trace)
        return self.trace.steps

    @property
    def step(self) -> Step:
        """The middle step. Raises `TraceError` where there is none."""
        return middle_step(self.trace)

    def per_step(self, of: Callable[[Step], float | int | str | bool], unit: str = "") -> Figure:
        """What every active step shows: the median of numbers, the middle step's name or order.

        With a unit it is a quantity, with its smallest and largest step as spread. Without one it is a count, a name
        or a truth, on which all steps have to agree: it is inconclusive when they do not.
        """
        return per_step(self.steps, of, unit, f"{self.origin}, per step of its trace")

    def step_timing(self, of: Callable[[Step], float]) -> Timing:
        """A time in the trace, in microseconds, as a timing with a sample for each active step."""
        return timing_of_samples([of(step) for step in self.steps])

    # -- points and timings

    @property
    def points(self) -> tuple[Point, ...]:
        """All points of a sweep, or the only one."""
        return self.recording.points

    @property
    def point(self) -> Point:
        """The point that the selector names; without one, the only one."""
        points = self.recording.points
        return points[select_point(self.id, [one.parameters for one in points], self.selector)]

    def at(self, **parameters: int | str) -> Run:
        """The same experiment at a point of its sweep."""
        return Run(self.device, self.id, ",".join(f"{name}={value}" for name, value in parameters.items()))

    @property
    def timings(self) -> Timings:
        """The timings of the point. Raises `NotTimed`."""
        if self.point.timings is None:
            raise NotTimed(f"{self.id} was recorded without timings; make record CHAPTER={self.recording.chapter}")
        return self.point.timings

    def timing(self, kind: str = "interleaved") -> Timing:
        """One timing of the point, by its field in `Timings`. Raises `NotTimed`."""
        timing: Timing = getattr(self.timings, kind)
        return timing

    def time(self, kind: str = "interleaved") -> Figure:
        """One timing of the point as a figure: median and quartiles. Raises `NotTimed`."""
        return Figure.from_timing(self.timing(kind), self.origin)

    @property
    def ceilings(self) -> CeilingRates:
        """The rates of the ceilings of its session, by name."""
        return ceiling_rates(self.recording)

    def ceiling(self, name: str) -> Ceiling:
        """A ceiling of its session, `copy` or `matmul MxKxN`. Raises `NotTimed` where it was not measured."""
        for ceiling in self.recording.ceilings:
            if ceiling.name == name:
                return ceiling
        raise NotTimed(f"{self.id} has no ceiling {name!r}; make record CHAPTER={self.recording.chapter}")


def select_point(experiment: str, points: Sequence[Parameters], selector: str) -> int:
    """The index of the one point that `batch=1,seq=1` names; empty for an only one. Raises `UnknownName`."""
    chosen = dict(pair.split("=", 1) for pair in selector.split(",")) if selector else {}
    indices = [
        index
        for index, parameters in enumerate(points)
        if all(str(parameters.get(key)) == text for key, text in chosen.items())
    ]
    if len(indices) == 1:
        return indices[0]
    known = [",".join(f"{key}={value}" for key, value in point.items()) for point in points]
    if selector and not indices:
        raise UnknownName(f"{experiment} has no point {selector!r}{nearest(selector, known)}")
    raise UnknownName(f"{experiment} has {len(points)} points; pick one, such as [{known[0] if known else ''}]")


def timing_of_samples(samples_us: Sequence[float]) -> Timing:
    """Samples in microseconds, one or more, as a timing with median and quartiles."""
    several = samples_us if len(samples_us) > 1 else [*samples_us, *samples_us]
    q1, median, q3 = statistics.quantiles(several, n=4, method="inclusive")
    return Timing(median, q1, q3, tuple(samples_us))
