"""A profile is taken again until its steps agree."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture.checking import build_subject
from snippets.lab.capture.profiling import read_activities, trace_of
from snippets.lab.experiment import Experiment, Schedule, Subject, find
from tests.lab import samples
from tests.lab.capture.faults import PACKAGE

APART, ALIKE = samples.trace_json(kernels=(1, 2, 2)), samples.trace_json()
LATER_APART = samples.trace_json(kernels=(3, 2, 2))


@pytest.mark.parametrize(
    ("first_steps", "traces", "taken", "kept"),
    [
        (3, [ALIKE], 1, ALIKE),
        (3, [APART, ALIKE], 2, ALIKE),
        (3, [APART, APART, LATER_APART], 3, LATER_APART),
        (0, [APART], 1, APART),
    ],
    ids=["at once", "later", "never", "a cold process"],
)
def test_profiles_are_taken_until_the_steps_agree(
    first_steps: int, traces: list[bytes], taken: int, kept: bytes
) -> None:
    (right,) = find("faults/right", PACKAGE)
    experiment = dataclasses.replace(right, first_steps=first_steps)
    subject = build_subject(right, "cpu", {"size": 4})
    calls: list[tuple[Experiment, Subject, str]] = []

    def take(*arguments: Any) -> bytes:
        calls.append(arguments)
        return traces[len(calls) - 1]

    assert trace_of(experiment, subject, "cpu", take) == kept
    assert calls == [(experiment, subject, "cpu")] * taken


def test_a_trace_has_the_active_steps() -> None:
    (right,) = find("faults/right", PACKAGE)
    experiment = dataclasses.replace(right, schedule=Schedule(wait=2, warmup=1, active=2))
    trace = read_trace(trace_of(experiment, build_subject(right, "cpu", {"size": 4}), "cpu"))
    assert [step.name for step in trace.steps] == ["ProfilerStep#3", "ProfilerStep#4"]


def test_a_profile_of_a_cpu_has_no_activities() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as finished:
        torch.ones(2) + 1
    assert read_activities(finished) == ()
