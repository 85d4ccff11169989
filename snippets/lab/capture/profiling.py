"""torch.profiler around the steps of an experiment, and its trace as scrubbed
Kineto JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import steps_agree
from snippets.lab.capture.environment import host_names
from snippets.lab.experiment import Experiment, Subject
from snippets.lab.recording.scrub import scrub

PROFILES = 3
"""Tries until all active steps agree: the profiler is known to drop kernels at
a session's start."""


# fmt: off
# --8<-- [start:profile]
def profile_steps(
    experiment: Experiment, subject: Subject, device: str
) -> profile:
    """Run an experiment's schedule under `torch.profiler` and return the
    finished profile."""
    inputs = subject.inputs()
    for _ in range(experiment.first_steps):
        subject.step(*inputs)
    synchronize(device)
    plan = experiment.schedule
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (
        device == "cuda"
    )
    prof = profile(
        activities=activities,
        schedule=schedule(
            wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=1
        ),
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
# fmt: on


def synchronize(device: str) -> None:
    """Wait for the GPU; return immediately on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def chrome_trace(finished: profile) -> bytes:
    """The profile as Kineto JSON, scrubbed of host names and directories."""
    return scrubbed(export(finished))


def scrubbed(exported: bytes) -> bytes:
    """Kineto JSON without host names and directories."""
    content = scrub(msgspec.json.decode(exported), host_names())
    return msgspec.json.encode({**content, "traceName": "trace.json"})


def read_activities(finished: profile) -> Sequence[GpuActivity]:
    """The GPU activities of a finished profile."""
    return read_trace(export(finished)).activities


def export(finished: profile) -> bytes:
    """The profile as Kineto JSON, as torch writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        finished.export_chrome_trace(str(path))
        return path.read_bytes()


def profile_once(experiment: Experiment, subject: Subject, device: str) -> bytes:
    """The trace of one profile."""
    return chrome_trace(profile_steps(experiment, subject, device))


def trace_of(
    experiment: Experiment,
    subject: Subject,
    device: str,
    take: Callable[..., bytes] = profile_once,
) -> bytes:
    """Profile until all active steps show the same GPU work; a cold process has
    only one try."""
    for _ in range(PROFILES if experiment.first_steps else 1):
        content = take(experiment, subject, device)
        if steps_agree(read_trace(content)):
            break
    return content
