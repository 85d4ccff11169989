"""The traces of the book's recordings, read as any other trace, each once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kinetoscope.trace.events import Step, Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import middle_step

PROJECT = Path(__file__).resolve().parents[2]
RECORDINGS = PROJECT / "docs" / "recordings"
DEVICE = "nvidia-h200"


def experiments(device: str = DEVICE) -> list[str]:
    """`mlp/eager` of each trace of a device."""
    paths = sorted((RECORDINGS / device).glob("*/*.trace.json.gz"))
    return [f"{path.parent.name}/{path.name.removesuffix('.trace.json.gz')}" for path in paths]


@cache
def recorded(experiment: str, device: str = DEVICE) -> Trace:
    return read_trace(RECORDINGS / device / f"{experiment}.trace.json.gz")


def recorded_step(experiment: str) -> Step:
    return middle_step(recorded(experiment))
