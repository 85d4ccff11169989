"""A damaged event is left out, counted and named; its neighbors keep their times; nothing ends a report."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.doctor.trace_checks import check_trace
from kinetoscope.ranks.digest import digest
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.document import report_html
from kinetoscope.report.trace_report import report_data
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.events import Damage, DamagedEvent
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.left_out import (
    NO_CATEGORY,
    NO_DURATION,
    NO_JSON,
    NO_OBJECT,
    NO_PHASE,
    NO_SIZE,
    NO_TIME,
)
from kinetoscope.trace.summaries import Summary
from kinetoscope.trace.totals import summarize
from tests.tool.damaged import TOP, VALUES, every_kind, paths, replaced, sums
from tests.tool.events import Event, kernel, launch, memcpy, memory, memset, op, trace_bytes

GONE = object()
KERNEL = kernel("k", 1, 10, 5)
INNER_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def changed(event: Event, value: Any, *path: str) -> Event:
    found: Event = replaced(event, path, value)
    if value is GONE:
        inner = found if len(path) == 1 else found[path[0]]
        del inner[path[-1]]
    return found


@pytest.mark.parametrize("value", [GONE, None])
def test_a_copy_without_its_bytes_counts(value: object) -> None:
    """ROCm's profiler gives no bytes of fills and of some copies."""
    trace = read_trace(trace_bytes(changed(memcpy(1, 10, 5, 64), value, "args", "bytes")))
    assert [(each.duration_us, each.moved_bytes) for each in trace.activities] == [(5.0, None)]
    assert trace.damaged == ()


@pytest.mark.parametrize(
    ("event", "reason", "name", "is_work"),
    [
        *((changed(KERNEL, value, "dur"), NO_DURATION, "k", 1) for value in (GONE, None, "long", -1, 1e16, [])),
        *((changed(KERNEL, value, "ts"), NO_TIME, "k", 1) for value in (GONE, None, "soon", 1e20, 10**400, {})),
        *((changed(KERNEL, value, "cat"), NO_CATEGORY, "k", 1) for value in (GONE, None, ["kernel"], "", "krnl", 5)),
        *((changed(KERNEL, value, "ph"), NO_PHASE, "k", 1) for value in (GONE, None, "x", "B", "C", "i", 5, ["X"])),
        *(
            (changed(memcpy(1, 10, 5, 64), value, "args", "bytes"), NO_SIZE, "Memcpy DtoD (Device -> Device)", 1)
            for value in (-1, 2**61, 10**400, "many")
        ),
        (memset(1, 10, 5, -4), NO_SIZE, "Memset (Device)", 1),
        (memory(10, 10**400, 1), NO_SIZE, "[memory]", 0),
        (memory(10, 64, 1, total=10**400), NO_SIZE, "[memory]", 0),
        (changed(memory(10, 64, 1), GONE, "args", "Bytes"), NO_SIZE, "[memory]", 0),
        (changed(op("o", 10, 5), None, "dur"), NO_DURATION, "o", 1),
        (changed(launch(1, 10), GONE, "ph"), NO_PHASE, "cudaLaunchKernel", 1),
        *((value, NO_OBJECT, "", 1) for value in (7, None, "text", [], [KERNEL])),
    ],
)  # fmt: skip
def test_a_damaged_event_is_left_out_and_named(event: Any, reason: str, name: str, is_work: int) -> None:
    sound = [op("o", 0, 99), launch(2, 1), kernel("l", 2, 30, 7)]
    trace = read_trace(trace_bytes(*sound, event))
    assert trace.damaged == (Damage(reason, "left out", 1, (DamagedEvent(name),) if name else (), is_work),)
    assert sums(summarize(trace)) == sums(summarize(read_trace(trace_bytes(*sound))))
    assert trace.damaged[0].text in summarize(trace).notes


def test_what_cannot_be_decoded_is_counted() -> None:
    trace = read_trace(trace_bytes(KERNEL, "here", kernel("l", 2, 30, 7)).replace(b'"here"', b"{oops}"))
    assert (len(trace.activities), trace.damaged) == (2, (Damage(NO_JSON, "left out", 1, (), 1),))


def test_the_arguments_of_gpu_work_without_any_gpu_work_are_another_accelerators() -> None:
    assert read_trace(trace_bytes(op("o", 0, 9), {**KERNEL, "cat": "npu"})).damaged == ()


@pytest.mark.parametrize("ts", [-1e18, 1e18, -(10**18), 9e15, 0.0, 3e12])
@pytest.mark.parametrize("cat", ["cpu_op", "kernel", "python_function", "overhead"])
def test_an_event_far_away_moves_no_clock(ts: float, cat: str) -> None:
    """Not even among few events, and not by a nanosecond."""
    at = 1_767_189_312_000_000_001  # in ns: a float cannot hold it
    sound = [op("o", at, 99_000), launch(1, at + 1), kernel("k", 1, at + 5003, 7001), kernel("k", 2, at + 20_007, 11)]
    for unit in (1, 1000):
        events = [{**event, "ts": (event["ts"] - at * (unit > 1)) // unit} for event in sound]
        first = 0 if unit > 1 else at
        far = {**op("far", first + ts if abs(ts) < 1e16 else ts, 5), "cat": cat}
        expected = [(a.start_us, a.duration_us) for a in read_trace(trace_bytes(*events)).activities]
        trace = read_trace(trace_bytes(far, *events))
        found = [(a.start_us, a.duration_us) for a in trace.activities if a.name == "k"]
        starts = [start - found[0][0] for start, _ in found]
        assert starts == pytest.approx([start - expected[0][0] for start, _ in expected], abs=1e-9)
        assert [duration for _, duration in found] == [duration for _, duration in expected]


@pytest.mark.parametrize("base_ns", [4_102_444_799_000_000_000, 4_102_444_800_000_000_000, 10**400, -(10**400), "x"])
def test_the_base_alone_decides_no_unit(base_ns: Any) -> None:
    events = [kernel("k", 1, 1_000_000.0 + 50 * number, 25) for number in range(4)]
    trace = read_trace(trace_bytes(*events, baseTimeNanoseconds=base_ns))
    assert [(each.start_us, each.duration_us) for each in trace.activities] == [(50.0 * n, 25.0) for n in range(4)]


def everything(data: bytes) -> Summary:
    """The summary, after all that the commands do with one trace."""
    trace = read_trace(data)
    summary = summarize(trace)
    diagnosed = DiagnosedTrace("trace.json", diagnose(trace), summary)
    json.dumps(report_data(diagnosed))
    report_html(diagnosed)
    check_trace(trace)
    digest(trace)
    return summary


EVENTS = every_kind()
WHOLE = sums(everything(trace_bytes(*EVENTS, **TOP)))
PLACES = [(index, *path) for index in range(len(EVENTS) // 3, 2 * len(EVENTS) // 3) for path in paths(EVENTS[index])]
TIMES = ("ts", "dur")


@pytest.mark.parametrize("seed", range(100))
def test_a_mutation_changes_no_other_event(seed: int) -> None:
    """The sums are those of the whole trace, those without the event, or there is a note."""
    draw = random.Random(seed)
    place, value = draw.choice(PLACES), draw.choice(VALUES)
    require_same_or_note(place, value)


@given(st.sampled_from([place for place in PLACES if place[-1] not in TIMES]), INNER_JSON)
def test_any_value_gives_the_sums_without_its_event_or_a_note(place: tuple[Any, ...], value: Any) -> None:
    require_same_or_note(place, value)


def require_same_or_note(place: tuple[Any, ...], value: Any) -> None:
    try:
        found = everything(trace_bytes(*replaced(EVENTS, place, value), **TOP))
    except TraceError:
        return
    others = [event for index, event in enumerate(EVENTS) if index != place[0]]
    is_time = place[-1] in TIMES and isinstance(value, int | float) and not found.damaged
    without = sums(summarize(read_trace(trace_bytes(*others, **TOP))))
    assert is_time or found.damaged or found.unattributed or sums(found) in (WHOLE, without), (place, value)


@pytest.mark.slow
@pytest.mark.parametrize("place", list(paths(TOP)))
def test_no_member_of_the_file_changes_a_sum(place: tuple[Any, ...]) -> None:
    for value in VALUES:
        assert sums(everything(trace_bytes(*EVENTS, **replaced(TOP, place, value)))) == WHOLE, value
