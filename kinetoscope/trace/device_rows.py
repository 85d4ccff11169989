"""Rows beside the GPU's work that some profilers write: waits for streams, and counters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec import Struct

from kinetoscope.trace.events import CounterSample, StreamWait, Trace
from kinetoscope.trace.kineto_events import Samples, Wait

MAX_VALUE = 1e290
"""A counter's larger value is no measurement, and the sum of many would overflow."""


class WaitSummary(Struct, frozen=True):
    """All waits of one kind for one stream, over the whole trace."""

    kind: str
    stream: int | None
    waited_stream: int | None
    calls: int
    total_us: float


class CounterSummary(Struct, frozen=True):
    """All samples of one counter, over the whole trace."""

    name: str
    process: str
    samples: int
    mean: float
    maximum: float


def stream_waits(timed: Iterable[tuple[Wait, float, float]]) -> tuple[StreamWait, ...]:
    """The waits of a file. The profiler writes a stream that it does not know as a negative number."""
    return tuple(
        StreamWait(
            event.name,
            start_us,
            duration_us,
            event.args.correlation,
            _stream(event.args.stream),
            _stream(event.args.waited_stream),
        )
        for event, start_us, duration_us in timed
    )


def _stream(number: int | None) -> int | None:
    """The number of a stream; None where all bits are set, in 32 bits or more."""
    return number if number is not None and 0 <= number < 2**32 - 1 else None


def counter_samples(events: Iterable[Samples], start_us: Callable[[Samples], float]) -> tuple[CounterSample, ...]:
    """The samples of a file in the order of time. An event holds a value of its own name, or several with names."""
    samples = []
    for event in events:
        for name, value in event.values.items():
            if isinstance(value, int | float) and abs(value) <= MAX_VALUE:  # NaN: not read
                full = f"{event.name} {name}" if name else event.name
                samples.append(CounterSample(full, str(event.pid), start_us(event), float(value)))
    return tuple(sorted(samples, key=attrgetter("at_us")))


def summarize_waits(trace: Trace) -> tuple[WaitSummary, ...]:
    """The waits by kind and stream, the longest sum first."""
    groups: dict[tuple[str, int | None, int | None], list[float]] = defaultdict(list)
    for wait in trace.stream_waits:
        groups[wait.name, wait.stream, wait.waited_stream].append(wait.duration_us)
    found = [WaitSummary(*key, len(times), round(math.fsum(times), 3)) for key, times in groups.items()]
    return tuple(sorted(found, key=lambda each: (-each.total_us, each.kind, str(each.stream))))


def summarize_counters(trace: Trace) -> tuple[CounterSummary, ...]:
    """The counters by process and name."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in trace.counters:
        groups[sample.process, sample.name].append(sample.value)
    return tuple(
        CounterSummary(name, process, len(values), math.fsum(values) / len(values), max(values))
        for (process, name), values in sorted(groups.items())
    )
