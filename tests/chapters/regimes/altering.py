"""Altered recordings of the chapter's second page, for the tests of its claims."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from snippets.lab.finding import Device
from tests.chapters.regimes.compiling_samples import around, compiling_recordings
from tests.lab.sample_recordings import Sample, save_samples

Data = dict[str, Any]
Change = Callable[[Data], None]
SAMPLES: dict[str, Sample] = {
    f"{recording.chapter}/{recording.experiment}": (recording, trace) for recording, trace in compiling_recordings()
}


def alter(device: Device, experiment: str, change: Change) -> None:
    """Change a probe's data."""
    recording, trace = SAMPLES[experiment]
    data = copy.deepcopy(recording.data)
    change(data)
    save_samples(device.root, [(msgspec.structs.replace(recording, data=data), trace)])


def from_python(variant: str, us: float) -> Change:
    """Let a call of eager or of a mode take so long from Python."""

    def change(data: Data) -> None:
        data["times"][variant]["from_python"] = around(us)

    return change


def alone(variant: str, key: str, value: object) -> Change:
    """Change the steady `us`, `clock_mhz` or `joules` of eager or of a mode."""

    def change(data: Data) -> None:
        data["steady"][variant][key] = value

    return change
