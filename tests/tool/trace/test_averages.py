"""The profiler's table: exact sums, and the same ones that torch's own code computes from the same spans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kinetoscope.trace.averages import STEPS, Average, key_averages
from kinetoscope.trace.events import CpuOp, Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool import events
from tests.tool.events import HOST
from tests.tool.recorded import experiments, recorded


def rows(*given: events.Event) -> dict[str, Average]:
    return {row.name: row for row in key_averages(read_trace(events.trace_bytes(*given)))}


def times(row: Average) -> tuple[float, float, float, float, int]:
    shown = (row.self_cpu_us, row.cpu_us, row.self_gpu_us, row.gpu_us)
    first, second, third, fourth = (round(us, 3) for us in shown)
    return first, second, third, fourth, row.calls


def step(number: int, start: float) -> list[events.Event]:
    """60 us: linear 40 > mm 20 > launch 4, and t 5; the kernel takes 7."""
    return [
        events.step(number, start, 60),
        events.op("aten::linear", start + 10, 40, external=10 * number),
        events.op("aten::t", start + 12, 5, external=10 * number + 1),
        events.op("aten::mm", start + 20, 20, external=10 * number + 2),
        events.launch(number, start + 30, 4, external=10 * number + 2),
        events.kernel("k", number, start + 55, 7, **{"External id": 10 * number + 2}),
    ]


def test_own_and_total_times_on_both_sides() -> None:
    found = rows(*step(1, 0), *step(2, 100), events.launch(90, 170, 30, name="cudaDeviceSynchronize"))
    assert {name: times(row) for name, row in found.items()} == {
        "aten::mm": (32, 40, 14, 14, 2),
        STEPS: (40, 120, 0, 14, 2),
        "aten::linear": (30, 80, 0, 14, 2),
        "cudaDeviceSynchronize": (30, 30, 0, 0, 1),
        "aten::t": (10, 10, 0, 0, 2),
        "cudaLaunchKernel": (8, 8, 0, 0, 2),
    }
    assert list(found) == ["aten::mm", STEPS, "aten::linear", "cudaDeviceSynchronize", "aten::t", "cudaLaunchKernel"]
    assert sum(row.self_cpu_us for row in found.values()) == 120 + 30


def test_what_never_reaches_the_gpu() -> None:
    found = rows(*step(1, 0), events.annotation("note", 80, 5))
    assert [name for name, row in found.items() if row.is_idle] == ["aten::t"]
    assert {row.kind for row in found.values()} == {"operator", "annotation", "CUDA call"}


def test_a_call_within_a_call_and_two_threads() -> None:
    found = rows(
        events.op("aten::add", 0, 50, external=1),
        events.launch(1, 10, 20, name="cudaLaunchKernel"),
        events.launch(2, 12, 5, name="cuLaunchKernel"),
        events.op("aten::add", 5, 50, external=2, tid=HOST + 1),
        events.op("aten::add", 60, 10, external=3),
        events.op("aten::add", 60, 4, external=4),
    )
    assert times(found["cudaLaunchKernel"])[:2] == (15, 20)
    assert times(found["cuLaunchKernel"])[:2] == (5, 5)
    assert times(found["aten::add"]) == (30 + 50 + 10, 50 + 50 + 10, 0, 0, 3)


def test_a_name_within_itself() -> None:
    """Alone inside, at any depth, it is the same call; beside others it is one of its own."""
    given = (
        events.op("aten::sum", 0, 40, external=1),
        events.op("aten::sum", 2, 30, external=2),
        events.op("aten::sum", 4, 20, external=3),
        events.launch(1, 6, 4, external=3),
        events.op("aten::to", 50, 40, external=4),
        events.op("aten::to", 52, 10, external=5),
        events.op("aten::empty", 64, 10, external=6),
        events.kernel("k", 1, 100, 7, **{"External id": 3}),
    )
    found = rows(*given)
    assert times(found["aten::sum"]) == (36, 40, 7, 7, 1)
    assert times(found["aten::to"]) == (30, 50, 0, 0, 2)
    theirs = torchs(read_trace(events.trace_bytes(*given)))
    assert {name: times(row) for name, row in found.items()} == theirs


def test_no_time_is_left_over_by_arithmetic() -> None:
    found = rows(events.op("outer", 1, 0.3), events.op("a", 1, 0.1), events.op("b", 1.1, 0.2))
    assert found["outer"].self_cpu_us == 0


def test_an_annotation_and_an_operator_of_one_name() -> None:
    found = key_averages(read_trace(events.trace_bytes(events.annotation("x", 0, 9), events.op("x", 20, 4))))
    assert [(row.kind, row.cpu_us) for row in found] == [("annotation", 9), ("operator", 4)]


def test_nothing() -> None:
    assert key_averages(read_trace(events.trace_bytes())) == ()


def torchs(trace: Trace) -> dict[str, tuple[float, float, float, float, int]]:
    """`key_averages()` of torch, fed the spans of a trace as its parser feeds them."""
    profiler_util = pytest.importorskip("torch.autograd.profiler_util")

    spans, by_op = profiler_util.EventList(use_device="cuda"), {}
    for span in (*trace.cpu_ops, *trace.calls):
        name = STEPS if span.name.startswith("ProfilerStep#") else span.name
        is_annotation = isinstance(span, CpuOp) and span.is_annotation
        event = profiler_util.FunctionEvent(
            len(spans), name, span.thread, span.start_us, span.end_us, use_device="cuda", stack=[],
            is_user_annotation=is_annotation,
        )  # fmt: skip
        spans.append(event)
        if isinstance(span, CpuOp):
            by_op[span] = event
    for activity in trace.activities:
        if activity.op is not None:
            by_op[activity.op].append_kernel(activity.name, 0, activity.duration_us)
    spans._build_tree()
    return {
        row.key: (
            row.self_cpu_time_total, row.cpu_time_total, row.self_device_time_total, row.device_time_total, row.count
        )
        for row in spans.key_averages()
    }  # fmt: skip


def different() -> Iterator[tuple[str, Trace]]:
    """Recorded traces, the smallest first, each with an operator or a call that no smaller one has."""
    traces = {each: recorded(each) for each in experiments()}
    seen: set[str] = set()
    for each, trace in sorted(traces.items(), key=lambda item: len(item[1].cpu_ops)):
        names = {span.name for span in (*trace.cpu_ops, *trace.calls)}
        if names - seen:
            seen |= names
            yield each, trace


@pytest.mark.slow
def test_torch_computes_the_same() -> None:
    """Its own code takes a second for a large trace, so only those that differ are given to it."""
    compared = 0
    for experiment, trace in different():
        ours = {row.name: times(row) for row in key_averages(trace)}
        theirs = torchs(trace)
        assert ours.keys() == theirs.keys(), experiment
        for name, shown in ours.items():
            assert shown == pytest.approx(theirs[name], abs=0.01), (experiment, name)
        compared += 1
    assert compared > 50
