"""Annotations that a trace shows on the GPU alone mark steps, too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, annotation, gpu_annotation, kernel, launch, memcpy, trace_bytes
from tests.tool.report.samples import diagnosed

CORRELATIONS = count(1)


def worked(name: str, at: float, us: float, *, stream: int = 7, launched: float | None = None) -> list[Event]:
    """An annotation on a stream, full of two kernels; `launched`: when the first is, and the second 10 us later."""
    found: list[Event] = [gpu_annotation(name, at, us, stream=stream)] if name else []
    for index in range(2):
        correlation = next(CORRELATIONS)
        found.append(kernel("k", correlation, at + index * us / 2, us / 2, stream=stream))
        found += [] if launched is None else [launch(correlation, launched + 10.0 * index, 5.0)]
    return found


def looped(names: Sequence[str], times: int = 4, *, cpu: bool = False) -> list[Event]:
    """Annotations of 300 us one after the other, every 1,000 us; `cpu`: with launches, every 400 us from 0 on."""
    return [
        event
        for number in range(times)
        for index, name in enumerate(names)
        for event in worked(
            name.format(number),
            100.0 + 1000.0 * number + 300.0 * index,
            300.0,
            launched=400.0 * number + 50.0 * index if cpu else None,
        )
    ]


def read(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events))


def places(trace: Trace) -> list[tuple[str, float, float, int]]:
    """Name, start, end and number of activities of each step, on the file's clock if an event starts at 0."""
    return [(s.name, s.start_us, s.end_us, len(s.activities)) for s in trace.steps]


@pytest.mark.parametrize(
    ("names", "marked_by", "expected"),
    [
        (
            ["ProfilerStep#{}"],
            "ProfilerStep",
            [(f"ProfilerStep#{n}", 1000.0 * n, 1000.0 * n + (1000.0 if n < 3 else 300.0), 2) for n in range(4)],
        ),
        (["train"], "annotation 'train'", [("train", 1000.0 * n, 1000.0 * n + 300.0, 2) for n in range(4)]),
        (["batch {}"], "annotation 'batch #'", [(f"batch {n}", 1000.0 * n, 1000.0 * n + 300.0, 2) for n in range(4)]),
        (
            ["forward", "backward"],
            "iterations of 'forward', 'backward'",
            [(f"iteration #{n}", 1000.0 * n, 1000.0 * n + (1000.0 if n < 3 else 600.0), 4) for n in range(4)],
        ),
        (
            ["## Call CompiledFxGraph f0 ##"],
            "annotation '## Call CompiledFxGraph f0 ##'",
            [("## Call CompiledFxGraph f0 ##", 1000.0 * n, 1000.0 * n + 300.0, 2) for n in range(4)],
        ),
    ],
    ids=["prof.step", "one annotation", "numbers", "parts in turn", "compiled"],
)
def test_a_trace_of_the_gpu_alone(
    names: list[str], marked_by: str, expected: list[tuple[str, float, float, int]]
) -> None:
    trace = read(*looped(names))
    assert (trace.steps_from, places(trace), trace.unattributed) == (marked_by, expected, ())


@pytest.mark.parametrize(
    ("names", "marked_by", "expected"),
    [
        (
            ["ProfilerStep#{}"],
            "ProfilerStep",
            [(f"ProfilerStep#{n}", 400.0 * n, 400.0 * n + (400.0 if n < 3 else 15.0), 2) for n in range(4)],
        ),
        (["train"], "annotation 'train'", [("train", 400.0 * n, 400.0 * n + 15.0, 2) for n in range(4)]),
        (
            ["forward", "backward"],
            "iterations of 'forward', 'backward'",
            [(f"iteration #{n}", 400.0 * n, 400.0 * n + 400.0, 4) for n in range(3)]
            + [("iteration #3", 1200.0, 1265.0, 4)],
        ),
    ],
    ids=["prof.step", "one annotation", "parts in turn"],
)
def test_with_launches_a_step_is_where_its_work_is_launched(
    names: list[str], marked_by: str, expected: list[tuple[str, float, float, int]]
) -> None:
    """`ProfilerActivity.CUDA` alone records calls, but no operators and no annotations on the CPU."""
    trace = read(*looped(names, cpu=True))
    assert (trace.steps_from, places(trace), trace.unattributed) == (marked_by, expected, ())


def test_steps_with_other_numbers_are_apart() -> None:
    """`schedule(repeat=2)` records two cycles: the last step of the first does not last until the second begins."""
    trace = read(*looped(["ProfilerStep#{}"], 2), *worked("ProfilerStep#7", 5100.0, 300.0))
    assert [(start, end) for _, start, end, _ in places(trace)] == [(0.0, 1000.0), (1000.0, 1300.0), (5000.0, 5300.0)]


@pytest.mark.parametrize("name", ["ProfilerStep#{}", "train"])
def test_work_on_another_stream_belongs_to_the_step_of_its_annotation(name: str) -> None:
    """The copies of each step, on a stream of their own, begin when the next step has begun."""
    events: list[Event] = []
    for number in range(4):
        at = 1000.0 * number
        events += worked(name.format(number), at, 900.0)
        events += [gpu_annotation(name.format(number), at + 1100.0, 50.0, stream=20)]
        events += [memcpy(None, at + 1100.0, 50.0, 64 + number, stream=20)]
        events += [memcpy(None, at + 950.0, 5.0, 32 + number, stream=21)]
    trace = read(*events)
    moved = [[copy.moved_bytes for copy in step.memcpys] for step in trace.steps]
    if name == "train":
        assert moved == [[64], [65], [66], [67]]
        assert [group.reason for group in trace.uncounted] == ["no launch in the trace"]
        assert [copy.moved_bytes for copy in trace.unattributed] == [32, 33, 34, 35], "between annotated steps"
    else:
        assert moved == [[32, 64], [33, 65], [34, 66], [67]], "the last step ends with its work"


def test_annotations_on_the_cpu_come_first() -> None:
    """The CPU marks two steps, the GPU four parts."""
    cpu = [annotation("step", 800.0 * number, 700.0) for number in range(2)]
    trace = read(*cpu, *looped(["part"], cpu=True))
    assert (trace.steps_from, len(trace.steps)) == ("annotation 'step'", 2)


@pytest.mark.parametrize(
    "events",
    [
        looped([""]),
        worked("train", 0.0, 300.0),
        [*looped(["head"]), *worked("", 5000.0, 5000.0)],
        [gpu_annotation("idle", 1000.0 * n, 300.0) for n in range(4)] + [kernel("k", None, 400.0, 100.0)],
    ],
    ids=["no annotation", "one annotation", "less than half of the time", "no work in them"],
)
def test_annotations_that_mark_no_steps(events: list[Event]) -> None:
    assert [step.name for step in read(*events).steps] == ["whole trace"]


def test_the_headline_of_a_trace_of_the_gpu_alone() -> None:
    """Each step works for 300 us of 1,000, the last of 300."""
    assert headline(diagnosed(read(*looped(["ProfilerStep#{}"], 8)))) == (
        "A step takes 1.00 ms and the GPU works 33 % of it. No rule found why: most of the GPU's idle time is time in "
        "which the trace shows nothing."
    )
