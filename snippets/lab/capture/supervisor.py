"""One worker process: started, its events read, killed past its deadline."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from snippets.lab.experiment import Experiment
from snippets.lab.recording.device import PROJECT

Group = tuple[Experiment, ...]
Event = dict[str, Any]
"""`experiment` and `doing`, `experiment` and `failed`, or `finished` with the ids of a group."""
Clock = Callable[[], float]


def run_worker(
    batch: list[Group],
    folder: Path,
    number: int = 0,
    *,
    package: str = "snippets",
    torch_device: str = "cuda",
    clock: Clock = time.monotonic,
) -> Iterator[Event]:
    """Yield the worker's events; a crash or timeout yields `failed`. Parts of recordings are in `folder`.

    Process `number` 0 profiles and probes; 1, 2 and 3 time.
    """
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "snippets.lab.capture.worker", "--package", package, "--device", torch_device]
    command += ["--process", str(number), "--folder", str(folder), "--events", str(write_end)]
    command += [",".join(experiment.id for experiment in group) for group in batch]
    with (folder / "log").open("wb") as log, os.fdopen(read_end, "rb", buffering=0) as pipe:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *_python_path()])},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            start_new_session=True,
        )
        os.close(write_end)
        try:
            yield from _events(process, pipe, batch, folder / "log", clock)
        finally:
            _end(process)


def _events(
    process: subprocess.Popen[bytes], pipe: FileIO, batch: list[Group], log: Path, clock: Clock
) -> Iterator[Event]:
    left = list(batch)
    current = left[0][0].id
    deadline = Deadline(left[0], clock)
    for line in _lines(pipe, deadline):
        if line is None:
            yield {"experiment": current, "failed": f"ran past its limit of {deadline.limit_s} s"}
            return
        event = json.loads(line)
        current = event.get("experiment", current)
        if "finished" in event:
            left.pop(0)
            if left:
                deadline.start(left[0])
                current = left[0][0].id
        if "failed" in event:
            _print_end(log)
        yield event
        if "failed" in event:
            return
    with suppress(subprocess.TimeoutExpired):  # a GPU's driver may hang when its process ends
        process.wait(timeout=30)
    if left:
        last_line = _print_end(log)
        yield {"experiment": current, "failed": f"{_death(process.returncode)}; last output: {last_line}"}


class Deadline:
    """When a group's time is up; started anew for each."""

    def __init__(self, group: Group, clock: Clock) -> None:
        self.clock = clock
        self.start(group)

    def start(self, group: Group) -> None:
        """Give a group the sum of its experiments' limits from now."""
        self.limit_s = sum(experiment.time_limit_s for experiment in group)
        self.at = self.clock() + self.limit_s

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self.at - self.clock())


def _lines(pipe: FileIO, deadline: Deadline) -> Iterator[bytes | None]:
    """Lines of a pipe until it closes; None, once, when the deadline passes first."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(deadline.left_s):
                yield None
                return
            read = pipe.read(65536)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            yield from lines


def _python_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and everything it started, compilers included."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _death(code: int | None) -> str:
    if code is None:
        return "the process closed its pipe and did not end"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"


def _print_end(log: Path, limit: int = 20) -> str:
    """Print the end of a worker's output and return its last line."""
    lines = [line[:300] for line in log.read_text("utf-8", errors="replace").strip().splitlines()[-limit:]]
    print("".join(f"    | {line}\n" for line in lines), end="", flush=True)
    return lines[-1] if lines else "none"
