"""Captures that go wrong, on a CPU: what each keeps, and what `doctor` says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.profiler import profile

from kinetoscope.doctor.trace_checks import check_trace
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from snippets.capture_faults import model
from snippets.capture_faults.experiments import captures, costs, sessions
from snippets.lab.capture.instruments import TorchInstruments

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup:UserWarning"),
    pytest.mark.filterwarnings("ignore:CUDA is not available"),
]
instruments = TorchInstruments()


@pytest.fixture
def step() -> Callable[[], None]:
    layers = model.build("cpu", layers=2, width=8)
    x = torch.randn(4, 8)
    return lambda: layers(x).square().mean().backward()


def exported(prof: profile, folder: Path) -> Trace:
    prof.export_chrome_trace(str(folder / "trace.json"))
    return read_trace(folder / "trace.json")


def test_narrow_layers() -> None:
    layers = model.build("cpu", layers=3, width=5)
    assert [type(layer).__name__ for layer in layers.children()] == ["Linear", "ReLU"] * 3
    assert layers(torch.ones(2, 5)).shape == (2, 5)


def test_a_step_that_is_never_ended_keeps_nothing(step: Callable[[], None], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="must be initialized"):
        exported(model.forgotten_step(step), tmp_path)
    assert len(exported(model.ended_steps(step), tmp_path).steps) == 3


def test_doctor_of_a_thread_that_the_profiler_does_not_follow(step: Callable[[], None], tmp_path: Path) -> None:
    trace = exported(model.in_a_thread(step), tmp_path)
    assert trace.cpu_ops == ()
    assert [check.seen for check in check_trace(trace) if check.status == "failed"] == [
        "no operators, no CUDA calls, no GPU work: nothing was recorded"
    ]


def test_doctor_of_a_profile_of_the_cpu(step: Callable[[], None], tmp_path: Path) -> None:
    checks = {check.name: check for check in check_trace(exported(model.cpu_only(step), tmp_path))}
    assert "ProfilerActivity.CUDA" in checks["GPU events"].cure


def test_probes_of_captures() -> None:
    forgotten = captures.forgotten_step(instruments, "cpu")
    assert (forgotten["forgotten"]["operators"], forgotten["ended"]["steps"]) == (0, 3)
    assert "initialized" in forgotten["forgotten"]["error"]
    thread = captures.in_a_thread(instruments, "cpu")
    assert thread["thread"]["operators"] == 0 < thread["here"]["operators"]
    both = captures.cpu_only(instruments, "cpu")
    assert both["cpu_only"]["gpu"] == both["everything"]["gpu"] == 0 < both["cpu_only"]["operators"]


def test_items_of_worker_processes_are_not_seen() -> None:
    assert captures.in_workers(instruments, "cpu", 1) == {"made": {"0": 64, "1": 0}}


def test_prices_of_the_options() -> None:
    found = costs.overhead(instruments, "cpu", repeats=2, steps=1)
    assert list(found["samples_us"]) == ["without", *costs.OPTIONS]
    assert all(len(samples) == 2 for samples in found["samples_us"].values())
    assert len(found["before_us"]) == 2
    assert found["bytes_per_step"]["nothing"] < found["bytes_per_step"]["with_stack"] < found["bytes_per_step"]["all"]


def test_sessions_without_and_with_warm_up() -> None:
    found = sessions.unwarmed(instruments, "cpu", sessions=1)
    assert {name: len(sessions) for name, sessions in found.items()} == {"unwarmed": 1, "warmed": 1}
    (session,) = found["warmed"]
    assert (session["launches"], session["missing"]) == (0, 0)
    assert session["first_us"] > 0 < session["second_us"]


def test_sizes_of_traces() -> None:
    one, three = costs.huge(instruments, "cpu", "1 3")["traces"]
    assert (one["steps"], three["steps"]) == (1, 3)
    assert 2 * one["bytes"] < three["bytes"] < 4 * one["bytes"]
    assert one["events"] < three["events"]


def test_launches_without_their_work() -> None:
    """A launch in the first step whose correlation no kernel has."""
    steps = [
        {"cat": "user_annotation", "name": f"ProfilerStep#{index}", "ts": 100 * index, "dur": 90 - index}
        for index in range(2)
    ]
    calls = [
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "args": {"correlation": at}} for at in (5, 6, 105)
    ]
    kernels = [{"cat": "kernel", "name": "k", "args": {"correlation": 5}}]
    found = sessions._first_steps([*steps, *calls, *kernels])
    assert found == {"launches": 2, "missing": 1, "first_us": 90, "second_us": 89}
