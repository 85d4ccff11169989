"""A trace with four times the events takes four times the work, in any shape, and memory in proportion to its events.

Work is counted in executed lines, which do not depend on the machine.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.document import report_html
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.totals import summarize
from tests.tool.events import HOST, Event, kernel, launch, op, step, trace_bytes

SMALL, LARGE = 300, 1200
MOST_GROWTH = 5.0
MOST_BYTES_PER_EVENT = 600


def function(name: str, start: float, duration: float) -> Event:
    return {"ph": "X", "cat": "python_function", "name": name, "pid": HOST, "tid": HOST, "ts": start, "dur": duration}


def launches(count: int, begin: float = 0.0) -> Iterator[Event]:
    """Nested operators that launch a kernel each, with a wait after every tenth."""
    for index in range(count):
        number, start = int(begin) + index + 1, begin + 20.0 * index
        yield function(f"model.py({index % 50}): forward", start, 19.0)
        yield op("aten::add", start + 1, 16.0, external=number, dims=[[4096, 1024], [4096, 1024]], types=["float"] * 2)
        yield op("aten::copy_", start + 2, 12.0, dims=[[index % 7, 3]])
        yield launch(number, start + 3, 4.0)
        yield kernel("void at::native::vectorized_elementwise_kernel<4>", number, start + 9, 3.0, stream=7 + index % 2)
        if index % 10 == 0:
            yield launch(None, start + 15, 2.5, name="cudaStreamSynchronize")
            yield launch(None, start + 17.6, 0.2, name="cudaMalloc")


def one_step(count: int) -> Iterator[Event]:
    return launches(count)


def long_steps(count: int) -> Iterator[Event]:
    yield from launches(count)
    yield from (step(number, number * 5.0 * count, 5.0 * count - 1) for number in range(4))


def short_steps(count: int) -> Iterator[Event]:
    yield from launches(count)
    yield from (step(number, 20.0 * number, 19.5) for number in range(count))


def replays(count: int) -> Iterator[Event]:
    """Graph launches with ten kernels each, without operators."""
    for index in range(count):
        yield launch(index + 1, 100.0 * index, 5.0, name="cudaGraphLaunch")
        yield from (kernel(f"kernel {n}", index + 1, 100.0 * index + 10 + 8 * n, 7.0) for n in range(10))


def stacks(count: int) -> Iterator[Event]:
    """Thirty Python functions around each launch."""
    for index in range(count):
        start = 100.0 * index
        yield from (function(f"model.py({n}): forward", start + n, 90.0 - 2 * n) for n in range(30))
        yield op("aten::add", start + 35, 10.0, external=index + 1)
        yield launch(index + 1, start + 36, 4.0)
        yield kernel("kernel", index + 1, start + 42, 30.0)


SHAPES = [one_step, long_steps, short_steps, replays, stacks]


def report(trace: Trace) -> str:
    return report_html(DiagnosedTrace("trace.json", diagnose(trace), summarize(trace)))


def lines_executed(data: bytes) -> int:
    """The lines of Python that reading and reporting execute."""
    count = 0

    def line(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        report(read_trace(data))
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_events(shape: Callable[[int], Iterator[Event]]) -> None:
    small, large = (trace_bytes(*shape(count)) for count in (SMALL, LARGE))
    report(read_trace(small))  # fills caches
    assert lines_executed(large) < MOST_GROWTH * lines_executed(small)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_memory_grows_with_the_events(shape: Callable[[int], Iterator[Event]]) -> None:
    small, large = ([*shape(count)] for count in (LARGE, 2 * LARGE))
    report(read_trace(trace_bytes(*small)))  # fills caches
    more_bytes = peak_bytes(trace_bytes(*large)) - peak_bytes(trace_bytes(*small))
    assert more_bytes < MOST_BYTES_PER_EVENT * (len(large) - len(small))


def peak_bytes(data: bytes) -> int:
    tracemalloc.start()
    try:
        report(read_trace(data))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
