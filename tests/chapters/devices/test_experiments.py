"""The subjects on a CPU, at small and odd sizes, and the probes with instruments that only note."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from snippets.devices import experiments
from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Subject, find
from snippets.lab.recording.schema import Timing


def test_a_copy_returns_its_input_and_counts_bytes_twice() -> None:
    subject = experiments.copy("cpu", mebibytes=1)
    (source,) = subject.inputs()
    assert torch.equal(subject.step(source), source)
    assert not subject.in_graph
    assert experiments.copy_in_graph("cpu", mebibytes=1).in_graph
    assert experiments.copy_work(1).bytes == 2 * 1024 * 1024
    assert experiments.copy_work(1).flops == 0


def test_a_product_agrees_with_its_reference_at_odd_shapes() -> None:
    error, _, _ = relative_error(experiments.matmul("cpu", 7, 33, 5), "cpu")
    assert 0 < error < 5e-3


def test_a_product_of_ones_is_exact() -> None:
    subject = experiments.matmul_ones("cpu", 7, 33, 5)
    assert torch.equal(subject.step(*subject.inputs()), torch.full((7, 5), 33.0, dtype=torch.bfloat16))
    assert relative_error(subject, "cpu")[0] == 0


def test_the_work_of_a_product() -> None:
    work = experiments.matmul_work(2, 3, 5)
    assert (work.flops, work.bytes, work.matmuls) == (60, 2 * (6 + 15 + 10), ())


def test_both_layouts_compute_the_same_at_four_shapes() -> None:
    """The second factor is stored by its columns or by its rows."""
    for name, strides in (("layout_linear", (1, 33)), ("layout_plain", (5, 1))):
        (experiment,) = find(f"devices/{name}")
        assert [point["m"] for point in experiment.points] == [8192, 4096, 8192, 64]
        assert experiment.make is not None
        subject = experiment.make(device="cpu", m=7, k=33, n=5)
        assert relative_error(subject, "cpu")[0] < 5e-3
        second = next(cell.cell_contents for cell in subject.step.__closure__ or ())
        assert second.stride() == strides


def test_the_small_step_is_right() -> None:
    assert 0 < relative_error(experiments.small_step("cpu"), "cpu")[0] < 5e-3


class Noting(TorchInstruments):
    """Instruments that run each step once and give it constant times, a different one at each call."""

    def __init__(self) -> None:
        self.calls = 0

    def time_all(self, subjects: Mapping[str, Subject]) -> dict[str, Any]:
        self.calls += 1
        for subject in subjects.values():
            subject.step(*subject.inputs())
        times = {
            kind: Timing.from_samples([place + self.calls, place + self.calls])
            for place, kind in enumerate(("interleaved", "cold", "from_python", "enqueue"))
        }
        return {name: SimpleNamespace(**times) for name in subjects}


def times_at(call: float) -> dict[str, list[float]]:
    kinds = ("interleaved", "cold", "from_python", "enqueue")
    return {kind: [place + call] * 2 for place, kind in enumerate(kinds)}


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects of a device `cuda` live on the CPU."""
    small, product = experiments.small_step, experiments.matmul_subject
    monkeypatch.setattr(experiments, "small_step", lambda device: small("cpu"))
    monkeypatch.setattr(experiments, "matmul_subject", lambda device, *sizes: product("cpu", *sizes))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_small_step_twice_before_the_profiler_and_once_after(on_cpu: None) -> None:
    found = experiments.after_profiling(Noting(), "cuda", 2)
    assert found == {"first": times_at(1), "again": times_at(2), "after": times_at(3)}


def test_with_the_gpu_to_itself_and_then_with_a_neighbor(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "NEIGHBOR", "print('busy', flush=True); import time; time.sleep(100)")
    found = experiments.shared(Noting(), "cuda", 8)
    steps = ("large product", "small step")
    assert found == {"alone": {one: times_at(1) for one in steps}, "shared": {one: times_at(2) for one in steps}}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that the experiments start."""
    processes: list[subprocess.Popen[bytes]] = []

    def noting(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(popen(*arguments, **options))
        return processes[-1]

    popen = experiments.subprocess.Popen
    monkeypatch.setattr(experiments.subprocess, "Popen", noting)
    return processes


def test_the_neighbor_is_gone_after_an_error(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "NEIGHBOR", "import os, time; print(os.getpid(), flush=True); time.sleep(100)")
    with pytest.raises(KeyError, match="timing failed"), experiments.neighbor():
        raise KeyError("timing failed")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


@pytest.mark.parametrize(
    ("script", "when"),
    [("raise SystemExit(1)", "before its first product"), ("print('busy', flush=True)", "during the timing")],
)
def test_a_neighbor_that_ends_is_an_error(
    script: str, when: str, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "NEIGHBOR", script)
    with pytest.raises(RuntimeError, match=when), experiments.neighbor():
        started[0].wait(60)
