"""What holds for every trace: nothing is lost or counted twice, and neither writing nor order nor clock matters."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, annotation, kernel, launch, memcpy, op, step, trace_bytes

KINDS = st.sampled_from(("op", "launch", "graph", "kernel", "memcpy", "step", "annotation"))
EIGHTHS = st.integers(0, 800).map(lambda eighths: eighths / 8)  # exact in a float64, and in ns


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    """Events of one process that start at different times."""
    starts = draw(st.lists(EIGHTHS, max_size=25, unique=True))
    return [draw(events(start)) for start in starts]


@st.composite
def events(draw: st.DrawFn, start: float) -> Event:
    kind, lasts, identity = draw(KINDS), draw(EIGHTHS), draw(st.integers(0, 6))
    thread = draw(st.sampled_from((412, 413)))
    if kind == "op":
        return op("aten::mm", start, lasts, external=identity, tid=thread)
    if kind in ("launch", "graph"):
        name = "cudaGraphLaunch" if kind == "graph" else "cudaLaunchKernel"
        return launch(identity, start, lasts, name=name, external=identity, tid=thread)
    if kind == "kernel":
        return kernel("gemm", identity, start, lasts, device=draw(st.integers(0, 1)))
    if kind == "memcpy":
        return memcpy(identity, start, lasts, 64)
    if kind == "step":
        return step(identity, start, lasts, tid=thread)
    return annotation("forward", start, lasts, tid=thread)


def data(trace: Trace) -> Any:
    return msgspec.to_builtins(trace)


def gpu_events(written: list[Event]) -> list[Event]:
    return [event for event in written if event["cat"] in ("kernel", "gpu_memcpy")]


@given(traces())
def test_every_activity_is_counted_once(written: list[Event]) -> None:
    trace = read_trace(trace_bytes(*written))
    counted = [activity for each in trace.steps for activity in each.activities]
    uncounted = [activity for group in trace.uncounted for activity in group.activities]
    assert sorted(map(id, [*counted, *uncounted])) == sorted(map(id, trace.activities))
    assert len(trace.activities) == len(gpu_events(written))
    cuts = [event for damage in trace.damaged for event in damage.events]  # of a duration over later events
    assert sum(activity.duration_us for activity in trace.activities) == sum(
        event["dur"] for event in gpu_events(written)
    ) - sum((event.recorded_us or 0.0) - (event.at_most_us or 0.0) for event in cuts)
    assert trace.unattributed == tuple(sorted(uncounted, key=lambda activity: activity.start_us))
    assert not trace.is_cut


@given(traces())
def test_parents_and_launches_come_first(written: list[Event]) -> None:
    trace = read_trace(trace_bytes(*written))
    for cpu_op in trace.cpu_ops:
        if cpu_op.parent is not None:
            assert cpu_op.parent.thread == cpu_op.thread
            assert cpu_op.parent.start_us <= cpu_op.start_us
            assert cpu_op.end_us <= cpu_op.parent.end_us + 0.002
    for activity in trace.activities:
        assert activity.launch is None or activity.launch.correlation == activity.correlation
    for name in ("cpu_ops", "calls", "activities", "steps", "unattributed"):
        starts = [span.start_us for span in getattr(trace, name)]
        assert starts == sorted(starts)


@given(traces(), st.sampled_from(("list", "indent", "gzip", "utf-16", "utf-8-sig", "members", "last")))
def test_how_it_is_written_does_not_matter(written: list[Event], way: str) -> None:
    file = {"schemaVersion": 1, "traceEvents": written}
    text = json.dumps(file)
    other = {
        "list": json.dumps(written).encode(),
        "indent": json.dumps(file, indent=2).encode(),
        "gzip": gzip.compress(text.encode(), mtime=0),
        "utf-16": text.encode("utf-16"),
        "utf-8-sig": text.encode("utf-8-sig"),
        "members": gzip.compress(text[:20].encode(), mtime=0) + gzip.compress(text[20:].encode(), mtime=0),
        "last": json.dumps({"traceEvents": written, "schemaVersion": 1}).encode(),
    }
    assert data(read_trace(other[way])) == data(read_trace(text.encode()))


@given(traces(), st.integers(0, 2**32), st.sampled_from((0, 1, 2**40, -(2**20))))
def test_neither_order_nor_clock_matters(written: list[Event], seed: int, later_us: int) -> None:
    """The order of a file tells which of several calls with one correlation is meant only by their times."""
    others = [{**event, "ts": event["ts"] + later_us} for event in written]
    random.Random(seed).shuffle(others)
    assert data(read_trace(trace_bytes(*others))) == data(read_trace(trace_bytes(*written)))


@given(traces(), st.floats(0, 1))
def test_a_cut_file_has_what_was_complete(written: list[Event], share: float) -> None:
    whole = trace_bytes(*written)
    start = whole.index(b"[") + 1
    end = start + int(share * (len(whole) - 1 - start))
    complete = 0
    position = start
    for event in written:
        position = whole.index(json.dumps(event).encode(), position) + len(json.dumps(event).encode())
        complete += position <= end
    if not complete:
        with pytest.raises(TraceError, match="cut off before the first event"):
            read_trace(whole[:end])
        return
    trace = read_trace(whole[:end])
    assert trace.is_cut
    assert data(trace) == {**data(read_trace(trace_bytes(*written[:complete]))), "is_cut": True}


@pytest.mark.parametrize(
    ("event", "old", "new"),
    [
        (kernel("k", 1, 0, 5), b'"pid": 0', b'"pid": 1e999'),
        (kernel("k", 1, 0, 5), b'"stream": 7', b'"stream": 1e999'),
        (kernel("k", 1, 0, 5), b'"name": "k"', b'"name": 1e999'),
        (kernel("k", 1, 0, 5), b'"name": "k"', b'"name": "\xff"'),
        (kernel("k", 1, 0, 5), b'"tid": 7', b'"tid": "\x80"'),
        (kernel("k", 1, 0, 5), b'"tid": 7', b'"tid": [[["\x80"]]]'),
        (kernel("k", 1, 0, 5), b'"grid": [4', b'"grid": ["\\ud800"'),
    ],
)
def test_one_bad_value_costs_no_activity(event: Event, old: bytes, new: bytes) -> None:
    content = trace_bytes(event)
    assert content.count(old) == 1
    trace = read_trace(content.replace(old, new))
    assert [activity.duration_us for activity in trace.activities] == [5.0]
    assert trace.damaged == ()


def test_bytes_that_are_not_utf_8_in_ignored_fields() -> None:
    """In a label of a process, and in shapes, which are decoded late or never."""
    label = {"ph": "M", "name": "process_labels", "pid": 412, "args": {"labels": "here"}}
    content = trace_bytes(label, op("aten::mm", 0, 5, dims=[["here"]]), kernel("k", 1, 0, 5))
    assert content.count(b'"here"') == 2
    trace = read_trace(content.replace(b'"here"', b'"\x80"'))
    assert (len(trace.cpu_ops), len(trace.activities), trace.cpu_ops[0].input_shapes) == (1, 1, ())


def test_an_event_without_a_usable_start_is_said_to_be_left_out() -> None:
    for start in ("1e999", "1e20", "NaN", "null", '"soon"', "[]"):
        content = trace_bytes(kernel("k", 1, 123.5, 5), kernel("k", 2, 0, 5))
        trace = read_trace(content.replace(b"123.5", start.encode()))
        assert (len(trace.activities), [damage.count for damage in trace.damaged]) == (1, [1]), start
