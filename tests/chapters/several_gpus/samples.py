"""Recordings that nobody made, of all experiments: for tests of the pages, and for `make serve SAMPLE=several_gpus`."""

from __future__ import annotations

from tests.chapters.several_gpus import fault_samples, link_samples, shard_samples
from tests.lab.sample_recordings import Sample


def recordings() -> list[Sample]:
    """One for each experiment."""
    return [*link_samples.recordings(), *shard_samples.recordings(), *fault_samples.fault_recordings()]
