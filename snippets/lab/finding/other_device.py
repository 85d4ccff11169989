"""Figures of a named GPU, which are the same whichever device a page shows."""

from __future__ import annotations

from snippets.lab.finding.claim import Source
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.finding.mismatch import reading
from snippets.lab.recording.schema import NotRecorded

H100, H200 = "NVIDIA H100", "NVIDIA H200"


def recorded(device: Device, model: str) -> Device:
    """The device itself if it is of this model or a preview's sample, else the first recorded device of the model.

    Raises `NotRecorded` if there is none.
    """
    found = device if device.is_sample else tester(device, Source("", "", model, only_there=True))
    if found is None:
        raise NotRecorded(f"no {model} is recorded; on a machine with one run make record")
    return found


def tester(device: Device, source: Source) -> Device | None:
    """The device itself if it can test the source's value, else the first other device that can, in the same part."""
    beside = (device.beside(each.name) for each in all_devices(device.root))
    return next((each for each in (device, *beside) if source.can_be_tested_on(each.name)), None)


def measured_on(model: str, of: Measure) -> Measure:
    """A figure of the recorded device of a model. A mismatch leaves the figure out, and never ends a build."""

    def measured(device: Device) -> Figure:
        with reading(recorded(device, model)) as there:
            return of(there)

    return measured
