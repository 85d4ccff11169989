"""Capturing where things go wrong: each failure has a name and a cause, the others go on, nothing earlier is lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from snippets.lab.capture.environment import commit, nvidia_smi
from snippets.lab.capture.profiling import relative_error, trace_of
from snippets.lab.capture.recorder import Outcome, _groups, _sharing_a_process, record_experiments
from snippets.lab.capture.selection import NoGpu, require_gpu, select_pending
from snippets.lab.capture.timing import timing_of
from snippets.lab.experiment import Experiment, Subject, find
from snippets.lab.recording.device import PROJECT, chapter_folder
from snippets.lab.recording.digest import source_digest
from snippets.lab.recording.loading import load_recording, load_trace, trace_path
from snippets.lab.recording.schema import Recording, Timing, Timings
from snippets.lab.trace.kineto import read_trace
from snippets.lab.trace.queries import steps_agree

# KEEP capture
# KEEP recording
# KEEP trace
# KEEP worker
from tests.lab import samples
from tests.lab.samples import DEVICE, as_dict, files, put, sample

PACKAGE = "tests.lab.broken"
FAULTS = find("faults", PACKAGE)
RIGHT = find("faults/right", PACKAGE)


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines of the terminal less their time: `0/5 faults/right: checking`."""
    lines = capsys.readouterr().out.splitlines()
    return [" ".join([line.split()[0], line.split("s  ", 1)[-1]]) for line in lines if "/" in line.split(" ")[0]]


def test_failures_are_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One capture, since each process that starts takes seconds: wrong, raising, hanging, aborting, and one sound."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    root = tmp_path / "recordings"
    for one in FAULTS:
        put(root, sample(one.id, label="earlier"))
    before = files(root)

    outcomes = list(record_experiments(FAULTS, DEVICE, root, PACKAGE, on="cpu"))

    assert {outcome.experiment.name: outcome.failed for outcome in outcomes} == {
        "wrong": "ArithmeticError: wrong answer: relative error 5.00e-01, at most 1e-02 allowed",
        "right": "",
        "raises": "ValueError: the first line",
        "hangs": "ran past its limit of 9 s",
        "aborts": "killed by SIGABRT; its last words: the last words",
    }
    after = files(root)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {
        f"{DEVICE}/faults/right.json",
        f"{DEVICE}/faults/right.trace.json.gz",
    }
    assert list((tmp_path / "temporary").iterdir()) == []

    out = capsys.readouterr().out
    for outcome in outcomes:
        assert f"s  {outcome.experiment.id}: {f'failed: {outcome.failed}' if outcome.failed else 'recorded'}\n" in out
    for doing in ("building size=16", "profiling", "checking"):
        assert f"s  faults/right: {doing}\n" in out
    assert "\n    | about to raise\n" in out
    assert "    | the second line\n" in out, "the traceback is there when the failure is told"
    assert out.rstrip().splitlines()[-1].startswith("4/5 ")

    check_recording_of_a_cpu(load_recording("faults/right", DEVICE, root), root)


def check_recording_of_a_cpu(found: Recording, root: Path) -> None:
    assert (found.schema, found.label, found.schedule, found.first_steps) == (1, "f", (1, 1, 3), 3)
    assert found.digest == source_digest("faults")
    assert found.data == {"origin": "right.py"}
    assert found.ceilings == ()
    (point,) = found.points
    assert (point.parameters, point.flops, point.bytes) == ({"size": 16}, 2 * 16**3, 6 * 16**2)
    assert 0 < point.relative_error < 1e-5
    assert (point.reference_dtype, point.peak_memory_bytes, point.timings) == ("float64", 0, None)
    assert found.session <= found.circumstances.date
    assert found.circumstances.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    traced = load_trace("faults/right", DEVICE, root)
    assert [step.name for step in traced.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    for step in traced.steps:
        label = traced.label_span(step, "f")
        assert label is not None
        assert [op.name for op in traced.children(label)] == ["aten::matmul", "aten::mul"]


INTERRUPTED = """\
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
from snippets.lab import __main__ as cli, capture
from snippets.lab.experiment import find
record = capture.record
capture.require_gpu = lambda: "nvidia-sample"
capture.wanted = lambda chosen, device, fresh: find("hang/hangs", "tests.lab.broken")
capture.record = lambda chosen, device: record(chosen, device, Path(sys.argv[1]), "tests.lab.broken", "cpu")
sys.exit(cli.main(["record", "devices"]))
"""


def until(true: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    root, temporary, pid_file = tmp_path / "recordings", tmp_path / "temporary", tmp_path / "pid"
    temporary.mkdir()
    put(root, sample("hang/hangs"))
    before = files(root)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(root)],
        cwd=PROJECT,
        env={**os.environ, "WORKER_PID_FILE": str(pid_file), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert until(lambda: pid_file.exists() and pid_file.read_text() != "", 90)
        worker_pid = int(pid_file.read_text())
        assert is_running(worker_pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err == "\nstopped; what was recorded stays as it was\n"
    assert "hang/hangs: measuring" in out
    assert until(lambda: not is_running(worker_pid), 10)
    assert files(root) == before
    assert [path.name for path in temporary.glob("profiling-pytorch-*")] == []


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the worker by one that is done at once and leaves these files."""

    def leave(content: bytes, trace_json: bytes) -> None:
        def events(batch: Any, folder: Path, package: str, on: str) -> Iterator[dict[str, Any]]:
            (folder / "right.json").write_bytes(content)
            (folder / "right.trace.json").write_bytes(trace_json)
            yield {"experiment": "faults/right", "doing": "checking"}
            yield {"finished": ["faults/right"]}

        monkeypatch.setattr(capture, "_events", events)

    leave(msgspec.json.encode(sample("faults/right")), samples.trace_json())
    return leave


def test_what_is_finished_is_saved(
    tmp_path: Path, measured: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(record_experiments(RIGHT, DEVICE, tmp_path, PACKAGE, on="cpu")) == [Outcome(RIGHT[0])]
    assert load_recording("faults/right", DEVICE, tmp_path) == sample("faults/right")
    assert told(capsys) == ["0/1 faults/right: checking", "0/1 faults/right: recorded"]


def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, measured: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / DEVICE).write_text("in the way")
    (outcome,) = record_experiments(RIGHT, DEVICE, tmp_path, PACKAGE, on="cpu")
    assert outcome.failed.startswith("not saved: [Errno ")
    assert f"faults/right: {outcome.failed}" in capsys.readouterr().out
    assert files(tmp_path) == {DEVICE: b"in the way"}


def test_a_full_disk_is_told(tmp_path: Path, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, sample("faults/right", label="earlier"))
    before = files(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (outcome,) = record_experiments(RIGHT, DEVICE, tmp_path, PACKAGE, on="cpu")
    assert outcome.failed == "not saved: [Errno 28] No space left on device"
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "trace_json", "cause"),
    [
        (b"{", b"{}", "not saved: Input data was truncated"),
        (
            msgspec.json.encode(sample("faults/right")),
            os.urandom(1_100_000),
            "not saved: the trace of faults/right is 1,1",
        ),
        (
            msgspec.json.encode({**as_dict(sample("faults/right")), "points": None}),
            b"{}",
            "not saved: Expected `array`",
        ),
    ],
    ids=["no JSON", "too large", "a field"],
)
def test_what_cannot_be_a_recording_is_told(
    tmp_path: Path, measured: Callable[..., None], content: bytes, trace_json: bytes, cause: str
) -> None:
    measured(content, trace_json)
    (outcome,) = record_experiments(RIGHT, DEVICE, tmp_path, PACKAGE, on="cpu")
    assert outcome.failed.startswith(cause)
    assert files(tmp_path) == {}


def names(found: list[Experiment]) -> list[str]:
    return [one.name for one in found]


def test_what_needs_recording(tmp_path: Path) -> None:
    everything = names(list(FAULTS))
    assert names(select_pending(FAULTS, DEVICE, False, tmp_path)) == everything
    put(tmp_path, *(sample(one.id) for one in FAULTS))
    assert select_pending(FAULTS, DEVICE, False, tmp_path) == []
    assert names(select_pending(FAULTS, DEVICE, True, tmp_path)) == everything
    assert names(select_pending(FAULTS, "nvidia-other", False, tmp_path)) == everything
    assert names(select_pending([*RIGHT, *RIGHT], DEVICE, True, tmp_path)) == ["right", "wrong"]


@pytest.mark.parametrize(
    ("name", "fault", "needed"),
    [
        ("raises", "stale", ["raises"]),
        ("raises", "missing", ["raises"]),
        ("raises", "damaged", ["raises"]),
        ("raises", "no trace", ["raises"]),
        ("raises", "damaged trace", ["raises"]),
        ("raises", "untraced", ["raises"]),
        ("right", "stale", ["right", "wrong"]),
        ("wrong", "damaged trace", ["wrong", "right"]),
    ],
)
def test_one_that_needs_recording_takes_its_group_along(
    tmp_path: Path, name: str, fault: str, needed: list[str]
) -> None:
    put(tmp_path, *(sample(one.id) for one in FAULTS))
    found = sample(f"faults/{name}", digest="0" * 16 if fault == "stale" else source_digest("faults"))
    put(tmp_path, msgspec.structs.replace(found, has_trace=fault != "untraced"))
    json_file = chapter_folder(DEVICE, "faults", tmp_path) / f"{name}.json"
    trace_file = trace_path(found, DEVICE, tmp_path)
    if fault == "missing":
        json_file.unlink()
    elif fault == "damaged":
        json_file.write_text("{")
    elif fault == "no trace":
        trace_file.unlink()
    elif fault == "damaged trace":
        samples.damage(trace_file, lambda content: content[:30])
    assert names(select_pending(FAULTS, DEVICE, False, tmp_path)) == needed


def test_who_shares_a_process() -> None:
    """Profiled warm and of one chapter: together. Cold, or measured: alone."""
    warm, other = RIGHT[0], find("gpu_faults/first", PACKAGE)[0]
    measuring = find("hang/hangs", PACKAGE)[0]
    cold = Experiment(
        chapter="faults", name="c", label="c", make=warm.make, work=warm.work, parameters={"size": 1}, first_steps=0
    )
    groups = _groups([*FAULTS, cold, other, measuring])
    assert [tuple(one.name for one in group) for group in groups] == [
        ("wrong", "right"),
        ("raises",),
        ("hangs",),
        ("aborts",),
        ("c",),
        ("first",),
        ("hangs",),
    ]
    assert [len(_sharing_a_process(groups[place:])) for place in range(7)] == [4, 3, 2, 1, 1, 1, 1]


def test_without_a_gpu_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(recording, "this_device", lambda: None)
    with pytest.raises(NoGpu, match=r"^no CUDA GPU here, .*python -m snippets\.lab run CHAPTER/EXPERIMENT$"):
        require_gpu()
    monkeypatch.setattr(recording, "this_device", lambda: "nvidia-t4")
    with pytest.raises(NoGpu, match=r"^this machine has a GPU \(nvidia-t4\), but torch .* cannot use it"):
        require_gpu()


def subject(answer: float, expected: float, tolerance: float = 1e-2) -> Subject:
    return Subject(
        step=lambda x: x * answer, inputs=lambda: (torch.ones(4),), reference=lambda x: x.double() * expected,
        tolerance=tolerance,
    )  # fmt: skip


@pytest.mark.parametrize(("answer", "expected", "error"), [(1.0, 1.0, 0.0), (3.0, 4.0, 0.25), (0.0, 2.0, 1.0)])
def test_the_error_is_relative_to_the_reference(answer: float, expected: float, error: float) -> None:
    assert relative_error(subject(answer, expected, 1.0), "cpu") == (error, "float64", 0)


@pytest.mark.parametrize("answer", [1.02, float("nan"), float("inf"), -1.0])
def test_a_wrong_answer_is_refused(answer: float) -> None:
    with pytest.raises(ArithmeticError, match=r"^wrong answer: relative error \S+, at most 1e-02 allowed$"):
        relative_error(subject(answer, 1.0), "cpu")


@pytest.mark.parametrize(
    ("first_steps", "traces", "tries"), [(3, "agree", 1), (3, "later", 2), (3, "never", 3), (0, "never", 1)]
)
def test_profiles_are_taken_until_the_steps_agree(
    monkeypatch: pytest.MonkeyPatch, first_steps: int, traces: str, tries: int
) -> None:
    apart, alike = samples.trace_json(kernels=(1, 2, 2)), samples.trace_json()
    given = {"agree": [alike], "later": [apart, alike], "never": [apart] * 3}[traces]
    calls: list[bytes] = []

    def chrome_trace(prof: object) -> bytes:
        calls.append(given[len(calls)])
        return calls[-1]

    monkeypatch.setattr(worker, "profiled", lambda *arguments: None)
    monkeypatch.setattr(worker, "chrome_trace", chrome_trace)
    one = Experiment(chapter="c", name="n", label="l", make=subject, work=RIGHT[0].work, first_steps=first_steps)
    assert trace_of(one, subject(1.0, 1.0), "cpu") == given[-1 if traces != "never" else 0]
    assert len(calls) == tries


def test_the_commit_of_a_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMMIT", "0123456789abcdef")
    assert commit() == "0123456789ab"
    monkeypatch.delenv("COMMIT")
    with monkeypatch.context() as patched:
        patched.setattr(recording, "ROOT", tmp_path)
        assert commit() == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == "unknown", "a machine without git can record"
    assert nvidia_smi("driver_version") == {}


def test_a_timing_keeps_its_samples() -> None:
    found = timing_of([5.0, 1.0, 2.0, 4.0, 3.0004])
    assert found == Timing(3.0, 2.0, 4.0, (5.0, 1.0, 2.0, 4.0, 3.0))


def timed(found: Recording) -> Timings:
    timings = found.points[0].timings
    assert timings is not None
    return timings


@pytest.mark.gpu
def test_failures_of_a_gpu_are_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An illegal access and an assert on the device spoil the context, 1 PiB does not fit, a wait stops a graph."""
    chosen = find("gpu_faults", PACKAGE)
    for one in chosen:
        put(tmp_path, sample(one.id, label="earlier", has_trace=one.is_traced))
    before = files(tmp_path)
    outcomes = {
        outcome.experiment.name: outcome.failed for outcome in record_experiments(chosen, DEVICE, tmp_path, PACKAGE)
    }
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
    first, second = (load_recording(f"gpu_faults/{name}", DEVICE, root) for name in ("first", "second"))
    assert first.session == second.session
    assert first.circumstances.multiprocessors > 0
    assert first.circumstances.driver != ""
    assert first.points[0].peak_memory_bytes == 2 * 256 * 256
    assert 0 < first.points[0].relative_error < 1e-2
    for name in ("warm", "cold", "launched", "enqueue"):
        pair = [getattr(timed(found), name) for found in (first, second)]
        assert len(pair[0].samples_us) == len(pair[1].samples_us) >= 20
        for one in pair:
            assert 0 < one.q1_us <= one.median_us <= one.q3_us
            assert min(one.samples_us) <= one.q1_us
            assert max(one.samples_us) >= one.q3_us
    assert timed(first).enqueue.median_us <= timed(first).launched.median_us
    assert timed(first).input_sets >= 4
    assert timed(first).rotated_bytes == timed(first).input_sets * 3 * 2 * 256 * 256
    assert [one.what for one in first.ceilings] == ["copy", "matmul 8192x8192x8192", "matmul 256x256x256"]
    assert all(one.timing.median_us > 0 for one in first.ceilings)
    traced = load_trace("gpu_faults/first", DEVICE, root)
    assert len(traced.steps) == 3
    assert steps_agree(traced)
    assert all(len(step.kernels) >= 1 for step in traced.steps)
    assert read_trace(trace_path(first, DEVICE, root)) == traced
