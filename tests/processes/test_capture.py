"""Capturing where things go wrong: each failure has a name and a cause, the others go on, nothing earlier is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import steps_agree
from snippets.devices.experiments import neighbor
from snippets.lab.capture.gpu import open_gpu, others
from snippets.lab.capture.recorder import record_experiments
from snippets.lab.capture.supervisor import Event, Group, run_worker
from snippets.lab.experiment import find
from snippets.lab.recording.consistency import contradictions
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.fingerprint import fingerprint
from snippets.lab.recording.loading import load_recording, load_trace, trace_path
from snippets.lab.recording.schema import Recording, Timings
from tests.lab.capture.faults import FAULTS, PACKAGE, SOURCES
from tests.lab.samples import DEVICE, files, sample, save_all


def run_until_it_hangs(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
    """A worker on the CPU; the clock jumps past every limit as soon as faults/hangs has begun."""
    jump_s = 0.0

    def clock() -> float:
        return time.monotonic() + jump_s

    for event in run_worker(batch, folder, number, package=PACKAGE, torch_device="cpu", clock=clock):
        if event == {"experiment": "faults/hangs", "doing": "building size=16"}:
            jump_s = 1000.0
        yield event


def test_failures_are_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One capture, since each process that starts takes seconds: wrong, raising, hanging, aborting, and one sound."""
    temporary = tempfile.mkdtemp(prefix="pp-", dir="/tmp")  # short enough for the server's socket
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    root = tmp_path / "recordings"
    save_all(root, *(sample(one.id, label="earlier") for one in FAULTS))
    before = files(root)

    outcomes = list(record_experiments(root, DEVICE, FAULTS, run_until_it_hangs))

    assert {outcome.experiment.name: outcome.failed for outcome in outcomes} == {
        "wrong": "WrongAnswer: relative error 5.00e-01, at most 1e-02 allowed",
        "right": "",
        "raises": "ValueError: the first line",
        "hangs": "ran past its limit of 9 s",
        "aborts": "killed by SIGABRT; last output: the last words",
    }
    after = files(root)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {
        f"{DEVICE}/faults/right.json",
        f"{DEVICE}/faults/right.trace.json.gz",
    }
    assert list(Path(temporary).glob("profiling-pytorch-*")) == []

    out = capsys.readouterr().out
    for outcome in outcomes:
        assert f"s  {outcome.experiment.id}: {f'failed: {outcome.failed}' if outcome.failed else 'recorded'}\n" in out
    for doing in ("building size=16", "profiling", "checking"):
        assert f"s  faults/right: {doing}\n" in out
    assert "\n    | about to raise\n" in out
    assert "    | the second line\n" in out, "the traceback is there when the failure is reported"
    assert out.rstrip().splitlines()[-1].startswith("5/5 ")

    check_recording_of_a_cpu(load_recording(root, DEVICE, "faults/right"), root)


def check_recording_of_a_cpu(recording: Recording, root: Path) -> None:
    assert (recording.schema, recording.label, recording.schedule, recording.first_steps) == (2, "f", (1, 1, 3), 3)
    assert recording.fingerprint == fingerprint(*find("faults/right", PACKAGE), SOURCES)
    assert recording.data == {"origin": "right.py"}
    assert recording.ceilings == ()
    (point,) = recording.points
    assert (point.parameters, point.flops, point.bytes) == ({"size": 16}, 2 * 16**3, 6 * 16**2)
    assert 0 < point.relative_error < 1e-5
    assert (point.reference_dtype, point.peak_memory_bytes, point.timings) == ("float64", 0, None)
    assert recording.session <= recording.environment.date
    assert recording.environment.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    trace = load_trace(root, DEVICE, "faults/right")
    assert [step.name for step in trace.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    for step in trace.steps:
        label = step.find_annotation("f")
        assert label is not None
        assert [op.name for op in step.children(label)] == ["aten::matmul", "aten::mul"]


INTERRUPTED = """\
import sys
from functools import partial
from pathlib import Path
from snippets.lab.capture.recorder import record_experiments
from snippets.lab.capture.supervisor import run_worker
from snippets.lab.experiment import find
run = partial(run_worker, package="tests.lab.broken", torch_device="cpu")
list(record_experiments(Path(sys.argv[1]), "nvidia-sample", find("hang/hangs", "tests.lab.broken"), run))
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    root, temporary, pipe = tmp_path / "recordings", tmp_path / "temporary", tmp_path / "pid"
    temporary.mkdir()
    save_all(root, sample("hang/hangs"))
    before = files(root)
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(root)],
        cwd=PROJECT,
        env={**os.environ, "WORKER_PID_FILE": str(pipe), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        worker_pid = int(pipe.read_text())  # waits for the worker to write it
        assert is_running(worker_pid)
        assert process.stdout is not None
        measuring = next(line for line in process.stdout if "hang/hangs: measuring" in line)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert measuring.startswith("0/1 ")
    assert not is_running(worker_pid)
    assert files(root) == before
    assert [path.name for path in temporary.glob("profiling-pytorch-*")] == []


def timings(recording: Recording) -> Timings:
    measured = recording.points[0].timings
    assert measured is not None
    return measured


@pytest.mark.gpu
def test_failures_of_a_gpu_are_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An illegal access and an assert on the device spoil the context, 1 PiB does not fit, a wait stops a graph."""
    chosen = find("gpu_faults", PACKAGE)
    save_all(tmp_path, *(sample(one.id, label="earlier", has_trace=one.is_traced) for one in chosen))
    before = files(tmp_path)
    run = partial(run_worker, package=PACKAGE)
    outcomes = {one.experiment.name: one.failed for one in record_experiments(tmp_path, DEVICE, chosen, run)}
    assert outcomes.keys() == {one.name for one in chosen}
    assert "illegal memory access" in outcomes["illegal"]
    assert "device-side assert" in outcomes["out_of_range"]
    assert outcomes["too_large"].startswith("OutOfMemoryError: CUDA out of memory")
    assert outcomes["waiting"] != ""
    assert (outcomes["first"], outcomes["second"]) == ("", "")
    out = capsys.readouterr().out
    assert all(f"gpu_faults/{name}: failed: {cause}" in out for name, cause in outcomes.items() if cause)
    after = files(tmp_path)
    assert after.keys() == before.keys()
    changed = {name.split("/")[2].split(".")[0] for name in after if after[name] != before[name]}
    assert changed == {"first", "second"}
    check_recordings_of_a_gpu(tmp_path)


def check_recordings_of_a_gpu(root: Path) -> None:
    first, second = (load_recording(root, DEVICE, f"gpu_faults/{name}") for name in ("first", "second"))
    assert first.session == second.session
    assert first.environment.multiprocessors > 0
    assert first.environment.driver != ""
    assert first.points[0].peak_memory_bytes == 2 * 256 * 256
    assert 0 < first.points[0].relative_error < 1e-2
    for name in ("interleaved", "cold", "from_python", "enqueue"):
        pair = [getattr(timings(recording), name) for recording in (first, second)]
        assert len(pair[0].samples_us) == len(pair[1].samples_us) >= 20
        for one in pair:
            assert len(one.rounds) == 3, "a process each"
            assert 0 < one.q1_us <= one.median_us <= one.q3_us
            assert min(one.samples_us) <= one.q1_us
            assert max(one.samples_us) >= one.q3_us
    assert timings(first).enqueue.median_us <= timings(first).from_python.median_us
    assert timings(first).input_sets >= 4
    assert timings(first).rotated_bytes == timings(first).input_sets * 3 * 2 * 256 * 256
    assert [one.name for one in first.ceilings] == ["copy", "matmul 8192x8192x8192", "matmul 256x256x256"]
    assert all(one.timing.median_us > 0 for one in first.ceilings)
    assert {one.timing.rounds for one in first.ceilings} == {timings(first).interleaved.rounds}, "in the same turns"
    trace = load_trace(root, DEVICE, "gpu_faults/first")
    assert len(trace.steps) == 3
    assert steps_agree(trace)
    assert all(len(step.kernels) >= 1 for step in trace.steps)
    assert read_trace(trace_path(root, DEVICE, first)).device == trace.device == first.environment.device


def timed_part(folder: Path) -> Recording:
    """What the first process that times leaves of a small step."""
    folder.mkdir()
    events = list(run_worker([find("gpu_faults/first", PACKAGE)], folder, 1, package=PACKAGE))
    assert events[-1] == {"finished": ["gpu_faults/first"]}, events
    return msgspec.json.decode((folder / "first.1.json").read_bytes(), type=Recording)


@pytest.mark.gpu
def test_a_second_job_on_the_gpu_is_noticed(tmp_path: Path) -> None:
    """By its name, or by times that contradict each other; the same step alone has neither."""
    if holders := others(open_gpu(), ()):
        pytest.skip(f"{', '.join(holders)} holds the GPU; after other GPU tests, run this file by itself")
    alone = timed_part(tmp_path / "alone")
    with neighbor():
        shared = timed_part(tmp_path / "shared")
    assert (alone.disturbed, alone.environment.other_processes) == ("", ())
    assert contradictions(timings(shared)) or shared.environment.other_processes
    assert shared.disturbed != ""
