"""One process that measures groups of experiments and leaves finished recordings in a folder.

`capture` starts it and listens. Every line on the event pipe is JSON: {"experiment", "doing"}, {"finished": [ids of a
group]} or {"experiment", "failed"}. The first failure ends the process, because an illegal access leaves the CUDA
context unusable for the others.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from snippets.lab import hardware, kineto, recording, timing, trace
from snippets.lab.experiment import Experiment, Subject, find
from snippets.lab.recording import Ceiling, Circumstances, Point, Recording

PROFILES = 3
"""Tries until all active steps agree: the profiler is known to drop kernels at a session's start."""

Tell = Callable[[Experiment, str], None]


# --8<-- [start:profile]
def profiled(experiment: Experiment, subject: Subject, device: str) -> profile:
    """Run an experiment's schedule under `torch.profiler` and return the finished profile."""
    inputs = subject.inputs()
    for _ in range(experiment.first_steps):
        subject.step(*inputs)
    synchronize(device)
    plan = experiment.schedule
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    prof = profile(
        activities=activities,
        schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=1),
        record_shapes=True,
        acc_events=True,
    )
    with prof:
        for _ in range(plan.steps):
            with record_function(experiment.label):
                subject.step(*inputs)
            prof.step()
        synchronize(device)
    return prof


# --8<-- [end:profile]


def synchronize(device: str) -> None:
    """Wait for the GPU; nothing to wait for on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def chrome_trace(prof: profile) -> bytes:
    """The profile as Kineto JSON, scrubbed of host names and directories."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        content = msgspec.json.decode(path.read_bytes())
    clean = recording.scrubbed(content, host_names())
    return msgspec.json.encode({**clean, "traceName": "trace.json"})


def host_names() -> tuple[str, ...]:
    """This machine's names, which no recording keeps."""
    return tuple(name for name in {socket.gethostname(), platform.node()} if len(name) > 2)


def trace_of(experiment: Experiment, subject: Subject, device: str) -> bytes:
    """Profile until all active steps show the same GPU work; a cold process has only one try."""
    for _ in range(PROFILES if experiment.first_steps else 1):
        content = chrome_trace(profiled(experiment, subject, device))
        if trace.steps_agree(kineto.read(content)):
            break
    return content


# --8<-- [start:check]
def relative_error(subject: Subject, device: str) -> tuple[float, str, int]:
    """Compare a step with its reference on fresh inputs, and watch its memory.

    Returns the error (Frobenius norm of the difference over that of the reference), the reference's dtype and the
    most bytes the step held above what was there before. Raises `ArithmeticError` when the answer is wrong.
    """
    inputs = subject.inputs()
    subject.step(*inputs)  # what is allocated once for all, such as cuBLAS's workspace, is not the step's
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        output = subject.step(*inputs)
        synchronize(device)
        peak_bytes = torch.cuda.max_memory_allocated() - before if device == "cuda" else 0
        expected = subject.reference(*inputs)
        error = ((output.to(expected.dtype) - expected).double().norm() / expected.double().norm()).item()
    if not error <= subject.tolerance:  # NaN is wrong too
        raise ArithmeticError(f"wrong answer: relative error {error:.2e}, at most {subject.tolerance:.0e} allowed")
    return error, str(expected.dtype).removeprefix("torch."), peak_bytes


# --8<-- [end:check]


def measure_group(group: tuple[Experiment, ...], device: str, folder: Path, tell: Tell) -> None:
    """Measure experiments that belong together and write `<name>.json` (and `.trace.json`) of each to `folder`."""
    session = now()
    started = time.monotonic()
    points: dict[str, list[Point]] = {experiment.name: [] for experiment in group}
    data: dict[str, dict[str, Any]] = {experiment.name: {} for experiment in group}
    named = {experiment.name: experiment for experiment in group}
    for index in range(len(group[0].points)):
        torch._dynamo.reset()  # a function compiled at eight shapes would silently fall back to eager
        subjects: dict[str, Subject] = {}
        checked: dict[str, tuple[float, str, int]] = {}
        for experiment in group:
            if experiment.measure is not None:
                tell(experiment, "measuring")
                data[experiment.name] = experiment.measure(device=device, **experiment.parameters)
                continue
            assert experiment.make is not None
            tell(experiment, f"building {' '.join(f'{k}={v}' for k, v in experiment.points[index].items())}")
            subject = experiment.make(device=device, **experiment.points[index])
            data[experiment.name] = dict(subject.notes)
            if experiment.is_traced:
                tell(experiment, "profiling")
                (folder / f"{experiment.name}.trace.json").write_bytes(trace_of(experiment, subject, device))
            tell(experiment, "checking")
            checked[experiment.name] = relative_error(subject, device)
            if experiment.timed and device == "cuda":
                subjects[experiment.name] = subject
        timings = timing.time_in_turns(subjects, lambda name: tell(named[name], "timing")) if subjects else {}
        for experiment in group:
            if experiment.make is not None:
                assert experiment.work is not None
                parameters = experiment.points[index]
                work = experiment.work(**parameters)
                point = Point(
                    dict(parameters), work.flops, work.bytes, *checked[experiment.name], timings.get(experiment.name)
                )
                points[experiment.name].append(point)
    tell(group[0], "ceilings")
    ceilings = measure_ceilings(group) if any(e.timed and e.make for e in group) and device == "cuda" else ()
    circumstances = here(device)
    for experiment in group:
        found = Recording(
            schema=recording.SCHEMA,
            chapter=experiment.chapter,
            experiment=experiment.name,
            label=experiment.label,
            digest=recording.source_digest(experiment.chapter),
            session=session,
            circumstances=circumstances,
            capture_s=round(time.monotonic() - started, 1),
            schedule=(experiment.schedule.wait, experiment.schedule.warmup, experiment.schedule.active),
            first_steps=experiment.first_steps,
            points=tuple(points[experiment.name]),
            ceilings=ceilings,
            data=recording.scrubbed(data[experiment.name], host_names()),
            has_trace=experiment.is_traced,
        )
        (folder / f"{experiment.name}.json").write_bytes(msgspec.json.encode(found))


def measure_ceilings(group: tuple[Experiment, ...]) -> tuple[Ceiling, ...]:
    """Copy bandwidth, a large matmul, and a bare matmul at every shape of the group, timed in turns."""
    shapes = {(hardware.LARGE,) * 3: None}
    for experiment in group:
        for parameters in experiment.points:
            if experiment.work is not None:
                shapes |= dict.fromkeys(experiment.work(**parameters).matmuls)
    subjects = {"copy": hardware.copy("cuda")}
    works = {"copy": hardware.copy_work()}
    for shape in shapes:
        name = "matmul " + "x".join(map(str, shape))
        subjects[name], works[name] = hardware.matmul("cuda", *shape), hardware.matmul_work(*shape)
    timings = timing.time_warm(subjects)
    return tuple(Ceiling(name, works[name].bytes, works[name].flops, timings[name]) for name in subjects)


def now() -> str:
    """UTC to the second, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def here(device: str) -> Circumstances:
    """The circumstances of this process."""
    cuda = device == "cuda"
    properties = torch.cuda.get_device_properties(0) if cuda else None
    smi = nvidia_smi("driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu") if cuda else {}
    names = ("torch", "triton", "kernels", "liger-kernel")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = str(torch.__version__) if name == "torch" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    clocks = {"clocks.sm": "sm_mhz", "clocks.mem": "memory_mhz"}
    clocks |= {"power.draw": "power_w", "temperature.gpu": "temperature_c"}
    return Circumstances(
        date=now(),
        commit=commit(),
        device=properties.name if properties else platform.processor() or "cpu",
        compute_capability=f"{properties.major}.{properties.minor}" if properties else "",
        multiprocessors=properties.multi_processor_count if properties else 0,
        memory_bytes=properties.total_memory if properties else 0,
        l2_bytes=properties.L2_cache_size if properties else 0,
        driver=smi.get("driver_version", ""),
        cuda=torch.version.cuda or "",
        versions=versions,
        clocks={short: float(smi[name]) for name, short in clocks.items() if _is_number(smi.get(name, ""))},
    )


def nvidia_smi(*fields: str) -> dict[str, str]:
    """Fields of `nvidia-smi --query-gpu` for the first GPU; empty where it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        reply = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = next(iter(reply.stdout.splitlines()), "").split(", ")
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def commit() -> str:
    """Short hash of the checkout, with `+` when files of `snippets` differ from it; `COMMIT` where there is no git."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"][:12]
    git = ["git", "-C", str(recording.ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain", "snippets"], capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def main() -> None:
    """`python -m snippets.lab.worker --package P --device D --folder F --events FD EXPERIMENT,... ...`."""
    parser = argparse.ArgumentParser(description="Measures groups of experiments; started by snippets.lab.capture.")
    parser.add_argument("groups", nargs="+", metavar="EXPERIMENT,...")
    parser.add_argument("--package", default="snippets")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--events", type=int, required=True)
    arguments = parser.parse_args()
    names = [group.split(",") for group in arguments.groups]
    groups = [tuple(find(name, arguments.package)[0] for name in group) for group in names]
    with os.fdopen(arguments.events, "w", encoding="utf-8", buffering=1) as events:
        report(groups, arguments.device, arguments.folder, events)


def report(groups: list[tuple[Experiment, ...]], device: str, folder: Path, events: TextIO) -> None:
    """Measure, telling each stage; name the experiment that fails and its cause, then stop the process."""
    current = groups[0][0]

    def tell(experiment: Experiment, doing: str) -> None:
        nonlocal current
        current = experiment
        events.write(json.dumps({"experiment": experiment.id, "doing": doing}) + "\n")

    def fail(error: BaseException) -> NoReturn:
        lines = str(error).strip().splitlines() or [""]
        sys.__excepthook__(type(error), error, error.__traceback__)  # first: `capture` reads it when it is told
        sys.stderr.flush()
        events.write(json.dumps({"experiment": current.id, "failed": f"{type(error).__name__}: {lines[0]}"}) + "\n")
        events.flush()
        os._exit(1)  # a poisoned CUDA context may hang in the interpreter's own clean-up

    try:
        for group in groups:
            current = group[0]
            gc.collect()  # compiled functions of the last group hang in cycles and hold their graphs' memory
            if device == "cuda":
                torch.cuda.empty_cache()
            measure_group(group, device, folder, tell)
            events.write(json.dumps({"finished": [experiment.id for experiment in group]}) + "\n")
    except BaseException as error:  # whatever it is, it is told and the process ends
        fail(error)


if __name__ == "__main__":
    main()
