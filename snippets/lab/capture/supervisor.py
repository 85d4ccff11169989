"""One worker process: start it, read its events, kill it after its deadline.

Workers are forked from a server that has imported torch and its compiler and has not used CUDA: importing them takes 10
s and a chapter needs a dozen processes (NVIDIA H200 machine). An experiment with a cold process gets a new interpreter.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from snippets.lab.experiment import Experiment
from snippets.lab.recording.device import PROJECT

Group = tuple[Experiment, ...]
Event = dict[str, Any]
"""`experiment` and `doing`, `experiment` and `failed`, or `finished` with the ids of a group."""
Clock = Callable[[], float]
WORKER = "snippets.lab.capture.worker"
LONGEST_TEMPORARY_FOLDER = 60
"""The server listens at a socket there, and a socket's path has at most 107 characters."""
PRELOADED = ["torch.profiler", "torch._dynamo", "torch._inductor.compile_fx", WORKER]


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
    context = _context(batch)
    reader, writer = context.Pipe(duplex=False)
    log = folder / "log"
    log.write_bytes(b"")
    ids = [",".join(experiment.id for experiment in group) for group in batch]
    arguments = (writer, log, package, ids, torch_device, folder, number)
    process: BaseProcess = context.Process(target=_work, args=arguments, daemon=False)  # type: ignore[attr-defined]
    process.start()
    writer.close()
    with FileIO(os.dup(reader.fileno())) as pipe:
        reader.close()
        try:
            yield from _events(process, pipe, batch, log, clock)
        finally:
            _end(process)


def _context(batch: list[Group]) -> BaseContext:
    paths = [str(PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))  # of the server, and of what a probe starts
    is_cold = any(experiment.first_steps == 0 for group in batch for experiment in group)
    if is_cold or len(tempfile.gettempdir()) > LONGEST_TEMPORARY_FOLDER:
        return multiprocessing.get_context("spawn")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # else asking for a GPU spoils CUDA for forked workers
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _work(writer: Any, log: Path, package: str, ids: list[str], device: str, folder: Path, number: int) -> None:
    """Run the worker in a session of its own, with its output in the log and its events as lines in the pipe."""
    os.setsid()
    os.chdir(PROJECT)
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY), (2, log, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_APPEND), descriptor)
    from snippets.lab.capture.worker import work

    with os.fdopen(os.dup(writer.fileno()), "w", encoding="utf-8", buffering=1) as events:
        writer.close()
        work(ids, package, device, folder, number, events)


def _events(process: BaseProcess, pipe: FileIO, batch: list[Group], log: Path, clock: Clock) -> Iterator[Event]:
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
    process.join(timeout=30)  # a GPU's driver may hang when its process ends
    if left:
        last_line = _print_end(log)
        yield {"experiment": current, "failed": f"{_death(process.exitcode)}; last output: {last_line}"}


class Deadline:
    """The deadline of the current group."""

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
    """Lines of a pipe until it closes; None, once, if the deadline passes before."""
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


def _end(process: BaseProcess) -> None:
    """Kill a worker and all processes it started, compilers included."""
    if process.is_alive() and process.pid is not None:
        with suppress(ProcessLookupError):  # it has not begun its session yet
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join()


def _death(code: int | None) -> str:
    if code is None:
        return "the process closed its pipe and did not end"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"


def _print_end(log: Path, limit: int = 20) -> str:
    """Print the end of a worker's output and return its last line."""
    lines = [line[:300] for line in log.read_text("utf-8", errors="replace").strip().splitlines()[-limit:]]
    print("".join(f"    | {line}\n" for line in lines), end="", flush=True)
    return lines[-1] if lines else "none"
