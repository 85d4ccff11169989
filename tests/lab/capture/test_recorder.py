"""Finished recordings are saved, failed saves are named with their cause, and groups share processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture.merging import merge
from snippets.lab.capture.recorder import (
    Outcome,
    RunWorker,
    batch_costs_s,
    group_experiments,
    make_batches,
    processes_of,
    record_experiments,
    tries_of,
)
from snippets.lab.capture.supervisor import Event, Group
from snippets.lab.experiment import find
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import Recording, Timing
from tests.lab import samples
from tests.lab.capture.faults import FAULTS, PACKAGE, RIGHT
from tests.lab.samples import DEVICE, as_dict, files, point, sample, save_all, timings, untied
from tests.tool.events import kernel, launch, step, trace_bytes


def worker(content: bytes, trace_json: bytes) -> RunWorker:
    """A worker that is done at once and leaves these files, whichever process it is."""

    def run(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
        (folder / f"right.{number}.json").write_bytes(content)
        (folder / "right.trace.json").write_bytes(trace_json)
        yield {"experiment": "faults/right", "doing": f"process {number}"}
        yield {"finished": ["faults/right"]}

    return run


def part(**changed: Any) -> Recording:
    """The files that one process leaves."""
    return sample("faults/right", **changed)


DONE = worker(msgspec.json.encode(part()), samples.trace_json())


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines of the terminal less their time: `0/5 faults/right: checking`."""
    lines = capsys.readouterr().out.splitlines()
    return [" ".join([line.split()[0], line.split("s  ", 1)[-1]]) for line in lines]


def test_what_is_finished_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(record_experiments(tmp_path, DEVICE, RIGHT, DONE)) == [Outcome(RIGHT[0])]
    recording = load_recording(tmp_path, DEVICE, "faults/right")
    assert untied(recording) == merge([part()] * 4)
    assert printed(capsys) == [
        "0/1 faults/right: process 0",
        "0/1 faults/right: process 1",
        "0/1 faults/right: process 2",
        "0/1 faults/right: process 3",
        "1/1 faults/right: recorded",
    ]


def test_a_failure_leaves_the_rest_of_its_group_to_the_next_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[list[list[str]]] = []

    def run(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
        batches.append([[experiment.name for experiment in group] for group in batch])
        if len(batches) == 1:
            yield {"experiment": "faults/wrong", "failed": "WrongAnswer: relative error 5.00e-01"}
        else:
            yield from DONE(batch, folder, number)

    outcomes = list(record_experiments(tmp_path, DEVICE, find("faults", PACKAGE)[:2], run))
    assert [(one.experiment.name, one.failed) for one in outcomes] == [
        ("wrong", "WrongAnswer: relative error 5.00e-01"),
        ("right", ""),
    ]
    assert batches == [[["wrong", "right"]], *[[["right"]]] * 4]
    assert printed(capsys) == [
        "1/2 faults/wrong: failed: WrongAnswer: relative error 5.00e-01",
        *(f"1/2 faults/right: process {number}" for number in range(4)),
        "2/2 faults/right: recorded",
    ]


def test_contradicting_times_are_measured_three_times_and_then_kept_as_disturbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace's kernels take 20 us a step, the replays 500: somebody else used the GPU."""
    slow = sample("faults/right", points=(point(timed=timings(500.0, 500.0, 500.0)),))
    (outcome,) = record_experiments(
        tmp_path, DEVICE, RIGHT, worker(msgspec.json.encode(slow), samples.trace_json(kernels=(2, 2, 2)))
    )
    reason = "busy for 24 us in the trace, but interleaved 500 us"
    assert outcome == Outcome(RIGHT[0], disturbed=reason)
    assert load_recording(tmp_path, DEVICE, "faults/right").disturbed == reason
    assert [line for line in printed(capsys) if "process" not in line] == [
        f"0/1 faults/right: disturbed, try 1 of 3: {reason}",
        f"0/1 faults/right: disturbed, try 2 of 3: {reason}",
        f"1/1 faults/right: recorded as disturbed: {reason}",
    ]


def test_a_loop_that_takes_longer_without_the_profiler_is_disturbed(tmp_path: Path) -> None:
    trace = samples.trace_json(kernels=(2, 2, 2))
    (recorded_us,) = {step.end_us - step.start_us for step in read_trace(trace).steps}
    for factor, reason in ((1.05, ""), (1.2, f"{recorded_us:.0f} us in the trace, but {1.2 * recorded_us:.0f} us ")):
        us = factor * recorded_us
        of_loop = msgspec.structs.replace(point(), timings=None, iteration=Timing.from_samples([us, us, us]))
        content = msgspec.json.encode(sample("faults/right", points=(of_loop,)))
        (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, worker(content, trace))
        assert outcome.disturbed == (f"{reason}without the profiler" if reason else "")


def test_gaps_between_the_kernels_of_a_graph_belong_to_an_iteration(tmp_path: Path) -> None:
    """One call of 10 us starts two kernels of 40 us; the second ends 500 us after the first started."""
    trace = trace_bytes(step(1, 0, 10), launch(1, 1), kernel("a", 1, 1000, 40), kernel("b", 1, 1460, 40))
    for us, reason in ((540.0, ""), (560.0, "500 us in the trace, but 560 us without the profiler")):
        of_loop = msgspec.structs.replace(point(), timings=None, iteration=Timing.from_samples([us, us, us]))
        content = msgspec.json.encode(sample("faults/right", points=(of_loop,)))
        (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, worker(content, trace))
        assert outcome.disturbed == reason


def test_times_that_a_worker_has_tried_three_times_are_not_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point_of_worker = point(timed=timings(24.0, 24.0, 24.0), disturbed="interleaved 513 us, but cold 280 us")
    content = msgspec.json.encode(sample("faults/right", points=(point_of_worker,)))
    (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, worker(content, samples.trace_json(kernels=(2, 2, 2))))
    assert outcome.disturbed == "interleaved 513 us, but cold 280 us"
    assert len([line for line in printed(capsys) if "process" in line]) == 4


def test_the_cheapest_batch_is_first_and_what_would_take_too_long_is_left(tmp_path: Path) -> None:
    order: list[str] = []

    def run(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
        order.append(batch[0][0].name)
        yield {"experiment": batch[0][0].id, "failed": "stopped"}

    chosen = [replace(RIGHT[0], name=name, chapter=name, group="") for name in ("dear", "cheap", "middling")]
    costs = {"dear": 100.0, "cheap": 1.0, "middling": 10.0}
    cost_s = lambda one: costs[one.name]  # noqa: E731
    assert batch_costs_s(chosen, cost_s) == [1, 10, 100]
    outcomes = record_experiments(tmp_path, DEVICE, chosen, run, cost_s, limit_s=50)
    assert [one.experiment.name for one in outcomes] == order == ["cheap", "middling"]


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / DEVICE).write_text("in the way")
    (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, DONE)
    assert outcome.failed.startswith("not saved: [Errno ")
    assert f"faults/right: failed: {outcome.failed}" in capsys.readouterr().out
    assert files(tmp_path) == {DEVICE: b"in the way"}


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_all(tmp_path, sample("faults/right", label="earlier"))
    before = files(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, DONE)
    assert outcome.failed == "not saved: [Errno 28] No space left on device"
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "trace_json", "cause"),
    [
        (b"{", b"{}", "not saved: Input data was truncated"),
        (
            msgspec.json.encode(sample("faults/right")),
            os.urandom(1_100_000),
            "not saved: the trace of faults/right is 1,1",
        ),
        (
            msgspec.json.encode({**as_dict(sample("faults/right")), "points": None}),
            b"{}",
            "not saved: Expected `array`",
        ),
    ],
    ids=["no JSON", "too large", "a field"],
)
def test_what_cannot_be_a_recording_is_reported(tmp_path: Path, content: bytes, trace_json: bytes, cause: str) -> None:
    (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, worker(content, trace_json))
    assert outcome.failed.startswith(cause)
    assert files(tmp_path) == {}


def test_who_shares_a_process() -> None:
    """Profiled after first steps and of one chapter: together. A cold process, a sweep, or a probe: alone."""
    warm, other = RIGHT[0], find("gpu_faults/first", PACKAGE)[0]
    probing = find("hang/hangs", PACKAGE)[0]
    cold, swept = (
        replace(warm, name="c", first_steps=0, group=""),
        replace(warm, name="s", sweep=({"size": 2},), group=""),
    )
    batches = make_batches(group_experiments([*FAULTS, cold, swept, other, probing]))
    assert [["+".join(one.name for one in group) for group in batch] for batch in batches] == [
        ["wrong+right", "raises", "hangs", "aborts"],
        ["first"],
        ["c"],
        ["s"],
        ["hangs"],
    ]
    assert processes_of((warm,)) == [0, 1, 2, 3]
    assert processes_of((swept,)) == [1]
    assert processes_of((replace(warm, timed=False),)) == [0]
    assert processes_of((probing,)) == [0]


def test_a_rank_that_fails_between_two_groups_fails_the_next(tmp_path: Path) -> None:
    """Its event names the group that is finished."""

    def run(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
        if number < 3:
            for group in batch:
                yield from DONE([group], folder, number)
        else:
            yield from DONE(batch, folder, number)
            yield {"experiment": "faults/right", "failed": "RuntimeError: no connection (rank 1)"}

    (right,) = RIGHT
    following = replace(right, name="next", group="following")
    outcomes = list(record_experiments(tmp_path, DEVICE, [right, following], run))
    assert [(one.experiment.name, one.failed) for one in outcomes] == [
        ("right", ""),
        ("next", "RuntimeError: no connection (rank 1)"),
    ]


def test_ranks_are_measured_at_most_twice() -> None:
    """Several GPUs wait for each try."""
    (right,) = RIGHT
    (loop,) = find("several_gpus/ddp")
    assert (tries_of((right,)), tries_of((loop,))) == (3, 2)
