"""Views of a device: one notes the recordings read, one reads a part of each recording. A measure sees no
difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from msgspec.structs import replace

from kinetoscope.trace.events import Step, Trace
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.part import part_of, part_of_timing, thirds
from snippets.lab.recording.schema import Recording, Timing


class NoPart(Exception):
    """A measure reads data without parts from a part; the message names the data to read instead."""


@dataclass(frozen=True, eq=False)
class Noted(Device):
    """A device that notes the experiments and points read from it."""

    of: Device
    runs: dict[str, None] = field(default_factory=dict)
    """Experiments and points, `mlp/sweep_eager[batch=1,seq=1]`, in the order of reading."""

    @property
    def whole(self) -> Device:
        """The whole device, which notes what is read, too."""
        whole = self.of.whole
        return self if whole is self.of else Noted(self.root, self.name, whole, self.runs)

    @property
    def unnoted(self) -> Device:
        """The device below."""
        return self.of.unnoted

    def beside(self, name: str) -> Device:
        """Another device, of which nothing is noted."""
        return self.of.beside(name)

    def recording_of(self, run: Run) -> Recording:
        """The recording, which is noted."""
        self.runs[f"{run.id}[{run.selector}]" if run.selector else run.id] = None
        return self.of.recording_of(run)

    def trace_of(self, run: Run) -> Trace:
        """The trace, whose recording was read before it."""
        return self.of.trace_of(run)

    def steps_of(self, trace: Trace) -> tuple[Step, ...]:
        """The active steps of the device."""
        return self.of.steps_of(trace)

    def samples_of(self, timing: Timing) -> Timing:
        """The samples of the device."""
        return self.of.samples_of(timing)


def noted(device: Device) -> Noted:
    """A device that notes the recordings read from it from now on."""
    return Noted(device.root, device.name, device)


@dataclass
class Parts:
    """Whether the parts of a device were read."""

    were_read: bool = False
    """Whether a part of a recording, instead of all, was read."""


@dataclass(frozen=True, eq=False)
class Part(Device):
    """A part of a device: of each recording, the samples of one process and one third of the active steps.

    Of a timing from one process it has a third of the samples. A timing or a trace without such a part counts as a
    whole in each part. Values measured once by one process are the same in each part: errors, memory, data, the
    environment. The trace has no parts: `Run.trace` raises `NoPart`, and `Run.whole` reads all of it.
    """

    of: Device
    index: int
    parts: Parts = field(default_factory=Parts)

    @property
    def whole(self) -> Device:
        """The device that this is a part of."""
        return self.of

    def beside(self, name: str) -> Device:
        """The same part of another device."""
        return Part(self.root, name, self.of.beside(name), self.index, self.parts)

    def recording_of(self, run: Run) -> Recording:
        """The recording without samples."""
        whole = self.of.recording_of(run)
        return replace(
            whole, points=tuple(replace(at, timings=None, iteration=None, ceilings=()) for at in whole.points)
        )

    def trace_of(self, run: Run) -> NoReturn:
        """Raise `NoPart`."""
        raise NoPart(f"{run.id}: a part has no trace of its own; read `steps`, or `whole.trace` for all of the trace")

    def steps_of(self, trace: Trace) -> tuple[Step, ...]:
        """One third of the active steps; all if there are fewer than three."""
        steps = part_of(thirds(self.of.steps_of(trace)), self.index)
        self.parts.were_read |= bool(steps)
        return steps or trace.steps

    def samples_of(self, timing: Timing) -> Timing:
        """The samples of one process; all if there is no such part."""
        part = part_of_timing(self.of.samples_of(timing), self.index)
        self.parts.were_read |= part is not None
        return part or timing


def part(device: Device, index: int, parts: Parts | None = None) -> Part:
    """One part of a device; `parts` notes whether there was any."""
    return Part(device.root, device.name, device, index, parts or Parts())
