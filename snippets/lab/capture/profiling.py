"""TODO."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from snippets.lab.capture.environment import host_names
from snippets.lab.experiment import Experiment, Subject
from snippets.lab.recording.scrub import scrub
from snippets.lab.trace.kineto import read_trace
from snippets.lab.trace.queries import steps_agree

PROFILES = 3
"""Tries until all active steps agree: the profiler is known to drop kernels at a session's start."""


# --8<-- [start:profile]
def profile_steps(experiment: Experiment, subject: Subject, device: str) -> profile:
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
    clean = scrub(content, host_names())
    return msgspec.json.encode({**clean, "traceName": "trace.json"})


def trace_of(experiment: Experiment, subject: Subject, device: str) -> bytes:
    """Profile until all active steps show the same GPU work; a cold process has only one try."""
    for _ in range(PROFILES if experiment.first_steps else 1):
        content = chrome_trace(profile_steps(experiment, subject, device))
        if steps_agree(read_trace(content)):
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
