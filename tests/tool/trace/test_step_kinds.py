"""Kinds of step: told apart by their own work, not by what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.doctor.step_checks import check_warm_up
from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.step_kinds import kinds_of_step
from kinetoscope.trace.summary import summary_text
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, annotation, kernel, launch, op, step, trace_bytes
from tests.tool.report.samples import diagnosed

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
Kind = tuple[int, float, float]  # number of kernels, duration of each, wall time of the step
LONG, SHORT = (20, 100.0, 2500.0), (5, 60.0, 400.0)


def trace_of(kinds: Sequence[Kind], *, names: Sequence[str] = (), kernel_name: str = "k", **more: Any) -> Trace:
    """A step for each kind, with an operator, a launch and a kernel for each of its kernels; `more`: of the kernels,
    if they take over 50 us."""
    events: list[Event] = []
    correlations, at = count(1), 0.0
    for number, (kernels, kernel_us, wall_us) in enumerate(kinds):
        events.append(annotation(names[number], at, wall_us) if names else step(number, at, wall_us))
        for index in range(kernels):
            correlation, begin = next(correlations), at + 5 + 5 * index
            events += [op("aten::mm", begin, 4.0), launch(correlation, begin + 1, 2.0)]
            args = more if kernel_us > 50 else {}
            events.append(kernel(kernel_name, correlation, at + 10 + index * kernel_us, kernel_us, **args))
        at += wall_us
    return read_trace(trace_bytes(*events))


def counts(trace: Trace) -> list[tuple[int, float, float]]:
    return [(len(kind.steps), kind.step_us, kind.gpu_busy_us) for kind in kinds_of_step(trace)]


@pytest.mark.parametrize(
    ("trace", "kinds"),
    [
        (trace_of([LONG, SHORT, SHORT, LONG, SHORT, SHORT]), [(2, 2500.0, 2000.0), (4, 400.0, 300.0)]),
        (trace_of([SHORT] * 8 + [LONG] * 2), [(2, 2500.0, 2000.0), (8, 400.0, 300.0)]),
        (
            trace_of([(5, 80.0, 450.0)] * 2 + [(5, 50.0, 300.0)] * 5, grid=[9, 9, 9]),
            [(5, 300.0, 250.0), (2, 450.0, 400.0)],
        ),
        (trace_of([(5, 160.0, 900.0), SHORT, (5, 160.0, 900.0)] * 2), []),
        (trace_of([(5, 200.0, 1100.0), (5, 50.0, 300.0)] * 2), [(2, 1100.0, 1000.0), (2, 300.0, 250.0)]),
        (
            trace_of([(5, 100.0, 600.0), (5, 60.0, 400.0)] * 3, names=["serve(8)", "serve(1)"] * 3),
            [(3, 600.0, 500.0), (3, 400.0, 300.0)],
        ),
        (trace_of([LONG, LONG, *[SHORT] * 9, (2, 50.0, 200.0)]), [(2, 2500.0, 2000.0), (9, 400.0, 300.0)]),
        (
            trace_of([*[LONG] * 2, *[SHORT] * 2, *[(1, 50.0, 100.0)] * 2]),
            [(2, 2500.0, 2000.0), (2, 400.0, 300.0), (2, 100.0, 50.0)],
        ),
        (
            trace_of([(20, us, 3000.0) for us in (100.0, 55.0, 25.0)] + [(5, us, 900.0) for us in (20.0, 60.0, 35.0)]),
            [(3, 3000.0, 1200.0), (3, 900.0, 191.667)],
        ),
        (trace_of([(20, 100.0, 500.0), SHORT] * 2), [(2, 2000.0, 2000.0), (2, 400.0, 300.0)]),
    ],
    ids=[
        "prefill and decode", "one after the other", "other sizes", "a slower clock", "four times as long",
        "marks with two names", "one of no kind", "three kinds", "prompts of all lengths", "the CPU runs ahead",
    ],
)  # fmt: skip
def test_kinds_by_their_own_work(trace: Trace, kinds: list[tuple[int, float, float]]) -> None:
    assert counts(trace) == kinds


@pytest.mark.parametrize(
    "trace",
    [
        trace_of([LONG, *[SHORT] * 5]),
        trace_of([(5, 60.0, wall_us) for wall_us in (400.0, 400.0, 400.0, 4000.0) * 3]),
        trace_of([(5 + number, 60.0, 2000.0) for number in range(12)]),
        trace_of([(5, 50.0, 900.0), (5, 160.0, 900.0)] * 3, kernel_name=ALL_REDUCE),
        trace_of([LONG, SHORT, LONG]),
        trace_of([(20, 10.0, 900.0), (5, 40.0, 900.0)] * 3),
        trace_of([(0, 0.0, 400.0), SHORT, LONG] * 3),
    ],
    ids=[
        "one long step",
        "a stall",
        "work that grows",
        "waiting for other ranks",
        "three steps",
        "as much in other kernels",
        "no work",
    ],
)
def test_no_kinds(trace: Trace) -> None:
    assert counts(trace) == []


@pytest.mark.parametrize(
    ("rows", "us", "kinds"),
    [
        (512, 800.0, [(2, 900.0, 800.0), (2, 500.0, 400.0)]),
        (512, 1600.0, [(2, 1700.0, 1600.0), (2, 500.0, 400.0)]),
        (1, 800.0, []),
        (1, 1600.0, []),
    ],
)
def test_shapes_tell_kinds_of_the_same_kernels(rows: int, us: float, kinds: list[tuple[int, float, float]]) -> None:
    """A persistent kernel has one grid for all sizes; with one size, a kernel that takes longer is on a slow GPU."""
    events: list[Event] = []
    for number in range(4):
        at, kernel_us, dims = 2000.0 * number, (us, 400.0)[number % 2], [[(rows, 1)[number % 2], 64], [64, 64]]
        events += [step(number, at, kernel_us + 100), launch(number + 1, at + 12, external=number + 1)]
        events += [op("aten::mm", at + 10, 10.0, external=number + 1, dims=dims)]
        events += [kernel("k", number + 1, at + 50, kernel_us)]
    assert counts(read_trace(trace_bytes(*events))) == kinds


def test_lost_kernels_are_no_kind_of_step() -> None:
    """Each second step lacks 3 of its 5 kernels, which the profiler dropped."""
    events: list[Event] = []
    for number in range(6):
        at = 1000.0 * number
        events.append(step(number, at, 900.0))
        for index in range(5):
            correlation = 10 * number + index + 1
            events.append(launch(correlation, at + 10 * index + 5))
            if index < 2 or number % 2:
                events.append(kernel("k", correlation, at + 50 * index + 20, 50.0))
    assert counts(read_trace(trace_bytes(*events))) == []


def test_operators_tell_kinds_without_a_gpu() -> None:
    def events(*operators: str) -> Trace:
        made: list[Event] = []
        for number in range(6):
            at = 1000.0 * number
            made += [step(number, at, 900.0), op(operators[number % 2], at + 10, 800.0 if number % 2 else 100.0)]
        return read_trace(trace_bytes(*made))

    assert counts(events("aten::add", "aten::mm")) == [(3, 900.0, 0.0)] * 2
    assert counts(events("aten::mm", "aten::mm")) == [], "a busy machine makes equal operators longer"


def test_facts_of_the_kind_that_takes_most_of_the_time() -> None:
    trace = trace_of([LONG, SHORT, SHORT, LONG, SHORT, SHORT])
    facts = Facts(trace)
    assert (facts.step.name, facts.median_us, facts.step_us) == ("ProfilerStep#0", 2500.0, 1100.0)
    assert (len(facts.steps), facts.warm_up, facts.per_step_us(300.0)) == (6, None, 100.0)


def test_a_report_names_both_kinds() -> None:
    made = diagnosed(trace_of([LONG, SHORT, SHORT, LONG, SHORT, SHORT]))
    assert headline(made).startswith(
        "A trace of two kinds of step: 2 take 2.50 ms, 4 take 400 µs; the GPU works 79 % of the time."
    )
    assert made.step_us == 1100.0
    lines = summary_text(summarize(made.trace)).splitlines()
    assert [line for line in lines if line.startswith("kind of step")] == [
        "kind of step       2 of 2,500.000 us, GPU busy 2,000.000 us",
        "kind of step       4 of 400.000 us, GPU busy 300.000 us",
    ]


@pytest.mark.parametrize(
    ("kinds", "is_warm_up"),
    [
        ([(5, 60.0, 9000.0), *[SHORT] * 5], True),
        ([LONG, SHORT, SHORT, LONG, SHORT], False),
        ([(20, 100.0, 9000.0), SHORT, SHORT, LONG, SHORT, SHORT], True),
        ([(20, 100.0, 3500.0), SHORT, SHORT, LONG, SHORT, SHORT], False),
        ([(5, 60.0, wall_us) for wall_us in (5000.0, 400.0, 400.0, 400.0) * 3], False),
        ([(5, 60.0, wall_us) for wall_us in (5000.0, 4000.0, 400.0, 400.0, 400.0, 400.0)], True),
        ([LONG, *[SHORT] * 5], True),
    ],
    ids=[
        "cold", "prefill first", "cold prefill", "warm prefill", "a stall that comes back", "two cold steps",
        "one long step",
    ],
)  # fmt: skip
def test_a_first_step_is_warm_up_if_it_is_longer_than_others_of_its_kind(kinds: list[Kind], is_warm_up: bool) -> None:
    trace = trace_of(kinds)
    assert (Facts(trace).warm_up is not None) == is_warm_up
    check = check_warm_up(trace)
    assert check is not None
    assert (check.status == "warning") == is_warm_up


@pytest.mark.parametrize(("more", "is_warm_up"), [({"grid": [9, 9, 9]}, False), ({}, True)])
def test_a_first_step_with_larger_work_is_no_warm_up(more: dict[str, Any], is_warm_up: bool) -> None:
    """Five kernels of 400 us before five of 50 us: of another size, or on a GPU that is slow at first."""
    trace = trace_of([(5, 400.0, 2100.0), *[(5, 50.0, 300.0)] * 5], **more)
    facts, check = Facts(trace), check_warm_up(trace)
    assert ((facts.warm_up is not None), facts.prompt) == (is_warm_up, None)
    assert len(facts.steps) == (5 if is_warm_up else 6)
    assert check is not None
    assert (check.status == "warning") == is_warm_up


@pytest.mark.parametrize(("first_us", "is_warm_up"), [(2900.0, False), (3100.0, True)])
def test_a_first_step_is_compared_with_the_time_of_steps_in_the_long_run(first_us: float, is_warm_up: bool) -> None:
    """The CPU of the later steps runs ahead: it needs 300 us for each, the GPU 1,000 us."""
    events: list[Event] = []
    for number in range(5):
        at = first_us + 300.0 * (number - 1) if number else 0.0
        events += [step(number, at, 300.0 if number else first_us - 0.1), launch(number + 1, at + 10.0)]
        events.append(kernel("k", number + 1, at + 20.0 if not number else first_us + 1000.0 * number, 1000.0))
    facts = Facts(read_trace(trace_bytes(*events)))
    assert (facts.warm_up is not None) == is_warm_up


@pytest.mark.parametrize(("rows", "is_warm_up"), [(512, False), (1, True), (None, True)])
def test_without_a_gpu_shapes_tell_larger_work(rows: int | None, is_warm_up: bool) -> None:
    """An operator takes 5,000 us in the first of four steps, then 500 us: with other shapes, the same, or none."""
    events: list[Event] = []
    for number, us in enumerate((5000.0, 500.0, 500.0, 500.0)):
        at = 4500.0 + 500.0 * number if number else 0.0
        shapes = None if rows is None else [[1 if number else rows, 64]]
        events += [step(number, at, us), op("aten::mm", at, us, dims=shapes)]
    assert (Facts(read_trace(trace_bytes(*events))).warm_up is not None) == is_warm_up
