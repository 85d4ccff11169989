"""Runs experiments and records them: the only way in which a recording comes to be.

Every chapter gets a process of its own (`worker`); what must find a cold process gets one to itself. An experiment that
raises, dies or runs past its time limit is named with its cause and left out; the rest goes on in a fresh process.
Recordings are written when a group is complete, so an interrupted capture loses nothing that was there before.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec

from snippets.lab.experiment import Experiment
from snippets.lab.recording.device import PROJECT, RECORDINGS
from snippets.lab.recording.saving import save_recording
from snippets.lab.recording.schema import Recording, RecordingError


@dataclass(frozen=True)
class Outcome:
    """What became of one experiment."""

    experiment: Experiment
    failed: str = ""
    """The cause; empty when it was recorded."""


def record_experiments(
    chosen: Iterable[Experiment],
    device: str,
    root: Path = RECORDINGS,
    package: str = "snippets",
    on: str = "cuda",
) -> Iterator[Outcome]:
    """Record experiments group by group, telling on the terminal which, how many are left and how long it takes."""
    pending = _groups(chosen)
    count = sum(map(len, pending))
    done = 0
    begin = time.monotonic()
    while pending:
        batch = _sharing_a_process(pending)
        with tempfile.TemporaryDirectory(prefix="profiling-pytorch-") as temporary:
            folder = Path(temporary)
            for event in _events(batch, folder, package, on):
                at = f"{done}/{count} {_duration(time.monotonic() - begin):>12}"
                if "failed" in event:
                    failed = next(one for group in pending for one in group if one.id == event["experiment"])
                    print(f"{at}  {failed.id}: failed: {event['failed']}", flush=True)
                    pending = [left for group in pending if (left := tuple(one for one in group if one is not failed))]
                    done += 1
                    yield Outcome(failed, event["failed"])
                elif "finished" in event:
                    for experiment in pending.pop(0):
                        cause = _keep(experiment, folder, device, root)
                        print(f"{at}  {experiment.id}: {cause or 'recorded'}", flush=True)
                        done += 1
                        yield Outcome(experiment, cause)
                else:
                    print(f"{at}  {event['experiment']}: {event['doing']}", flush=True)


def _groups(chosen: Iterable[Experiment]) -> list[tuple[Experiment, ...]]:
    groups: dict[tuple[str, str], list[Experiment]] = {}
    for experiment in chosen:
        groups.setdefault((experiment.chapter, experiment.group or f"/{experiment.name}"), []).append(experiment)
    return [tuple(group) for group in groups.values()]


def _sharing_a_process(pending: list[tuple[Experiment, ...]]) -> list[tuple[Experiment, ...]]:
    """The leading groups of one chapter; one that must find the process cold, or looks at the compiler, is alone."""
    alone = [any(one.first_steps == 0 or one.measure is not None for one in group) for group in pending]
    together = [pending[0]]
    for group, is_alone in zip(pending[1:], alone[1:], strict=True):
        if alone[0] or is_alone or group[0].chapter != pending[0][0].chapter:
            break
        together.append(group)
    return together


def _keep(experiment: Experiment, folder: Path, device: str, root: Path) -> str:
    """Move a finished recording to its place; the cause when that fails, as on a full or read-only disk."""
    trace_file = folder / f"{experiment.name}.trace.json"
    try:
        found = msgspec.json.decode((folder / f"{experiment.name}.json").read_bytes(), type=Recording)
        save_recording(found, trace_file.read_bytes() if experiment.is_traced else None, device, root)
    except (OSError, RecordingError, msgspec.MsgspecError) as error:
        return f"not saved: {error}"
    return ""


def _events(batch: list[tuple[Experiment, ...]], folder: Path, package: str, on: str) -> Iterator[dict[str, Any]]:
    """Run one worker and pass on what it tells; its death or its silence becomes a last event, `failed`."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "snippets.lab.worker", "--package", package, "--device", on]
    command += ["--folder", str(folder), "--events", str(write_end)]
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
            yield from _told(process, pipe, batch, folder / "log")
        finally:
            _end(process)


def _told(
    process: subprocess.Popen[bytes], pipe: FileIO, batch: list[tuple[Experiment, ...]], log: Path
) -> Iterator[dict[str, Any]]:
    left = list(batch)
    current = left[0][0].id
    deadline = Deadline(left[0])
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
            _say_last_words(log)
        yield event
        if "failed" in event:
            return
    with suppress(subprocess.TimeoutExpired):  # a GPU's driver may hang when its process ends
        process.wait(timeout=30)
    if left:
        words = _say_last_words(log)
        yield {"experiment": current, "failed": f"{_death(process.returncode)}; its last words: {words}"}


class Deadline:
    """When a group's time is up; started anew for each."""

    def __init__(self, group: tuple[Experiment, ...]) -> None:
        self.start(group)

    def start(self, group: tuple[Experiment, ...]) -> None:
        """Give a group the sum of its experiments' limits from now."""
        self.limit_s = sum(experiment.time_limit_s for experiment in group)
        self.at = time.monotonic() + self.limit_s


def _lines(pipe: FileIO, deadline: Deadline) -> Iterator[bytes | None]:
    """Lines of a pipe until it closes; None, once, when the deadline passes first."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline.at - time.monotonic())):
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


def _say_last_words(log: Path, most: int = 12) -> str:
    """Print the end of a worker's output and return its last line."""
    lines = [line[:300] for line in log.read_text("utf-8", errors="replace").strip().splitlines()[-most:]]
    print("".join(f"    | {line}\n" for line in lines), end="", flush=True)
    return lines[-1] if lines else "none"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
