"""Gaps of the GPU by cause, and who waits for whom: written by hand, and sums over real traces."""

from __future__ import annotations

import random
import time

import msgspec
import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits
from kinetoscope.trace import kineto
from kinetoscope.trace.events import Step, Trace
from tests.tool.diagnosis.traces import PAGEABLE_UPLOAD, copied, function, without_cpu, work, written
from tests.tool.events import Event, annotation, kernel, launch, op, step
from tests.tool.trace.public import PUBLIC_TRACES, RECORDINGS, needs_public_traces

AROUND = [step(1, 0.0, 1000.0), *work(1, 0.0, 10.0, 90.0), *work(2, 500.0, 510.0, 490.0)]
"""The GPU is busy in 10 to 100 and 510 to 1000."""


def gaps_of(trace: Trace) -> list[tuple[float, float, str, str]]:
    return [
        (gap.start_us, gap.duration_us, gap.cause, gap.blame.name if gap.blame else "") for gap in Facts(trace).gaps
    ]


@pytest.mark.parametrize(
    ("between", "cause", "blame"),
    [
        ([op("aten::slow", 90.0, 405.0)], "launching", "aten::mm"),
        ([], "Python", "aten::mm"),
        ([annotation("forward", 90.0, 405.0)], "Python", "aten::mm"),
        ([annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 95.0, 400.0)], "data loading", ""),
        ([op("aten::empty", 90.0, 405.0), launch(None, 110.0, 380.0, name="cudaMalloc")], "memory allocation", ""),
        ([op("_compile.compile_inner (dynamo_timed)", 95.0, 400.0), op("aten::add", 200.0, 9.0)], "compiling", ""),
        (
            [op("aten::item", 20.0, 475.0), launch(None, 30.0, 460.0, name="cudaStreamSynchronize")],
            "synchronization",
            "",
        ),
        ([launch(None, 120.0, 300.0, name="hipMemcpyWithStream")], "synchronization", ""),
    ],
)
def test_the_cause_of_a_gap(between: list[Event], cause: str, blame: str) -> None:
    first, gap = gaps_of(written(*AROUND, *between))
    assert first == (0.0, 10.0, "launching", "aten::mm")
    assert gap == (
        100.0,
        410.0,
        cause,
        blame or between[-1 if cause in ("memory allocation", "synchronization") else 0]["name"],
    )


def test_a_collection_is_a_cause() -> None:
    trace = written(*AROUND, functions=[function("Python GC", 100.0, 390.0)])
    assert gaps_of(trace)[1] == (100.0, 410.0, "garbage collection", "Python GC")


def test_a_pageable_copy_waits_too() -> None:
    copy = [
        op("aten::copy_", 90.0, 405.0, external=3),
        launch(3, 95.0, 20.0, name="cudaMemcpyAsync", external=3),
        copied(PAGEABLE_UPLOAD, 3, 110.0, 20.0),
        launch(None, 120.0, 370.0, name="cudaStreamSynchronize"),
    ]
    causes = [gap[:3] for gap in gaps_of(written(*AROUND, *copy))]
    assert causes[1:] == [(100.0, 10.0, "pageable copy"), (130.0, 380.0, "pageable copy")]


def test_launching_again_after_a_wait_belongs_to_the_wait() -> None:
    wait = [op("aten::item", 20.0, 90.0), launch(None, 30.0, 75.0, name="cudaStreamSynchronize")]
    later = work(3, 160.0, 170.0, 300.0)
    assert gaps_of(written(*AROUND, *wait, *later))[1] == (100.0, 70.0, "synchronization", "cudaStreamSynchronize")
    assert gaps_of(written(*AROUND, *wait))[1] == (100.0, 410.0, "Python", "aten::mm")  # 395 us is no relaunch


def test_a_wait_at_the_end_of_the_step_before() -> None:
    before = [
        step(0, -500.0, 500.0),
        *work(9, -400.0, -380.0, 370.0),
        launch(None, -390.0, 385.0, name="cudaStreamSynchronize"),
    ]
    facts = Facts(written(*before, step(1, 0.0, 500.0), *work(1, 5.0, 20.0, 400.0)))
    second = msgspec.structs.replace(facts.trace, steps=facts.trace.steps[1:])
    assert [(gap[1], gap[2]) for gap in gaps_of(second)] == [(20.0, "synchronization"), (80.0, "Python")]


def test_nothing_recorded() -> None:
    """Steps that no annotation marks: before the first and after the last event of the CPU nothing is known."""
    trace = written(kernel("early", None, 0.0, 10.0), *work(1, 400.0, 410.0, 90.0), kernel("late", None, 900.0, 100.0))
    whole = Step(0, "the whole trace", 0.0, 1000.0, trace.cpu_ops, trace.calls, trace.activities)
    facts = Facts(msgspec.structs.replace(trace, steps=(whole,)))
    assert [(gap.duration_us, gap.cause) for gap in facts.gaps] == [
        (400.0, "nothing recorded"),
        (400.0, "nothing recorded"),
    ]
    assert facts.waits == Waits(0.0, 10.0, 200.0, 790.0)


def test_who_waits_for_whom() -> None:
    facts = Facts(
        written(
            step(1, 0.0, 1000.0),
            *work(1, 0.0, 100.0, 500.0),
            launch(None, 300.0, 350.0, name="cudaDeviceSynchronize"),
            kernel("elsewhere", 77, 950.0, 500.0),  # ends after the step: only its part counts
        )
    )
    assert facts.waits == Waits(both_busy_us=250.0, only_cpu_us=400.0, only_gpu_us=300.0, neither_us=50.0)
    assert facts.waits.step_us == facts.step_us == 1000.0
    assert facts.waits.gpu_idle_us == 450.0


def test_a_launch_on_one_thread_comes_before_a_wait_on_another() -> None:
    trace = written(
        step(1, 0.0, 100.0),
        launch(None, 0.0, 100.0, name="cudaDeviceSynchronize"),
        op("aten::mm", 0.0, 60.0, tid=7, external=5),
        launch(5, 40.0, 5.0, tid=7, external=5),
        kernel("k", 5, 60.0, 40.0),
    )
    assert Facts(trace).waits == Waits(0.0, 60.0, 40.0, 0.0)


def test_another_process_is_another_matter() -> None:
    """Of two merged ranks, the one with the median step is shown."""
    mine = [step(1, 0.0, 100.0), *work(1, 0.0, 10.0, 80.0)]
    theirs = [{**event, "pid": 999} for event in (step(1, 0.0, 300.0), op("aten::mm", 0.0, 10.0), launch(1, 4.0, 4.0))]
    facts = Facts(written(*mine, *theirs, kernel("other", 1, 90.0, 10.0, device=1)))
    assert [step.end_us for step in facts.all_steps] == [100.0]
    assert facts.waits == Waits(80.0, 20.0, 0.0, 0.0)


def test_without_events_of_the_cpu_only_the_gpu_is_known() -> None:
    facts = Facts(without_cpu(written(*AROUND)))
    assert facts.waits == Waits(0.0, 0.0, 580.0, 420.0)
    assert {gap.cause for gap in facts.gaps} == {"nothing recorded"}


def test_the_parts_add_up() -> None:
    for seed in range(20):
        assert_sums(kineto.read_trace(written_bytes(events_of(random.Random(seed)))))


def events_of(dice: random.Random) -> list[Event]:
    events: list[Event] = [step(number, 1000.1 * number, 990.7) for number in range(3)]
    names = ["cudaStreamSynchronize", "cudaMalloc", "cudaLaunchKernel", "cudaEventQuery"]
    for number in range(1, 80):
        start = round(dice.uniform(0, 3000), 3)
        events.append(op("aten::op", start, round(dice.uniform(0, 60), 3), external=number, tid=dice.choice([412, 7])))
        events.append(launch(number, start, round(dice.uniform(0, 40), 3), name=dice.choice(names), external=number))
        events.append(kernel("k", number, round(start + dice.uniform(0, 90), 3), round(dice.uniform(0, 50), 3)))
    return events


def written_bytes(events: list[Event]) -> bytes:
    return msgspec.json.encode({"traceEvents": events})


def assert_sums(trace: Trace) -> None:
    facts = Facts(trace)
    waits = facts.waits
    assert waits.step_us == facts.step_us
    assert min(waits.both_busy_us, waits.only_cpu_us, waits.only_gpu_us, waits.neither_us) >= 0
    if facts.has_gpu:
        assert round(sum(facts.gaps_us.values()), 3) == waits.gpu_idle_us
        assert round(sum(gap.duration_us for gap in facts.gaps), 3) == waits.gpu_idle_us


@pytest.mark.slow
def test_the_parts_add_up_in_our_recordings() -> None:
    for path in RECORDINGS[::8]:
        assert_sums(kineto.read_trace(path))


@needs_public_traces
def test_the_parts_add_up_in_public_traces() -> None:
    checked = [assert_sums(trace) for path in PUBLIC_TRACES if (trace := kineto.read_trace(path)).steps]
    assert checked


def test_a_large_step_takes_little_time() -> None:
    """5,000 nested operators, calls, kernels and waits: a quadratic sweep would take ten times the limit."""
    count = 5_000
    events: list[Event] = [step(1, 0.0, 10.0 * count)]
    events += [op("aten::nested", 1e-3 * index, 10.0 * count - 2e-3 * index) for index in range(1, count)]
    for index in range(1, count):
        events += [launch(index, 10.0 * index, 2.0), kernel("k", index, 10.0 * index + 3.0, 4.0)]
        events.append(launch(None, 10.0 * index + 2.0, 6.0, name="cudaStreamSynchronize"))
    trace = kineto.read_trace(written_bytes(events))
    start = time.process_time()
    assert_sums(trace)
    assert len(Facts(trace).gaps) == count
    assert time.process_time() - start < 2.5
