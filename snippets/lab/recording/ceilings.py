"""Ceilings by name: rates that a device reached in the session of a recording."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.lab.recording.schema import Recording

COPY, LARGE_MATMUL = "copy", "matmul 8192x8192x8192"
CeilingRates = Mapping[str, float]
"""Name of a ceiling -> its rate: bytes a second of a copy, else FLOPs a second."""


def ceiling_rates(recording: Recording) -> CeilingRates:
    """The ceilings of a recording's own session."""
    return {one.name: one.rate for one in recording.ceilings}
