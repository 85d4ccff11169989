"""Recordings that nobody made: for the tests here, and for `make serve SAMPLE=training_memory`."""

from __future__ import annotations

from tests.lab.sample_recordings import Sample


def recordings() -> list[Sample]:
    """One for each experiment of both pages."""
    return [*precision_recordings()]


def precision_recordings() -> list[Sample]:
    """Those of the first page."""
    return []
