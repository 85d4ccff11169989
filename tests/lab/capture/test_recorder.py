"""What is finished is saved, what cannot be saved is named with its cause, and who shares a process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from snippets.lab.capture.recorder import (
    Outcome,
    RunWorker,
    group_experiments,
    record_experiments,
    sharing_a_process,
)
from snippets.lab.capture.supervisor import Event, Group
from snippets.lab.experiment import Experiment, find
from snippets.lab.recording.loading import load_recording
from tests.lab import samples
from tests.lab.capture.faults import FAULTS, PACKAGE, RIGHT
from tests.lab.samples import DEVICE, as_dict, files, sample, save_all


def worker(content: bytes, trace_json: bytes) -> RunWorker:
    """A worker that is done at once and leaves these files."""

    def run(batch: list[Group], folder: Path) -> Iterator[Event]:
        (folder / "right.json").write_bytes(content)
        (folder / "right.trace.json").write_bytes(trace_json)
        yield {"experiment": "faults/right", "doing": "checking"}
        yield {"finished": ["faults/right"]}

    return run


DONE = worker(msgspec.json.encode(sample("faults/right")), samples.trace_json())


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines of the terminal less their time: `0/5 faults/right: checking`."""
    lines = capsys.readouterr().out.splitlines()
    return [" ".join([line.split()[0], line.split("s  ", 1)[-1]]) for line in lines]


def test_what_is_finished_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(record_experiments(tmp_path, DEVICE, RIGHT, DONE)) == [Outcome(RIGHT[0])]
    assert load_recording(tmp_path, DEVICE, "faults/right") == sample("faults/right")
    assert printed(capsys) == ["0/1 faults/right: checking", "0/1 faults/right: recorded"]


def test_a_failure_leaves_the_rest_of_its_group_to_the_next_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[list[list[str]]] = []

    def run(batch: list[Group], folder: Path) -> Iterator[Event]:
        batches.append([[experiment.name for experiment in group] for group in batch])
        if len(batches) == 1:
            yield {"experiment": "faults/wrong", "failed": "WrongAnswer: relative error 5.00e-01"}
        else:
            yield from DONE(batch, folder)

    outcomes = list(record_experiments(tmp_path, DEVICE, find("faults", PACKAGE)[:2], run))
    assert [(one.experiment.name, one.failed) for one in outcomes] == [
        ("wrong", "WrongAnswer: relative error 5.00e-01"),
        ("right", ""),
    ]
    assert batches == [[["wrong", "right"]], [["right"]]]
    assert printed(capsys) == [
        "0/2 faults/wrong: failed: WrongAnswer: relative error 5.00e-01",
        "1/2 faults/right: checking",
        "1/2 faults/right: recorded",
    ]


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / DEVICE).write_text("in the way")
    (outcome,) = record_experiments(tmp_path, DEVICE, RIGHT, DONE)
    assert outcome.failed.startswith("not saved: [Errno ")
    assert f"faults/right: {outcome.failed}" in capsys.readouterr().out
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
    """Profiled after first steps and of one chapter: together. A cold process, or a probe: alone."""
    warm, other = RIGHT[0], find("gpu_faults/first", PACKAGE)[0]
    probing = find("hang/hangs", PACKAGE)[0]
    cold = Experiment(
        chapter="faults", name="c", label="c", make=warm.make, work=warm.work, parameters={"size": 1}, first_steps=0
    )
    groups = group_experiments([*FAULTS, cold, other, probing])
    assert [tuple(one.name for one in group) for group in groups] == [
        ("wrong", "right"),
        ("raises",),
        ("hangs",),
        ("aborts",),
        ("c",),
        ("first",),
        ("hangs",),
    ]
    assert [len(sharing_a_process(groups[index:])) for index in range(7)] == [4, 3, 2, 1, 1, 1, 1]
