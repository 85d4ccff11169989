"""What marks steps, which work belongs to them, and that the rest is counted by reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, annotation, gpu_annotation, kernel, launch, memcpy, op, step, trace_bytes
from tests.tool.trace.public import PUBLIC_TRACES, RECORDINGS, content, needs_public_traces, public


def read(*events: Any, **top: Any) -> Trace:
    return read_trace(trace_bytes(*events, **top))


def work(trace: Trace) -> list[list[str]]:
    return [[activity.name for activity in each.activities] for each in trace.steps]


def uncounted(trace: Trace) -> dict[str, list[str]]:
    return {group.reason: [activity.name for activity in group.activities] for group in trace.uncounted}


def launched(name: str, correlation: int, at: float, us: float = 1.0, **more: Any) -> list[Event]:
    """A call, and the kernel that it launches 5 us later."""
    return [launch(correlation, at, **more), kernel(name, correlation, at + 5, us)]


class TestProfilerSteps:
    def test_gpu_work_outside_steps_is_counted_by_reason(self) -> None:
        trace = read(
            step(2, 100, 50), step(3, 200, 50),
            *launched("early", 1, 10), *launched("first", 2, 110), *launched("between", 3, 160),
            *launched("second", 4, 210), *launched("late", 5, 260),
            kernel("lost", 77, 120, 1), kernel("alone", None, 3, 1),
        )  # fmt: skip
        assert trace.steps_from == "ProfilerStep"
        assert work(trace) == [["first"], ["second"]]
        assert uncounted(trace) == {
            "launched before the first step": ["early"],
            "launched between steps": ["between"],
            "launched after the last step": ["late"],
            "no launch in the trace": ["alone", "lost"],
        }
        assert [activity.name for activity in trace.unattributed] == ["alone", "early", "lost", "between", "late"]

    def test_two_profilers_at_once_mark_each_step_twice(self) -> None:
        trace = read(
            step(2, 100, 50), step(2, 101, 48), step(3, 200, 50), step(3, 201, 48),
            *launched("first", 1, 110), *launched("second", 2, 210),
        )  # fmt: skip
        assert [(s.number, s.start_us, s.end_us) for s in trace.steps] == [(2, 0.0, 50.0), (3, 100.0, 150.0)]
        assert work(trace) == [["first"], ["second"]]

    def test_without_any_call_operators_tell_the_step(self) -> None:
        """Of a trace without the category of calls; the second kernel starts after the end of its step."""
        events = [step(2, 100, 50), step(3, 200, 50), op("aten::mm", 110, 9, external=1)]
        events += [op("aten::mm", 140, 9, external=2), op("aten::mm", 210, 9, external=3)]
        for number, (name, at) in enumerate((("a", 115), ("b", 155), ("c", 215)), 1):
            events.append(kernel(name, None, at, 40, **{"External id": number}))
        trace = read(*events, kernel("lost", None, 300, 1))
        assert work(trace) == [["a", "b"], ["c"]]
        assert uncounted(trace) == {"no launch in the trace": ["lost"]}
        trace = read(*events, launch(9, 111))
        assert work(trace) == [[], []]

    @pytest.mark.parametrize("category", ["Operator", "cpu_op"])
    def test_steps_may_be_operators(self, category: str) -> None:
        trace = read(op("ProfilerStep#5", 0, 10, cat=category), *launched("k", 1, 2))
        assert (trace.steps_from, [s.number for s in trace.steps], work(trace)) == ("ProfilerStep", [5], [["k"]])

    def test_categories_until_pytorch_1_9(self) -> None:
        host: Event = {"ph": "X", "pid": 25, "tid": "25"}
        gpu: Event = {"ph": "X", "pid": 0, "tid": "stream 7"}
        ids: Event = {"correlation": 9, "external id": 4, "stream": 7, "device": 0}
        trace = read(
            {**host, "cat": "Operator", "name": "ProfilerStep#5", "ts": 10, "dur": 50, "args": {"External id": 3}},
            {**host, "cat": "Operator", "name": "aten::mm", "ts": 20, "dur": 20, "args": {"External id": 4}},
            {**host, "cat": "Runtime", "name": "cudaLaunchKernel", "ts": 25, "dur": 5, "args": ids},
            {**gpu, "cat": "Kernel", "name": "gemm", "ts": 40, "dur": 3, "args": ids},
            {**gpu, "cat": "Memcpy", "name": "Memcpy HtoD", "ts": 50, "dur": 2, "args": {**ids, "bytes": 64}},
            {**gpu, "cat": "Memset", "name": "Memset", "ts": 60, "dur": 1, "args": {**ids, "bytes": 4}},
            {"ph": "i", "s": "t", "name": "[memory]", "pid": 25, "tid": 25, "ts": 21,
             "args": {"Device Type": 0, "Device Id": -1, "Bytes": 4}},
        )  # fmt: skip
        (only,) = trace.steps
        assert (only.number, only.start_us, only.end_us) == (5, 0.0, 50.0)
        assert [(a.kind, a.name, a.stream, a.op and a.op.name) for a in only.activities] == [
            ("kernel", "gemm", 7, "aten::mm"), ("memcpy", "Memcpy HtoD", 7, "aten::mm"),
            ("memset", "Memset", 7, "aten::mm"),
        ]  # fmt: skip
        assert [(event.at_us, event.bytes, event.device) for event in trace.memory] == [(11.0, 4, -1)]

    def test_steps_that_overlap_are_cut_where_the_next_begins(self) -> None:
        trace = read(step(2, 0, 100), step(3, 40, 100), *launched("a", 1, 30), *launched("b", 2, 50))
        assert work(trace) == [["a"], ["b"]]
        assert [(s.start_us, s.end_us) for s in trace.steps] == [(0, 40), (40, 140)]

    def test_the_thread_with_most_steps_has_them(self) -> None:
        trace = read(step(2, 0, 10), step(3, 10, 10), step(2, 1, 10, tid=9))
        assert [s.start_us for s in trace.steps] == [0, 10]

    def test_a_last_step_in_which_nothing_runs_is_where_the_loop_ended(self) -> None:
        """PyTorch marks a step from the last `prof.step()` until the profiler stops: 16 us after a `break`."""
        begun = [step(2, 0, 100), op("aten::mm", 10, 50)]
        begun += [step(3, 100, 16), annotation("enumerate(DataLoader)#", 101, 9)]
        assert [s.number for s in read(*begun).steps] == [2]
        assert [s.number for s in read(*begun, op("aten::mm", 110, 2)).steps] == [2, 3]
        assert [s.number for s in read(step(2, 0, 100), step(3, 100, 100)).steps] == [2, 3], "Python alone"


class TestRepeatedAnnotations:
    def test_the_one_that_covers_most_gpu_time(self) -> None:
        events: list[Event] = []
        for number, at in enumerate((0.0, 100.0, 200.0)):
            events += [annotation(f"execute_{number}_context", at, 50)]
            events += [*launched("gemm", 2 * number + 1, at + 10, 20), *launched("topk", 2 * number + 2, at + 61, 1)]
        trace = read(*events)
        assert trace.steps_from == "annotation 'execute_#_context'"
        assert [s.name for s in trace.steps] == ["execute_0_context", "execute_1_context", "execute_2_context"]
        assert work(trace) == [["gemm"]] * 3
        assert uncounted(trace) == {
            "launched between steps": ["topk", "topk"], "launched after the last step": ["topk"],
        }  # fmt: skip

    def test_the_outermost_of_those_that_cover_the_same(self) -> None:
        events = [
            each for at in (0.0, 100.0) for each in (annotation("outer", at, 50), annotation("inner", at + 5, 30))
        ]
        trace = read(*events, *launched("a", 1, 10), *launched("b", 2, 110))
        assert trace.steps_from == "annotation 'outer'"

    @pytest.mark.parametrize(
        "events",
        [
            [annotation("once", 0, 50), *launched("k", 1, 10)],
            [annotation("nested", 0, 50), annotation("nested", 10, 20), *launched("k", 1, 15)],
            [annotation("little", 0, 5), annotation("little", 50, 5), *launched("k", 1, 1), *launched("l", 2, 20)],
            [annotation("two threads", 0, 5), annotation("two threads", 50, 5, tid=9), *launched("k", 1, 1)],
        ],
        ids=["once", "overlaps itself", "half of the time", "on two threads"],
    )  # fmt: skip
    def test_else_the_whole_trace(self, events: list[Event]) -> None:
        trace = read(*events)
        assert (trace.steps_from, trace.uncounted) == ("the whole trace", ())
        assert [s.activities for s in trace.steps] == [trace.activities]

    def test_without_gpu_work_that_with_most_of_the_cpu_time(self) -> None:
        trace = read(annotation("step", 0, 40), annotation("step", 50, 40), annotation("log", 91, 2))
        assert (trace.steps_from, len(trace.steps)) == ("annotation 'step'", 2)


class TestOtherMarks:
    @pytest.mark.parametrize(
        ("graphs", "grids", "count"),
        [
            ((1, 2, 3), (1, 2, 3), 4),  # a graph for each of three layers
            ((1, 2, 3, 4), (1, 1, 1, 1), 3),  # four equal layers
            ((1, 2), (1, 1), 12),  # two buffers
            ((1, 1, 2), (1, 1, 2), 12),
        ],
    )
    def test_graphs_that_are_replayed_in_turn_make_one_step(
        self, graphs: Sequence[int], grids: Sequence[int], count: int
    ) -> None:
        events: list[Event] = []
        for number in range(12):
            at, place = 100.0 * number, number % len(graphs)
            args = {"graph id": graphs[place], "grid": [grids[place], 1, 1]}
            events += [launch(number + 1, at, name="cudaGraphLaunch"), kernel("k", number + 1, at + 5, 50, **args)]
        trace = read(*events)
        assert (trace.steps_from, len(trace.steps)) == ("CUDA graph replays", count)
        assert {len(s.kernels) for s in trace.steps} == {12 // count}

    def test_graph_replays(self) -> None:
        events: list[Event] = []
        for number in range(3):
            at = 100.0 * number
            events += [launch(number + 1, at, name="cudaGraphLaunch")]
            events += [kernel(f"k{part}", number + 1, at + 10 * part + 5, 8) for part in range(3)]
        trace = read(launch(9, -10), kernel("prologue", 9, -5, 2), *events, *launched("sample", 10, 250))
        assert trace.steps_from == "CUDA graph replays"
        assert work(trace) == [["k0", "k1", "k2"], ["k0", "k1", "k2"], ["k0", "k1", "k2", "sample"]]
        assert uncounted(trace) == {"launched before the first step": ["prologue"]}
        assert [s.name for s in trace.steps] == ["graph replay #0", "graph replay #1", "graph replay #2"]

    def test_one_replay_is_the_whole_trace(self) -> None:
        trace = read(launch(1, 0, name="hipGraphLaunch"), kernel("a", 1, 5, 8), kernel("b", 1, 15, 8))
        assert (trace.steps_from, work(trace)) == ("the whole trace", [["a", "b"]])
        assert (trace.steps[0].start_us, trace.steps[0].end_us) == (0.0, 23.0)

    @pytest.mark.parametrize("fetch_us", [70.0, 20.0])
    def test_batches_of_a_loader(self, fetch_us: float) -> None:
        """Fetching is never a step, however long it is: a step lasts until the next fetch."""
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        events = [annotation(name, at, fetch_us) for at in (10.0, 110.0, 210.0)]
        trace = read(op("aten::empty", 0, 5), *events, op("aten::mm", 285, 25))
        assert trace.steps_from == "batches of a DataLoader"
        assert [(s.name, s.start_us, s.end_us) for s in trace.steps] == [
            ("batch #0", 10, 110), ("batch #1", 110, 210), ("batch #2", 210, 310),
        ]  # fmt: skip
        assert [[op.name for op in s.ops] for s in trace.steps] == [[name], [name], [name, "aten::mm"]]
        assert read(*events[:1], op("aten::mm", 285, 25)).steps_from == "the whole trace"
        assert read(op("aten::mm", 0, 5000), *[{**e, "ts": e["ts"] + 5000} for e in events]).steps_from == (
            "the whole trace"
        )

    def test_an_annotation_of_most_work_comes_before_batches(self) -> None:
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events = [each for at in (0.0, 100.0) for each in (annotation(name, at, 30), annotation("train", at + 30, 69))]
        assert read(*events).steps_from == "annotation 'train'"

    def test_gpu_work_alone(self) -> None:
        trace = read(kernel("a", None, 5, 8), memcpy(None, 20, 5, 64))
        assert work(trace) == [["a", "Memcpy DtoD (Device -> Device)"]]
        assert trace.uncounted == ()

    def test_nothing(self) -> None:
        assert (read().steps, read().steps_from) == ((), "the whole trace")
        assert read(gpu_annotation("x", 0, 1)).steps == ()


GPU_CATEGORIES = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


@pytest.mark.slow
def test_counted_and_uncounted_are_all_that_the_file_has() -> None:
    """All public traces; of the recordings, which one program wrote in one way, every third: several in a chapter."""
    for path in (*PUBLIC_TRACES, *RECORDINGS[::3]):
        assert_all_is_counted(path)


def assert_all_is_counted(path: Path) -> None:
    trace = read_trace(path)
    raw = [event for event in content(path)["traceEvents"] if event.get("cat") in GPU_CATEGORIES]
    counted = [activity for each in trace.steps for activity in each.activities]
    rest = [activity for group in trace.uncounted for activity in group.activities]
    assert len(counted) + len(rest) == len(raw) == len(trace.activities), path
    assert sum(round(activity.duration_us * 1000) for activity in (*counted, *rest)) == sum(
        round(event["dur"] * 1000) for event in raw
    ), path
    assert sorted(map(id, trace.unattributed)) == sorted(map(id, rest)), path


@needs_public_traces
@pytest.mark.parametrize(
    ("name", "steps_from", "steps", "activities"),
    [
        ("kineto_tb", "ProfilerStep", 6, 9096),
        ("tracelens_b200", "the whole trace", 1, 929),
        ("tracelens_inference_vllm", "the whole trace", 1, 434),
        ("tracelens_mi210", "the whole trace", 1, 562),
        ("hta_event_sync", "the whole trace", 1, 6),
        ("hta_nccl_data", "ProfilerStep", 3, 3774),
        ("hta_cpu_only", "ProfilerStep", 1, 0),
    ],
)
def test_steps_of_public_traces(name: str, steps_from: str, steps: int, activities: int) -> None:
    trace = read_trace(public(name))
    assert (trace.steps_from, len(trace.steps), len(trace.activities)) == (steps_from, steps, activities)
    assert trace.processes == ()
