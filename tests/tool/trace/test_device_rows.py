"""Waits for streams and counters, as newer profilers write them: read, and counted as no work of the GPU."""

from __future__ import annotations

from typing import Any

from kinetoscope.report.document import report_html
from kinetoscope.trace.device_rows import CounterSummary, WaitSummary
from kinetoscope.trace.events import CounterSample, StreamWait, Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.summary import summary_text
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, kernel, launch, op, trace_bytes
from tests.tool.markup import EVIL
from tests.tool.report.samples import Page, diagnosed

SYNC_ROW = 1_000_000
"""Kineto writes `Stream Sync` in a row of its own, this far from the stream's."""


def wait(kind: str, start: float, us: float, *, row: Any = 7, category: str = "cuda_sync", **args: Any) -> Event:
    given = {"cuda_sync_kind": kind, "device": 0, "context": 1, "correlation": 5, **args}
    return {"ph": "X", "cat": category, "name": kind, "pid": 0, "tid": row, "ts": start, "dur": us, "args": given}


def counter(name: str, at: float, args: Any, *, category: str | None = "hardware_counters") -> Event:
    cat = {} if category is None else {"cat": category}
    return {"ph": "C", "name": name, "pid": "GPU 0 Counters", "tid": 0, "ts": at, "args": args, **cat}


WORK = [op("aten::mm", 0, 10), launch(1, 3), kernel("gemm", 1, 20, 30)]
WAITS = [
    wait("Stream Sync", 12, 40, row=7 + SYNC_ROW, stream=7),
    wait("Stream Sync", 60, 5.5, row=7 + SYNC_ROW, stream=7),
    wait("Stream Wait Event", 55, 2, row=24, stream=24, wait_on_stream=20),
    wait("Context Sync", 70, 9, row=-1, stream=4294967295),
    wait("Event Sync", 80, 4, row=-1, stream=-1, wait_on_stream=-1),
]
SAMPLES = [
    counter("sm__cycles_active.avg", 10, {"": 40.5}),
    counter("sm__cycles_active.avg", 20, {"": 60}),
    counter("dma", 30, {"read": 3.0, "write": 5.0, "unit": "bytes"}, category="mtia_counters"),
    counter("power", 5, {"W": 250}, category=None),
]


def read(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events))


def test_waits_are_read_and_are_no_work() -> None:
    trace = read(*WORK, *WAITS)
    assert (len(trace.activities), busy_us(trace.activities), trace.unread) == (1, 30.0, ())
    assert trace.stream_waits == (
        StreamWait("Stream Sync", 12, 40, 5, 7),
        StreamWait("Stream Wait Event", 55, 2, 5, 24, 20),
        StreamWait("Stream Sync", 60, 5.5, 5, 7),
        StreamWait("Context Sync", 70, 9, 5),
        StreamWait("Event Sync", 80, 4, 5),
    )
    assert summarize(trace).stream_waits == (
        WaitSummary("Stream Sync", 7, None, 2, 45.5),
        WaitSummary("Context Sync", None, None, 1, 9.0),
        WaitSummary("Event Sync", None, None, 1, 4.0),
        WaitSummary("Stream Wait Event", 24, 20, 1, 2.0),
    )


def test_waits_of_another_vendor() -> None:
    (found,) = read(*WORK, wait("Queue Sync", 12, 3, category="xpu_sync", stream="4")).stream_waits
    assert (found.name, found.stream) == ("Queue Sync", 4)


def test_counters_are_read() -> None:
    trace = read(*WORK, *SAMPLES, counter("bad", 9, {"": "NaN", "x": None, "y": 1.7e308}), counter("none", 9, None))
    gpu = "GPU 0 Counters"
    assert trace.counters == (
        CounterSample("power W", gpu, 5, 250),
        CounterSample("sm__cycles_active.avg", gpu, 10, 40.5),
        CounterSample("sm__cycles_active.avg", gpu, 20, 60),
        CounterSample("dma read", gpu, 30, 3),
        CounterSample("dma write", gpu, 30, 5),
    )
    assert summarize(trace).counters[-1] == CounterSummary("sm__cycles_active.avg", gpu, 2, 50.25, 60)
    assert (summarize(trace).steps, trace.unread) == (1, ())


def test_rows_in_the_summary_and_the_report() -> None:
    trace = read(*WORK, *WAITS, *SAMPLES)
    lines = summary_text(summarize(trace)).splitlines()
    assert "waits              Stream Sync of stream 7: 2 in 45.500 us" in lines
    assert "waits              Stream Wait Event of stream 24 for an event of stream 20: 1 in 2.000 us" in lines
    assert "counter            GPU 0 Counters: sm__cycles_active.avg: mean 50.25, at most 60" in lines
    found = Page(report_html(diagnosed(trace)))
    assert "counters" in found.of("id")
    assert "Waits for streams and events, in the whole trace" in found.text
    assert found.open_elements == found.wrong == []


def test_a_trace_without_them_says_nothing() -> None:
    text, found = summary_text(summarize(read(*WORK))), Page(report_html(diagnosed(read(*WORK))))
    assert not any(word in text for word in ("waits", "counter"))
    assert "counters" not in found.of("id")
    assert "Waits for streams" not in found.text


def test_names_and_many_rows_stay_bounded() -> None:
    names = [wait(f"{EVIL[0]}{index}", index, 1, stream=index) for index in range(30)]
    samples = [counter(f"{EVIL[0]}{index}", index, {"": index}) for index in range(50)]
    trace = read(*WORK, *names, *samples)
    assert sum(line.startswith(("waits", "counter")) for line in summary_text(summarize(trace)).splitlines()) == 16
    found = Page(report_html(diagnosed(trace)))
    assert "Not listed: 10 more." in found.text
    assert found.open_elements == found.wrong == []
