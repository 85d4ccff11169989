"""Several ranks in one file: a kernel is never credited to another rank."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, kernel, launch, op, step, trace_bytes


def rank(pid: int, late: float, *, gpu: int = 0) -> list[Event]:
    """Two steps of a rank; its ids are those of every other rank."""
    events: list[Event] = []
    for number, at in ((2, 0.0), (3, 100.0)):
        events += [step(number, at, 80), op(f"op of {pid}", at + 1, 40, external=number), launch(number, at + 5)]
        events += [{**kernel(f"kernel of {pid}", number, at + 30, 10, device=gpu), "pid": gpu}]
    return [
        {**event, "ts": event["ts"] + late} | ({} if event["cat"] == "kernel" else {"pid": pid, "tid": pid})
        for event in events
    ]


def label(pid: int, text: str) -> Event:
    return {"ph": "M", "name": "process_labels", "pid": pid, "args": {"labels": text}}


def credited(trace: Trace) -> set[tuple[str, str, str]]:
    """Process of each step, and its kernels with their ops."""
    return {(s.process, k.name, k.op.name if k.op else "") for s in trace.steps for k in s.kernels}


RIGHT = {("process 11", "kernel of 11", "op of 11"), ("process 22", "kernel of 22", "op of 22")}


class TestMerged:
    @pytest.mark.parametrize("gpu", [0, 1], ids=["one GPU number", "two GPU numbers"])
    @pytest.mark.parametrize("late", [-7.0, 0.0, 7.0, 1000.0])
    def test_one_rank_after_the_other_in_the_file(self, late: float, gpu: int) -> None:
        trace = read_trace(trace_bytes(*rank(11, 0), *rank(22, late, gpu=gpu)))
        assert trace.processes == ("process 11", "process 22")
        assert credited(trace) == RIGHT
        assert (len(trace.steps), trace.uncounted) == (4, ())
        assert all({o.name for o in s.ops} == {f"op of {s.process.split()[1]}"} for s in trace.steps)

    def test_sorted_by_time_the_gpu_tells(self) -> None:
        events = sorted([*rank(11, 0), *rank(22, 30, gpu=1)], key=lambda event: float(event["ts"]))
        trace = read_trace(trace_bytes(*events))
        assert credited(trace) == RIGHT, "no kernel of GPU 0 can start before its launch"
        assert trace.uncounted == ()

    def test_what_nothing_tells_is_not_credited(self) -> None:
        events = sorted([*rank(11, 0), *rank(22, 1, gpu=0)], key=lambda event: float(event["ts"]))
        trace = read_trace(trace_bytes(*events))
        assert credited(trace) <= RIGHT
        (group,) = trace.uncounted
        assert (group.reason, len(group.activities)) == ("could be of several of the merged processes", 4)
        assert all(activity.launch is None and activity.op is None for activity in group.activities)

    def test_ranks_have_their_names(self) -> None:
        events = [label(11, "Rank 3"), *rank(11, 0), label(22, "rank: 1"), *rank(22, 5)]
        trace = read_trace(trace_bytes(*events))
        assert trace.processes == ("rank 3", "rank 1")
        found = summarize(trace)
        assert found.processes == ("rank 3", "rank 1")
        assert found.notes == ("this file has 2 ranks (rank 3, rank 1): each has steps of its own",)

    def test_another_process_without_calls_is_no_rank(self) -> None:
        trace = read_trace(trace_bytes(*rank(11, 0), {**op("loader", 10, 5), "pid": 99}))
        assert trace.processes == ()
        assert {s.process for s in trace.steps} == {""}

    def test_many_processes_stay_fast(self) -> None:
        events: list[Any] = [
            e for pid in range(3000) for e in ({**op("o", 0, 1), "pid": pid}, launch(1, 0) | {"pid": pid})
        ]
        trace = read_trace(json.dumps(events + [kernel("k", 1, 5, 1)] * 3000).encode())
        assert len(trace.processes) == 3000
        assert sum(len(group.activities) for group in trace.uncounted) == 3000


class TestDevices:
    def test_each_gpu_has_its_numbers(self) -> None:
        events = [step(2, 0, 100), *(launch(n, n) for n in (1, 2, 3))]
        events += [kernel("a", 1, 10, 5), kernel("b", 2, 12, 8, device=1), kernel("c", 3, 30, 4, device=1)]
        properties = [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}]
        found = summarize(read_trace(trace_bytes(*events, deviceProperties=properties)))
        assert [(d.device, d.name, d.kernels_per_step, d.gpu_busy_us_per_step) for d in found.devices] == [
            (0, "A", 1, 5.0), (1, "B", 2, 12.0),
        ]  # fmt: skip
