"""Runs experiments and records them: the only way in which a recording comes to be.

Every group of experiments gets a process of its own (`worker`) with a time limit. One that raises, dies or hangs is
named with its cause and left out; the rest of its group starts again in a fresh process. Recordings are written when
a group is complete, so an interrupted capture loses nothing that was there before.
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
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from snippets.lab import recording, worker
from snippets.lab.experiment import Experiment, experiments
from snippets.lab.recording import Recording, RecordingError


class NoGpu(RuntimeError):
    """Recording was asked for where there is no CUDA GPU."""


@dataclass(frozen=True)
class Outcome:
    """What became of one experiment."""

    experiment: Experiment
    failed: str = ""
    """The cause; empty when it was recorded."""


def require_gpu() -> str:
    """The slug of the GPU that will be recorded. Raises `NoGpu`."""
    if not torch.cuda.is_available():
        raise NoGpu(
            "no CUDA GPU here, and recordings are only ever made on one. To see an experiment on this machine's CPU: "
            "python -m snippets.lab run CHAPTER/EXPERIMENT"
        )
    return recording.slug(torch.cuda.get_device_name(0))


def wanted(chosen: Iterable[Experiment], device: str, fresh: bool, root: Path = recording.RECORDINGS) -> list[Experiment]:
    """Those that need recording: all when `fresh`, else the missing, the stale and the unreadable.

    Experiments of one group are compared with each other, so one that needs recording takes its group along.
    """
    chosen = tuple(chosen)
    needed = [experiment for experiment in chosen if fresh or not _is_current(experiment, device, root)]
    groups = {(experiment.chapter, experiment.group) for experiment in needed if experiment.group}
    mates = [mate for chapter in {c for c, _ in groups} for mate in experiments(chapter, _package(chosen))]
    together = [mate for mate in mates if (mate.chapter, mate.group) in groups]
    return list({experiment.id: experiment for experiment in [*needed, *together]}.values())


def _package(chosen: tuple[Experiment, ...]) -> str:
    for experiment in chosen:
        maker = experiment.make or experiment.measure
        if maker is not None and maker.__module__.endswith(f".{experiment.chapter}.experiments"):
            return maker.__module__.removesuffix(f".{experiment.chapter}.experiments")
    return "snippets"


def _is_current(experiment: Experiment, device: str, root: Path) -> bool:
    try:
        found = recording.load(experiment.id, device, root)
        if experiment.is_traced:
            recording.trace(experiment.id, device, root)
    except (RecordingError, recording.kineto.TraceError):
        return False
    return not recording.is_stale(found)


def record(
    chosen: Iterable[Experiment],
    device: str,
    root: Path = recording.RECORDINGS,
    package: str = "snippets",
    on: str = "cuda",
) -> Iterator[Outcome]:
    """Record experiments group by group, telling on the terminal which, how many are left and how long it takes."""
    queue = _groups(chosen)
    count = len(queue)
    begin = time.monotonic()
    for number, group in enumerate(queue, 1):
        names = ", ".join(experiment.name for experiment in group)
        elapsed = _duration(time.monotonic() - begin)
        print(f"[{number}/{count}] {group[0].chapter}: {names} ({elapsed} so far)", flush=True)
        for outcome in _record_group(group, device, root, package, on):
            if outcome.failed:
                print(f"    failed: {outcome.experiment.id}: {outcome.failed}", flush=True)
            yield outcome


def _groups(chosen: Iterable[Experiment]) -> list[tuple[Experiment, ...]]:
    groups: dict[tuple[str, str], list[Experiment]] = {}
    for experiment in chosen:
        groups.setdefault((experiment.chapter, experiment.group or f"/{experiment.name}"), []).append(experiment)
    return [tuple(group) for group in groups.values()]


def _record_group(
    group: tuple[Experiment, ...], device: str, root: Path, package: str, on: str
) -> Iterator[Outcome]:
    remaining = list(group)
    while remaining:
        with tempfile.TemporaryDirectory(prefix="profiling-pytorch-") as temporary:
            folder = Path(temporary)
            failure = _run_worker(tuple(remaining), folder, package, on)
            if failure is None:
                for experiment in remaining:
                    yield Outcome(experiment, _keep(experiment, folder, device, root))
                return
        failed_id, cause = failure
        failed = next((e for e in remaining if e.id == failed_id), remaining[0])
        yield Outcome(failed, cause)
        remaining.remove(failed)


def _keep(experiment: Experiment, folder: Path, device: str, root: Path) -> str:
    """Move a finished recording to its place; the cause when that fails, as on a full or read-only disk."""
    trace_file = folder / f"{experiment.name}.trace.json"
    try:
        found = msgspec.json.decode((folder / f"{experiment.name}.json").read_bytes(), type=Recording)
        recording.save(found, trace_file.read_bytes() if experiment.is_traced else None, device, root)
    except (OSError, RecordingError, msgspec.MsgspecError) as error:
        return f"not saved: {error}"
    return ""


def _run_worker(group: tuple[Experiment, ...], folder: Path, package: str, on: str) -> tuple[str, str] | None:
    """Run one worker to its end: None, or the id of the experiment that failed and why."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "snippets.lab.worker", "--package", package, "--device", on]
    command += ["--folder", str(folder), "--events", str(write_end), *(experiment.id for experiment in group)]
    log_path = folder / "log"
    with log_path.open("wb") as log, os.fdopen(read_end, encoding="utf-8") as events:
        process = subprocess.Popen(
            command,
            cwd=recording.ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(recording.ROOT), *_python_path()])},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            start_new_session=True,
        )
        os.close(write_end)
        limit_s = sum(experiment.time_limit_s for experiment in group)
        try:
            current, failed = _listen(process, events, group[0].id, limit_s)
        finally:
            _end(process)
    if not failed and process.returncode == 0:
        return None
    words = _last_words(log_path)
    print("".join(f"    | {line}\n" for line in words), end="", flush=True)
    return current, failed or f"{_death(process.returncode)}; its last words: {words[-1] if words else 'none'}"


def _python_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _listen(process: subprocess.Popen[bytes], events: Iterable[str], first: str, limit_s: float) -> tuple[str, str]:
    """Follow a worker's events until it ends: (experiment at work, cause of failure or empty)."""
    current, failed = first, ""
    deadline = time.monotonic() + limit_s
    begin = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(events, selectors.EVENT_READ)  # type: ignore[arg-type]
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return current, f"ran past its limit of {limit_s:.0f} s"
            line = next(iter(events), "")
            if not line:
                process.wait()
                return current, failed
            event = json.loads(line)
            current = event["experiment"]
            failed = event.get("failed", failed)
            if not failed:
                print(f"    {time.monotonic() - begin:6.1f} s  {current}: {event['doing']}", flush=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and everything it started, compilers included."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _death(code: int) -> str:
    return f"the process was killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"


def _last_words(log: Path, most: int = 12) -> list[str]:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return [line[:300] for line in lines[-most:]]


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min {seconds % 60:.0f} s" if seconds >= 60 else f"{seconds:.0f} s"


def run(experiment: Experiment, device: str, trace_dir: Path | None) -> None:
    """Profile one experiment in this process, print the profiler's table, and write its Chrome trace if asked to."""
    if experiment.measure is not None:
        print(json.dumps(experiment.measure(device=device, **experiment.parameters), indent=2))
        return
    assert experiment.make is not None
    for parameters in experiment.points:
        print(f"{experiment.id} on {device}: {' '.join(f'{name}={value}' for name, value in parameters.items())}")
        subject = experiment.make(device=device, **parameters)
        prof = worker.profiled(experiment, subject, device)
        sort = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
        print(prof.key_averages().table(sort_by=sort, row_limit=15, max_name_column_width=60))
        if trace_dir is not None:
            trace_dir.mkdir(parents=True, exist_ok=True)
            given = "_".join(str(value) for value in parameters.values())
            path = trace_dir / f"{experiment.chapter}_{experiment.name}_{given}.json"
            path.write_bytes(worker.chrome_trace(prof))
            print(f"trace: {path}  (open it at ui.perfetto.dev, or: python -m snippets.lab summary {path})")
