"""One worker process, or one for each rank: start them, read their events, kill them after their deadline.

Workers are forked from a server that has imported torch and its compiler and has not used CUDA: importing them takes 10
s and a chapter needs a dozen processes (NVIDIA H200 machine). An experiment with a cold process gets a new interpreter,
and so does one with environment variables that torch may have read.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from snippets.lab.capture.ranks import GRACE_S, death, end_process, rank_environments
from snippets.lab.experiment import Experiment
from snippets.lab.recording.device import PROJECT

Group = tuple[Experiment, ...]
Event = dict[str, Any]
"""`experiment` and `doing`, `experiment` and `failed`, or `finished` with the ids of a group."""
Clock = Callable[[], float]
Task = tuple[list[str], str, str, Path, int]
"""Ids of groups, their package, torch's device, the folder for parts and the number of the process."""
WORKER = "snippets.lab.capture.worker"
LONGEST_TEMPORARY_FOLDER = 60
"""The server listens at a socket there, and a socket's path has at most 107 characters."""
ENDS_S = 30
"""For a process to end after its last group."""
LEAVES_S = 8
"""For ranks to leave their process group after their last group: NCCL can hang there, and nothing is lost."""
STACK_SIGNAL = signal.SIGUSR1
"""At this signal a worker prints its stack."""
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

    Process `number` 0 profiles and probes; 1, 2 and 3 time. Of experiments on several GPUs, `number` has a worker for
    each rank: rank 0's events count, the first failure of any rank ends all of them.
    """
    ids = [",".join(experiment.id for experiment in group) for group in batch]
    task = (ids, package, torch_device, folder, number)
    workers: list[Worker] = []
    try:
        for rank, variables in enumerate(_environments(batch[0][0])):
            workers.append(_start(batch, variables, folder / f"log{rank or ''}", task))
        yield from Events(workers, batch, clock).read()
    finally:
        for worker in workers:
            end_process(worker.process)
            worker.pipe.close()


def _environments(experiment: Experiment) -> list[dict[str, str]]:
    """The variables that each worker sets first."""
    if experiment.gpus == 1:
        return [dict(experiment.environment)]
    return rank_environments(experiment.gpus, experiment.environment)


@dataclass(frozen=True)
class Worker:
    """A worker process, the pipe of its events and the file of its output."""

    process: BaseProcess
    pipe: FileIO
    log: Path


def _start(batch: list[Group], variables: dict[str, str], log: Path, task: Task) -> Worker:
    context = _context(batch)
    reader, writer = context.Pipe(duplex=False)
    log.write_bytes(b"")
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]
        target=_work, args=(writer, log, variables, task), daemon=False
    )
    process.start()
    writer.close()
    pipe = FileIO(os.dup(reader.fileno()))
    reader.close()
    return Worker(process, pipe, log)


def _context(batch: list[Group]) -> BaseContext:
    paths = [str(PROJECT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))  # of the server, and of what a probe starts
    is_new = any(
        experiment.first_steps == 0 or not all(map(_is_read_late, experiment.environment))
        for group in batch
        for experiment in group
    )
    if is_new or len(tempfile.gettempdir()) > LONGEST_TEMPORARY_FOLDER:
        return multiprocessing.get_context("spawn")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # else asking for a GPU spoils CUDA for forked workers
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _is_read_late(variable: str) -> bool:
    """Whether a variable counts although torch is imported: CUDA and NCCL read theirs when a process first uses
    them."""
    return variable.startswith(("CUDA_", "NCCL_"))


def _work(writer: Any, log: Path, variables: dict[str, str], task: Task) -> None:
    """Run the worker in a session of its own, with its output in the log and its events as lines in the pipe."""
    os.setsid()
    os.environ.update(variables)
    os.chdir(PROJECT)
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY), (2, log, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_APPEND), descriptor)
    faulthandler.register(STACK_SIGNAL, file=2, all_threads=False)
    from snippets.lab.capture.worker import work

    with os.fdopen(os.dup(writer.fileno()), "w", encoding="utf-8", buffering=1) as events:
        writer.close()
        work(*task, events)
    if "RANK" in variables:
        os._exit(0)  # a rank's group may hang in the interpreter's own clean-up


class Events:
    """The events of the workers of a batch, as they come."""

    def __init__(self, workers: Sequence[Worker], batch: list[Group], clock: Clock) -> None:
        self.workers, self.left = workers, list(batch)
        self.current = self.left[0][0].id
        self.deadline = Deadline(self.left[0], clock)
        self.failures: list[tuple[bool, float, int, Event]] = []
        """Of each failed worker: whether it could report, the time of its report, its number and its event."""

    def read(self) -> Iterator[Event]:
        """Yield the events of the first worker, and the failure that came first."""
        for read in _lines([worker.pipe for worker in self.workers], self.deadline):
            if read is None:
                break
            number, line = read
            event = json.loads(line) if line else self._ended(number)
            if "failed" in event and not self.left:  # every group is measured: nothing is lost
                print(f"    | after its last group: {event['failed']}", flush=True)
            elif "failed" in event:
                self._fail(number, event)
            elif event:
                self._progress(event)
                yield event
            if self.failures and len(self.workers) == 1:
                break
        if self.failures:
            yield self._first_failure()
        elif self.left:
            self._print_stacks()
            yield {"experiment": self.current, "failed": f"ran past its limit of {self.deadline.limit_s} s"}

    def _progress(self, event: Event) -> None:
        self.current = event.get("experiment", self.current)
        if "finished" in event:
            self.left.pop(0)
            if self.left:
                self.deadline.start(self.left[0])
                self.current = self.left[0][0].id
            else:
                self.deadline.end_in(LEAVES_S if len(self.workers) > 1 else ENDS_S)

    def _ended(self, number: int) -> Event:
        """The failure of a worker that has closed its pipe; empty if it is done."""
        process = self.workers[number].process
        process.join(timeout=ENDS_S if self.left else LEAVES_S)  # a GPU's driver may hang when its process ends
        is_done = process.exitcode == 0 if number else not self.left
        if is_done or any(number == failed for _, _, failed, _ in self.failures):
            return {}
        return {"experiment": self.current, "failed": death(process.exitcode)}

    def _print_stacks(self) -> None:
        """Print the output of each worker, which ends with its stack: where it hangs."""
        for worker in self.workers:
            if worker.process.is_alive() and worker.process.pid is not None:
                os.kill(worker.process.pid, STACK_SIGNAL)
        time.sleep(GRACE_S)
        for number, worker in enumerate(self.workers):
            if len(self.workers) > 1:
                print(f"    | rank {number}:")
            _print_end(worker.log)

    def _fail(self, number: int, event: Event) -> None:
        """Note a failure. The others may report theirs for a moment: what a lost neighbor causes is no cause."""
        self.failures.append(("at_s" in event, event.get("at_s", 0.0), number, event))
        if len(self.failures) == 1:
            self.deadline.end_in(GRACE_S)

    def _first_failure(self) -> Event:
        """The cause: a worker that died, else the earliest report."""
        has_report, _, number, event = min(self.failures, key=lambda failure: failure[:3])
        last_line = _print_end(self.workers[number].log)
        failed = event["failed"] if has_report else f"{event['failed']}; last output: {last_line}"
        rank = f" (rank {number})" if len(self.workers) > 1 else ""
        return {"experiment": event["experiment"], "failed": failed + rank}


class Deadline:
    """The deadline of the current group."""

    def __init__(self, group: Group, clock: Clock) -> None:
        self.clock = clock
        self.start(group)

    def start(self, group: Group) -> None:
        """Give a group the sum of its experiments' limits from now."""
        self.limit_s = sum(experiment.time_limit_s for experiment in group)
        self.at = self.clock() + self.limit_s

    def end_in(self, seconds: float) -> None:
        """Pass in so many seconds from now, unless it passes before."""
        self.at = min(self.at, self.clock() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when it has passed."""
        return max(0.0, self.at - self.clock())


def _lines(pipes: Sequence[FileIO], deadline: Deadline) -> Iterator[tuple[int, bytes] | None]:
    """The lines of pipes, each with the number of its pipe, and an empty line where a pipe ends; None, once, if the
    deadline passes before all have ended."""
    rests = [b""] * len(pipes)
    with selectors.DefaultSelector() as selector:
        for number, pipe in enumerate(pipes):
            selector.register(pipe, selectors.EVENT_READ, number)
        while selector.get_map():
            ready = selector.select(deadline.left_s)
            if not ready:
                yield None
                return
            for key, _ in ready:
                number = key.data
                read = pipes[number].read(65536)
                if not read:
                    selector.unregister(pipes[number])
                    yield number, b""
                    continue
                *lines, rests[number] = (rests[number] + read).split(b"\n")
                yield from ((number, line) for line in lines)


def _print_end(log: Path, limit: int = 20) -> str:
    """Print the end of a worker's output and return its last line."""
    lines = [line[:300] for line in log.read_text("utf-8", errors="replace").strip().splitlines()[-limit:]]
    print("".join(f"    | {line}\n" for line in lines), end="", flush=True)
    return lines[-1] if lines else "none"
