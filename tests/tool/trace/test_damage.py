"""Impossible times: what is left out, what is cut, and what stays as it is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from kinetoscope.trace.damage import LOST, TOO_LONG
from kinetoscope.trace.events import Damage, DamagedEvent, Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.left_out import NO_DURATION
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.runaways import OVER_LATER, OVER_TRACE, OVER_WAIT
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, kernel, launch, memcpy, op, step, trace_bytes

LATE = 1_767_189_312_000_000.0  # a time of 2026


def read(*events: Any, **top: Any) -> Trace:
    return read_trace(trace_bytes(*events, **top))


def work(count: int = 40, *, at: float = 0.0, call: str = "cudaLaunchKernel", waits: bool = True) -> list[Event]:
    """Pairs of a product of 80 us and an addition of 10 us on stream 7, launched 1 ms ahead; then a wait."""
    events = [step(1, at, 100.0 * count)]
    for index in range(count):
        begin = at + 100 * index
        events += [
            launch(2 * index + 1, begin + 1, name=call),
            kernel("gemm", 2 * index + 1, begin + 1000, 80),
            launch(2 * index + 2, begin + 5, name=call),
            kernel("add", 2 * index + 2, begin + 1080, 10),
        ]
    if waits:
        events.append(launch(0, at + 100 * count, 1000, name="cudaDeviceSynchronize"))
    return events


def activity(events: list[Event], name: str, index: int) -> Event:
    return [event for event in events if event["cat"] in ("kernel", "gpu_memcpy") and event["name"] == name][index]


def only(trace: Trace) -> Damage:
    (damage,) = trace.damaged
    return damage


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "hipLaunchKernel"])
@pytest.mark.parametrize(
    ("name", "index", "recorded_us", "at_most_us"),
    [("gemm", 3, 3_400_000.0, 80.0), ("add", 0, 5_000.0, 20.0), ("add", 38, 900_000.0, 20.0)],
)
def test_a_duration_over_later_events_of_its_stream_is_cut(
    call: str, name: str, index: int, recorded_us: float, at_most_us: float
) -> None:
    events = work(call=call, waits=call != "hipLaunchKernel")
    activity(events, name, index)["dur"] = recorded_us
    trace = read(*events)
    assert only(trace) == Damage(
        OVER_LATER, "cut where the next event starts", 1, (DamagedEvent(name, recorded_us, at_most_us),), 1
    )
    assert busy_us(trace.activities) == 40 * 90 + (10 if name == "add" else 0)
    assert summarize(trace).damaged == trace.damaged
    assert trace.damaged[0].text in summarize(trace).notes


def test_several_runaways_and_the_order_of_their_ends() -> None:
    events = work()
    for index, us in ((2, 50_000.0), (5, 70_000.0), (9, 30_000.0)):
        activity(events, "gemm", index)["dur"] = us
    damage = only(read(*events))
    assert (damage.count, [event.recorded_us for event in damage.events]) == (3, [70_000.0, 50_000.0, 30_000.0])
    assert {event.at_most_us for event in damage.events} == {80.0}
    assert damage.text == (
        "damaged: 3 events with a duration that reaches over later events of the stream, cut where the next event "
        "starts: gemm (70.0 ms recorded, at most 80.0 µs), gemm (50.0 ms recorded, at most 80.0 µs), "
        "gemm (30.0 ms recorded, at most 80.0 µs)"
    )


def test_an_event_of_a_unique_name_without_a_wait() -> None:
    """Another vendor's: an exception because it is longer than all of the trace."""
    events = work(call="hipLaunchKernel", waits=False)
    activity(events, "add", 7).update(name="only once", dur=2_000_000)
    assert only(read(*events)).events == (DamagedEvent("only once", 2_000_000.0, 20.0),)


@pytest.mark.parametrize("name", ["gemm", "add"])
def test_the_last_event_cannot_end_after_the_gpu_was_waited_for(name: str) -> None:
    events = work()
    activity(events, name, 39)["dur"] = 900_000.0
    if name == "gemm":
        events.remove(activity(events, "add", 39))
    damage = only(read(*events))
    start = 4900.0 if name == "gemm" else 4980.0
    assert (damage.reason, damage.events) == (OVER_WAIT, (DamagedEvent(name, 900_000.0, 5000 - start),))


@pytest.mark.parametrize("wait", [[], [launch(0, 300, 900, name="hipDeviceSynchronize")]])
def test_the_last_event_is_no_longer_than_the_trace_if_others_of_its_name_are_short(wait: list[Event]) -> None:
    events = [*work(call="hipLaunchKernel", waits=False), *wait]
    activity(events, "add", 39)["dur"] = 900_000.0
    damage = only(read(*events))
    assert (damage.reason, damage.events) == (OVER_TRACE, (DamagedEvent("add", 900_000.0, 10.0),))


def beside(stream: int = 7, *, name: str = "ncclDevKernel_Generic_1", call: str = "hipLaunchKernel") -> list[Event]:
    """A kernel of 3 ms beside 30 pairs, launched with them."""
    return [*work(call=call), launch(999, 2, name=call), kernel(name, 999, 1050, 3000, stream=stream)]


def replay(count: int) -> list[Event]:
    """Two replays of a graph with a long branch and short ones, under one stream."""
    return [
        event
        for number in (1, 2)
        for event in (
            launch(number, 1000.0 * number, name="cudaGraphLaunch"),
            kernel("long", number, 1000.0 * number + 10, 900),
            *(kernel("short", number, 1000.0 * number + 20 + 60 * index, 50) for index in range(count)),
        )
    ]


def dependent() -> list[Event]:
    """Each kernel starts 15 us before the one before it ends."""
    return [
        event
        for index in range(9)
        for event in (
            launch(index + 1, 5.0 * index, name="cudaLaunchKernelExC"),
            kernel("pingpong", index + 1, 100 + 85.0 * index, 100),
        )
    ]


def last_of(count: int) -> list[Event]:
    """The last kernel takes 50 times as long, and the wait is as long."""
    events = [*work(count), launch(501, 90.0 * count), kernel("add", 501, 1000 + 100.0 * count, 500)]
    return [*events, launch(0, 101.0 * count, 3000, name="cudaDeviceSynchronize")]


SOUND = {
    "serial": work(),
    "another stream": beside(13),
    "a queue that runs two at a time": beside(),
    "a queue with short collectives, too": [
        *beside(), *(kernel("ncclDevKernel_Generic_1", None, 40 * index, 30) for index in range(20)),
    ],
    "a queue with a long kernel in each of many steps": [
        *work(call="hipLaunchKernel"),
        *(kernel("long", None, 1050 + 500 * index, 400) for index in range(6)),
        *(kernel("long", None, 40 * index, 20) for index in range(6)),
    ],
    "branches of a graph": replay(12),
    "dependent launch": dependent(),
    "a long last kernel": last_of(20),
    "a GPU that works on after all calls": [
        launch(1, 0), launch(2, 5), kernel("short", 1, 10, 4), kernel("long", 2, 14, 90_000),
    ],
    "a last collective that waits for another rank": [
        *work(9, waits=False),
        *(kernel("ncclDevKernel_AllReduce", None, 100 * index, 8, stream=20) for index in range(9)),
        launch(999, 700), kernel("ncclDevKernel_AllReduce", 999, 1800, 90_000, stream=20),
    ],
    "no launches": [kernel("k", None, 10.0 * index, 25) for index in range(9)],
    "GPUs of two processes": [{**event, "pid": pid} for pid in (1, 2) for event in work(3)],
    "a pause of ten minutes": [*work(), op("late", 6e8, 5), launch(700, 6e8), kernel("gemm", 700, 6e8 + 9, 80)],
    "times from 0 on": [op("first", 0, 0), *work(at=5.0)],
    "two runs in one file": [*work(), *work(at=LATE)],
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_what_is_possible_stays(name: str) -> None:
    events = SOUND[name]
    trace = read(*events)
    assert trace.damaged == ()
    recorded = sorted(event["dur"] for event in events if event["cat"] == "kernel")
    assert sorted(each.duration_us for each in trace.activities) == recorded


def test_a_stream_is_known_by_the_name_of_its_thread() -> None:
    """Without `stream` among the arguments, as some tools rewrite traces, two streams stay two."""
    events = [launch(1, 0), launch(2, 1), kernel("long", 1, 10, 500), kernel("short", 2, 20, 30)]
    for event, tid in zip(events[2:], ("stream 7", "stream 20"), strict=True):
        event["tid"] = tid
        del event["args"]["stream"]
    trace = read(*events)
    assert ([each.stream for each in trace.activities], trace.damaged) == ([7, 20], ())


@pytest.mark.parametrize(
    ("at", "time", "base"),
    [
        (LATE, 0, 0),
        (LATE, -5e12, 0),
        (LATE, 1, 0),
        (LATE, LATE * 2, 0),
        (LATE * 1000, 0, 0),  # a file in nanoseconds
        (1_000_000.0, 0, 1_767_189_312_000_000_000),
        (1_000_000.0, 1e15, 1_767_189_312_000_000_000),
        (9e11, 0, 1_767_189_312_000_000_000),
    ],
)
def test_records_far_from_all_others_are_left_out(at: float, time: float, base: int) -> None:
    events = work(at=at)
    if at > 1e18:
        for event in events:
            event["ts"], event["dur"] = at + (event["ts"] - at) * 1000, event["dur"] * 1000
    for index in (4, 9):
        activity(events, "gemm", index).update(ts=time, dur=0)
    trace = read(*events, baseTimeNanoseconds=base)
    assert only(trace) == Damage(LOST, "left out", 2, (DamagedEvent("gemm"),), 2)
    assert len(trace.activities) == 78
    assert max(each.end_us for each in trace.activities) < 6000
    assert trace.steps[0].start_us == 0


def test_a_lost_record_whose_duration_reaches_from_time_0_is_told_once() -> None:
    events = work(at=LATE)
    activity(events, "gemm", 5).update(ts=0, dur=LATE + 500)
    assert only(read(*events)) == Damage(NO_DURATION, "left out", 1, (DamagedEvent("gemm"),), 1)


@pytest.mark.parametrize("name", ["gemm", "cudaLaunchKernel"])
def test_an_event_longer_than_any_profile_is_left_out(name: str) -> None:
    events = work()
    next(event for event in events if event["name"] == name)["dur"] = 2.6e12
    assert only(read(*events)) == Damage(TOO_LONG, "left out", 1, (DamagedEvent(name),), 1)


@pytest.mark.parametrize(("base", "is_lost"), [(1_767_189_312_000_000_000, True), (0, False)])
def test_a_call_at_time_0_is_lost_where_times_have_a_base(base: int, is_lost: bool) -> None:
    """Without a base, a tool may have moved the first event to 0: a pause of a second follows."""
    trace = read(launch(700, 0, 4), *work(at=1_000_000.0), baseTimeNanoseconds=base)
    assert [damage.count for damage in trace.damaged] == [1] * is_lost


def test_most_records_may_be_lost() -> None:
    events = work(at=LATE)
    for index in range(39):
        activity(events, "gemm", index).update(ts=0, dur=0)
        activity(events, "add", index).update(ts=0, dur=0)
        for event in events[2 + 4 * index : 3 + 4 * index]:
            event.update(ts=0, dur=0)
    trace = read(*events)
    assert [(damage.reason, damage.done) for damage in trace.damaged] == [(LOST, "left out")]
    assert [each.name for each in trace.activities] == ["gemm", "add"]


def test_ranks_one_after_another_keep_their_work_without_lost_records() -> None:
    """Left out records do not shift which part of a file belongs to which rank."""
    events: list[Event] = []
    for pid in (1, 2):
        rank = work(4, at=LATE)
        activity(rank, "gemm", 0).update(ts=0, dur=0)
        events += [{**op("o", LATE, 5), "pid": pid}, *rank]
        for event in rank:
            event["pid"] = pid if event["cat"] != "kernel" else event["pid"]
    trace = read(*events)
    assert only(trace).count == 2
    assert [len(each.activities) for each in trace.steps] == [7, 7]


@pytest.mark.parametrize("duration", [-3, -1e9, "x", None, 2e15, [4], 10**400])
def test_an_event_without_a_possible_duration_is_left_out(duration: Any) -> None:
    trace = read(op("a", 0, 10), {**kernel("k", None, 3, 1), "dur": duration}, memcpy(None, 8, 2, 64))
    assert only(trace) == Damage(NO_DURATION, "left out", 1, (DamagedEvent("k"),), 1)
    assert [each.duration_us for each in trace.activities] == [2.0]
    assert only(trace).text == "damaged: 1 event without a duration, or with an impossible one, left out: k"


def test_a_hostile_file_stays_fast() -> None:
    trace = read(*(kernel("nested", index + 1, index, 1e9 - 100 * index) for index in range(20_000)))
    assert len(trace.activities) == 20_000


@pytest.mark.parametrize(("early_us", "notes"), [(9.0, 0), (700.0, 1)])
def test_clocks_that_differ_are_told(early_us: float, notes: int) -> None:
    """One of two kernels starts before its launch."""
    trace = read_trace(
        trace_bytes(
            step(1, 0, 2000),
            launch(1, 1000),
            kernel("k", 1, 1000 - early_us, 5),
            launch(2, 1100),
            kernel("k", 2, 1200, 5),
        )
    )
    text = (
        "1 of 2 activities start before their launch, by up to 700 µs: the clocks of CPU and GPU differ, so times "
        "between the two are wrong; trust durations only"
    )
    assert summarize(trace).notes == (text,) * notes
