"""Ceilings by name: the rates that a device reached in a recording's session."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.lab.recording.schema import Recording

COPY, LARGE_MATMUL = "copy", "matmul 8192x8192x8192"
CeilingRates = Mapping[str, float]
"""Name of a ceiling -> its rate: bytes/s for a copy, else FLOP/s."""


def ceiling_rates(recording: Recording) -> CeilingRates:
    """The ceilings measured in a recording's session."""
    return {ceiling.name: ceiling.rate for ceiling in recording.ceilings}
