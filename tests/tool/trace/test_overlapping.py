"""Steps that several threads annotate: at the same time, in turn, or one thread around the others."""

from __future__ import annotations

from itertools import count

import pytest

from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, annotation, gpu_annotation, kernel, launch, op, trace_bytes
from tests.tool.report.samples import diagnosed

CORRELATIONS = count(1)


def annotated(
    name: str,
    thread: int,
    times: int = 6,
    *,
    first: float = 0.0,
    period: float = 2000.0,
    us: float = 1800.0,
    gpu_us: float = 400.0,
    launches: int = 4,
) -> list[Event]:
    """Annotations of a thread, in each of which it launches kernels every 100 us; they run on a stream of its own."""
    events: list[Event] = []
    for number in range(times):
        at = first + number * period
        events.append(annotation(name.format(number), at, us, tid=thread))
        for index in range(launches):
            correlation, begin = next(CORRELATIONS), at + 10.0 + 100.0 * index
            events += [op("aten::mm", begin, 50.0, tid=thread), launch(correlation, begin + 5.0, 10.0, tid=thread)]
            events.append(kernel("k", correlation, at + 100.0 + index * gpu_us, gpu_us, stream=thread))
    return events


def read(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events))


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (
            [*annotated("request", 1), *annotated("request", 2, first=900.0)],
            "Steps of 2 threads overlap, so the trace is not divided into steps: 'request' takes 1.80 ms on the CPU "
            "(median of 12).",
        ),
        (
            [*annotated("request {}", 1), *annotated("request {}", 2, first=900.0, gpu_us=250.0)],
            "Steps of 2 threads overlap, so the trace is not divided into steps: 'request #' takes 1.80 ms on the CPU "
            "(median of 12).",
        ),
        (
            [
                *annotated("decode", 1, 20, period=400.0, us=390.0, gpu_us=90.0),
                *annotated("prefill", 2, 4, period=2000.0),
            ],
            "Steps of 2 threads overlap, so the trace is not divided into steps: 'decode' takes 390 µs on the CPU "
            "(median of 20), 'prefill' takes 1.80 ms on the CPU (median of 4).",
        ),
        (
            [event for thread in range(1, 17) for event in annotated("request", thread, first=100.0 * thread)],
            "Steps of 16 threads overlap, so the trace is not divided into steps: 'request' takes 1.80 ms on the CPU "
            "(median of 96).",
        ),
        (
            [event for thread in range(1, 6) for event in annotated("abcde"[thread - 1], thread, first=200.0 * thread)],
            "Steps of 5 threads overlap, so the trace is not divided into steps: 'a' takes 1.80 ms on the CPU "
            "(median of 6), 'b' takes 1.80 ms on the CPU (median of 6), 'c' takes 1.80 ms on the CPU (median of 6), "
            "and those of 2 more.",
        ),
    ],
    ids=["two threads", "40 % on one", "two names", "many threads", "many names"],
)
def test_no_step_is_of_all_threads(events: list[Event], text: str) -> None:
    trace = read(*events)
    assert [(step.name, len(step.activities)) for step in trace.steps] == [("whole trace", len(trace.activities))]
    assert text in headline(diagnosed(trace))


@pytest.mark.parametrize(("later", "steps", "text"), [(900.0, 12, ""), (150.0, 1, "Steps of 2 threads overlap")])
def test_annotations_on_the_gpu_are_of_the_thread_that_launches(later: float, steps: int, text: str) -> None:
    """Without annotations on the CPU: requests of two threads on two streams are no requests on two streams each. They
    take turns, or their launches overlap."""
    events: list[Event] = []
    for thread, first in ((1, 0.0), (2, later)):
        events += [
            e for e in annotated("request", thread, first=first) if e["cat"] not in ("cpu_op", "user_annotation")
        ]
        events += [gpu_annotation("request", first + 2000.0 * n + 100.0, 1600.0, stream=thread) for n in range(6)]
    trace = read(*events)
    assert [len(step.activities) for step in trace.steps] == [48 // steps] * steps
    assert text in headline(diagnosed(trace))


def test_without_gpu_work_operators_count() -> None:
    events = [*annotated("request", 1), *annotated("request", 2, first=900.0)]
    trace = read(*(event for event in events if event["cat"] in ("cpu_op", "user_annotation")))
    assert [step.name for step in trace.steps] == ["whole trace"]
    assert "Steps of 2 threads overlap" in headline(diagnosed(trace))


def test_threads_that_take_turns_have_one_row_of_steps() -> None:
    """A pool of two threads: each serves every second request."""
    trace = read(*annotated("request", 1, period=4000.0), *annotated("request", 2, first=2000.0, period=4000.0))
    assert (trace.steps_from, trace.unattributed) == ("annotation 'request'", ())
    assert [(step.start_us, len(step.activities)) for step in trace.steps] == [(2000.0 * n, 4) for n in range(12)]
    assert "overlap" not in headline(diagnosed(trace))


def test_layers_that_a_backward_pass_repeats_take_no_turns() -> None:
    """Recomputed blocks: annotated on the main thread, then again on the thread of the backward pass."""
    events = [*annotated("block", 1, 4, period=2000.0, us=900.0), *annotated("block", 2, 4, first=1000.0, us=900.0)]
    assert [step.name for step in read(*events).steps] == ["whole trace"]


def test_a_thread_that_waits_for_others_marks_the_steps() -> None:
    """`DataParallel`: the main thread starts two replicas, waits for them, and then launches an optimizer's kernels."""
    main: list[Event] = []
    for number in range(6):
        at, correlation = 2000.0 * number, next(CORRELATIONS)
        main += [annotation("step", at, 1990.0), launch(correlation, at + 1500.0)]
        main += [kernel("optimizer", correlation, at + 1600.0, 390.0, stream=9)]
    trace = read(*main, *annotated("replica", 1, first=50.0, us=900.0), *annotated("replica", 2, first=60.0, us=900.0))
    assert trace.steps_from == "annotation 'step'"
    assert [len(step.activities) for step in trace.steps] == [9] * 6


def test_a_thread_with_much_less_work_marks_no_steps() -> None:
    """A thread augments batches on the GPU, 19 % of the GPU's time, while another trains."""
    augmented = annotated("augment", 2, 12, period=950.0, us=900.0, gpu_us=50.0)
    trace = read(*annotated("train", 1), *augmented)
    assert trace.steps_from == "annotation 'train'"
    assert [step.start_us for step in trace.steps] == [2000.0 * number for number in range(6)]


def test_a_backward_pass_counts_for_the_thread_with_more_work() -> None:
    """Of 1,650 us of each step, 1,000 run in a backward pass on a thread without annotations, 250 in a loader."""
    backward = [{**each, "name": "b"} for each in annotated("", 5, gpu_us=250.0, first=600.0) if each["name"]]
    loader = annotated("load", 2, 12, period=1000.0, us=950.0, gpu_us=31.25)
    trace = read(*annotated("train", 1, gpu_us=100.0), *backward, *loader)
    assert trace.steps_from == "annotation 'train'"
    assert len(trace.steps) == 6
