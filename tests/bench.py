"""What the tests of chapters share: the builder's recordings, some of them altered in memory."""

from __future__ import annotations

import pytest

from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Recording
from snippets.lab.trace.events import Trace

# KEEP recording


class AlteredRecordings:
    """The builder's; what is put into `recordings` or `traces` takes the place of its namesake."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.load, self.trace = load_recording, load_trace
        self.recordings: dict[str, Recording] = {}
        self.traces: dict[str, Trace] = {}
        monkeypatch.setattr(
            recording, "load", lambda name, device, *_: self.recordings.get(name) or self.load(name, device)
        )
        monkeypatch.setattr(
            recording, "trace", lambda name, device, *_: self.traces.get(name) or self.trace(name, device)
        )
