"""A trace with four times the events takes four times the work, in any shape, and memory in proportion to its events.

Work is counted in executed lines, which do not depend on the machine.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from time import process_time
from types import FrameType
from typing import Any

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.document import report_html
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.metadata import Metadata
from kinetoscope.trace.totals import summarize
from tests.tool.events import HOST, Event, kernel, launch, memory, op, step, trace_bytes

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


def spread(count: int, thread: bool = False, name: str = "kernel") -> Iterator[Event]:
    """Each launch on a GPU and a stream, or on a thread, of its own."""
    for index in range(count):
        start, own = 60.0 * index, index if thread else HOST
        yield op("aten::mm", start, 30.0, external=index + 1, tid=own)
        yield launch(index + 1, start + 5, 8.0, tid=own)
        gpu = 0 if thread else index
        yield kernel(name.replace("#", str(index)), index + 1, start + 20, 25.0, device=gpu, stream=7 + index)


def threads(count: int) -> Iterator[Event]:
    return spread(count, thread=True)


def names(count: int) -> Iterator[Event]:
    return spread(count, thread=True, name="void at::native::elementwise_kernel<#, 2>(int)")


def long_names(count: int) -> Iterator[Event]:
    return spread(40, thread=True, name="void at::native::ReduceOp" + " >h" * count + "#")


def groups(count: int) -> Iterator[Event]:
    """Each collective in a process group of its own."""
    collective = {"Collective name": "allreduce", "In msg nelems": 8, "Group size": 2, "dtype": "Float"}
    for index in range(count):
        ranks = {"Process Group Name": f"group {index}", "Process Group Ranks": f"[0, {index + 1}]"}
        yield launch(index + 1, 60.0 * index, 8.0)
        yield kernel("ncclDevKernel_AllReduce", index + 1, 60.0 * index + 20, 25.0, **collective, **ranks)


def blocks(count: int) -> Iterator[Event]:
    yield from launches(100)
    for index in range(2 * count):
        size = 64 if index < count else -64
        yield memory(index, size, index % count + 1, total=9999 + size, reserved=99_999)


def ranks(count: int) -> Iterator[Event]:
    """Ranks merged into one file."""
    for rank in range(count // 4):
        events = [step(0, 0, 500.0), op("aten::mm", 5, 20.0, external=1), launch(1, 10), kernel("kernel", 1, 40, 9.0)]
        yield from ({**event, "pid": event["pid"] and 1000 + rank} for event in events)


OF_EVENTS = [one_step, long_steps, short_steps, replays, stacks]
OF_ONE_THING = [spread, threads, names, long_names, groups, blocks, ranks]


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
@pytest.mark.parametrize("shape", OF_EVENTS + OF_ONE_THING)
def test_work_grows_with_the_events(shape: Callable[[int], Iterator[Event]]) -> None:
    small, large = (trace_bytes(*shape(count)) for count in (SMALL, LARGE))
    report(read_trace(large))  # fills caches
    assert lines_executed(large) < MOST_GROWTH * lines_executed(small)


@pytest.mark.slow
@pytest.mark.parametrize("shape", OF_EVENTS)
def test_memory_grows_with_the_events(shape: Callable[[int], Iterator[Event]]) -> None:
    small, large = ([*shape(count)] for count in (LARGE, 2 * LARGE))
    report(read_trace(trace_bytes(*large)))  # fills caches
    more_bytes = peak_bytes(trace_bytes(*large)) - peak_bytes(trace_bytes(*small))
    assert more_bytes < MOST_BYTES_PER_EVENT * (len(large) - len(small))


@pytest.mark.slow
@pytest.mark.parametrize("shape", OF_ONE_THING)
def test_twice_of_one_thing_takes_at_most_2_4_times_the_memory(shape: Callable[[int], Iterator[Event]]) -> None:
    small, large = (trace_bytes(*shape(count)) for count in (LARGE // 2, LARGE))
    report(read_trace(large))  # fills caches
    assert peak_bytes(large) < 2.4 * peak_bytes(small)


def peak_bytes(data: bytes) -> int:
    tracemalloc.start()
    try:
        report(read_trace(data))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_name_is_decoded_twice() -> None:
    """However many names a trace has, which are passed several times in one order."""
    for _ in range(2):
        before = decode_kernel_name.cache_info().misses
        for index in range(5000):
            decode_kernel_name(f"kernel_{index}")
    assert decode_kernel_name.cache_info().misses == before


def test_many_gpus_are_looked_up_once() -> None:
    devices = Metadata(tuple({"id": index, "name": f"GPU {index}"} for index in range(16_000)))
    start = process_time()
    assert [device["id"] for device in devices.find_devices(range(16_000))] == list(range(16_000))
    assert process_time() - start < 1


def test_large_groups_that_a_file_names_in_few_bytes_take_no_memory() -> None:
    """A million ranks in each of a hundred groups: the members of the first four are known."""
    events = [*groups(100)]
    for index, event in enumerate(events[1::2]):
        size = {"Group size": 1_000_000, "Global rank start": index, "Global rank stride": 1}
        event["args"] |= {**size, "Process Group Ranks": "[0, 1, ...]"}
    trace = read_trace(trace_bytes(*events))
    known = [len(each.collective.ranks) for each in trace.activities if each.collective is not None]
    assert known == [1_000_000] * 4 + [0] * 96
