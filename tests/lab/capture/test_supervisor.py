"""The clock ends a group's time; no test waits for it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.capture.supervisor import Deadline, Events, Worker, _context, _lines
from tests.lab.capture.faults import FAULTS


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_group_has_the_sum_of_its_limits_from_its_start() -> None:
    clock = Clock()
    deadline = Deadline(FAULTS[:2], clock)
    assert (deadline.limit_s, deadline.left_s) == (240, 240.0)
    clock.seconds += 239
    assert deadline.left_s == 1.0
    clock.seconds += 2
    assert deadline.left_s == 0.0
    deadline.start(FAULTS[3:4])
    assert (deadline.limit_s, deadline.left_s) == (9, 9.0)


@pytest.fixture
def pipe() -> tuple[FileIO, int]:
    read_end, write_end = os.pipe()
    return FileIO(read_end), write_end


def test_lines_end_with_the_pipe(pipe: tuple[FileIO, int]) -> None:
    """Half a line that nothing follows is not one."""
    source, write_end = pipe
    os.write(write_end, b'{"a": 1}\n{"b": 2}\n{"c"')
    os.close(write_end)
    with source:
        lines = list(_lines([source], Deadline(FAULTS[:1], Clock())))
    assert lines == [(0, b'{"a": 1}'), (0, b'{"b": 2}'), (0, b"")]


def test_lines_end_with_the_deadline(pipe: tuple[FileIO, int]) -> None:
    source, write_end = pipe
    clock = Clock()
    with source:
        lines = _lines([source], Deadline(FAULTS[:1], clock))
        os.write(write_end, b"one\n")
        assert next(lines) == (0, b"one")
        clock.seconds += 120
        assert list(lines) == [None]
    os.close(write_end)


def test_workers_are_forked_unless_they_need_a_new_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold process and an environment need one; so does a temporary folder whose path leaves no room for the server's
    socket."""
    warm = (FAULTS[1],)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    assert _context([warm]).get_start_method() == "forkserver"
    assert _context([warm, (replace(FAULTS[1], first_steps=0),)]).get_start_method() == "spawn"
    assert _context([(replace(FAULTS[1], environment={"A": "1"}),)]).get_start_method() == "spawn"
    of_cuda = replace(FAULTS[1], environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_MAX_CTAS": "4"})
    assert _context([(of_cuda,)]).get_start_method() == "forkserver", "CUDA and NCCL read theirs later"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    assert _context([warm]).get_start_method() == "spawn"


@dataclass
class Ended:
    """A process that has ended."""

    exitcode: int
    pid: int = 0

    def join(self, timeout: float) -> None: ...

    def is_alive(self) -> bool:
        return False


def test_how_a_rank_ends_after_the_last_group_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Leaving a process group may fail or crash, when everything is measured."""
    lines = (
        b'{"finished": ["faults/raises"]}\n',
        b'{"experiment": "faults/raises", "failed": "RuntimeError: the store is gone", "at_s": 1.0}\n',
    )
    workers = []
    for number, line in enumerate(lines):
        read_end, write_end = os.pipe()
        os.write(write_end, line)
        os.close(write_end)
        process: Any = Ended(0 if number == 0 else -6)
        workers.append(Worker(process, FileIO(read_end), tmp_path / "log"))
    events = list(Events(workers, [FAULTS[:1]], Clock()).read())
    for each in workers:
        each.pipe.close()
    assert events == [{"finished": ["faults/raises"]}]
    out = capsys.readouterr().out
    assert out == (
        "    | after its last group: RuntimeError: the store is gone\n    | after its last group: killed by SIGABRT\n"
    )
