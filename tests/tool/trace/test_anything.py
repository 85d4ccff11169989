"""Whatever a file holds: a trace that answers every question, or a `TraceError`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import gpu_annotation, memcpy, overhead, trace_bytes
from tests.tool.trace.test_trace import exercise, two_steps

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
EVENTS = [*two_steps()[:9], memcpy(3, 5, 1, 4), overhead("x", 1, 1), gpu_annotation("ProfilerStep#2", 0, 9)]
ARGS = sorted({key for event in EVENTS for key in event["args"]} | {"est. achieved occupancy %", "bytes"})


def check(data: bytes) -> None:
    try:
        trace = read_trace(data)
    except TraceError:
        return
    exercise(trace)


class TestAnything:
    @given(VALUES)
    def test_any_json(self, value: Any) -> None:
        check(json.dumps(value).encode())
        check(json.dumps({"traceEvents": value, "deviceProperties": value}).encode())

    @given(st.data())
    def test_any_field_replaced(self, data: st.DataObject) -> None:
        events = [dict(event) for event in EVENTS]
        for _ in range(data.draw(st.integers(1, 4))):
            event = data.draw(st.sampled_from(events))
            if data.draw(st.booleans()):
                event["args"] = {**EVENTS[0]["args"], data.draw(st.sampled_from(ARGS)): data.draw(VALUES)}
            else:
                event[data.draw(st.sampled_from(sorted(EVENTS[0])))] = data.draw(VALUES)
        check(json.dumps({"traceEvents": events}).encode())

    @given(st.data())
    def test_any_bytes_replaced(self, data: st.DataObject) -> None:
        content = bytearray(trace_bytes(*EVENTS))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=6))
        check(bytes(content))

    @given(st.binary(max_size=200))
    def test_any_bytes_at_all(self, content: bytes) -> None:
        check(content)
        check(b"\x1f\x8b" + content)
