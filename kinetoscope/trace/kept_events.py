"""The events of a file that kinetoscope uses, by kind."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kinetoscope.trace.kineto_events import Event, Instant, Kernel, Op, RuntimeCall, Samples, Wait
from kinetoscope.trace.left_out import LeftOut

MAX_RUNS = 2000
MAX_LABELS = 10_000


@dataclass
class KeptEvents:
    """The events of a file that kinetoscope uses, in the order of the file."""

    ops: list[Op] = field(default_factory=list)
    calls: list[RuntimeCall] = field(default_factory=list)
    activities: list[Kernel] = field(default_factory=list)
    functions: list[Event] = field(default_factory=list)
    memory: list[Instant] = field(default_factory=list)
    overheads: list[Event] = field(default_factory=list)
    gpu_annotations: list[Event] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    counters: list[Samples] = field(default_factory=list)
    labels: dict[object, str] = field(default_factory=dict)
    """Process -> its names and labels, from the file's metadata."""
    runs: list[tuple[object, int]] = field(default_factory=list)
    """Host process of each run of CPU events in the file, and how many GPU activities came before."""
    unread: Counter[str] = field(default_factory=Counter)
    """Events of categories that are not read, or without a category."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """Damaged events."""
    seen: int = 0
    first: float | int = math.inf
    """The earliest time of a kept event when it was decoded."""
    last: float | int = -math.inf
    longest: float = 0.0
    """The longest duration."""

    def lists(self) -> tuple[list[Any], ...]:
        """The lists of events with a time."""
        return (
            self.ops, self.calls, self.activities, self.functions, self.memory, self.overheads, self.gpu_annotations,
            self.waits, self.counters,
        )  # fmt: skip

    def bounds(self) -> tuple[float | int, float | int]:
        """The earliest and the latest time of the lists as they are; 0 without an event."""
        filled = [events for events in self.lists() if events]
        first = min((min(event.ts for event in events) for events in filled), default=0)
        return first, max((max(event.ts for event in events) for events in filled), default=0)
