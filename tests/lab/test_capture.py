"""What goes wrong in one experiment stays in it: the others are recorded, and nothing recorded before is touched."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from snippets.lab import capture, recording, trace
from snippets.lab.capture import Outcome
from snippets.lab.experiment import Experiment, experiments
from tests.lab.samples import put, sample

BROKEN = "tests.lab.broken"


def recorded(chosen: list[Experiment], root: Path, on: str) -> dict[str, str]:
    """What became of each experiment, by name."""
    return {
        outcome.experiment.name: outcome.failed
        for outcome in capture.record(chosen, "test-device", root, package=BROKEN, on=on)
    }


def test_each_failure_is_named_with_its_cause_and_the_others_go_on(tmp_path, capsys):
    put(tmp_path, before := sample("faults/wrong", has_trace=False), device="test-device")
    found = recorded(list(experiments("faults", BROKEN)), tmp_path, on="cpu")
    assert found["right"] == ""
    assert found["wrong"].startswith("ArithmeticError: wrong answer: relative error 5.00e-01")
    assert found["raises"] == "ValueError: the first line"
    assert found["hangs"] == "ran past its limit of 9 s"
    assert found["aborts"] == "killed by SIGABRT; its last words: the last words"
    told = capsys.readouterr().out
    for name, cause in found.items():
        assert f"faults/{name}: {f'failed: {cause}' if cause else 'recorded'}" in told
    assert "    | ValueError: the first line" in told
    assert "5/5" not in told.split("faults/aborts: failed")[0]
    right = recording.load("faults/right", "test-device", tmp_path)
    assert right.points[0].parameters == {"size": 16}
    assert right.points[0].flops == 2 * 16**3
    assert right.data == {"origin": "right.py"}
    assert trace.steps_agree(recording.trace("faults/right", "test-device", tmp_path))
    assert recording.load("faults/wrong", "test-device", tmp_path) == before
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["right.json", "right.trace.json.gz", "wrong.json"]


def test_an_interruption_loses_nothing_and_leaves_no_process(tmp_path):
    pid_file = tmp_path / "pid"
    code = (
        "import sys; from pathlib import Path; from snippets.lab import capture\n"
        "from snippets.lab.experiment import experiments\n"
        f"chosen = experiments('hang', {BROKEN!r})\n"
        "try:\n"
        f"    list(capture.record(chosen, 'd', Path({str(tmp_path / 'shelf')!r}), package={BROKEN!r}, on='cpu'))\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    environment = {**os.environ, "WORKER_PID_FILE": str(pid_file), "PYTHONPATH": str(recording.ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert [path.name for path in (tmp_path / "shelf").rglob("*.*")] == ["steady.json"]


def test_a_full_disk_is_told_and_leaves_the_old_recording(tmp_path, monkeypatch):
    (steady, _) = experiments("hang", BROKEN)
    put(tmp_path, before := sample("hang/steady", has_trace=False), device="test-device")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording.os, "fsync", full)
    assert "No space left on device" in recorded([steady], tmp_path, on="cpu")["steady"]
    assert recording.load("hang/steady", "test-device", tmp_path) == before
    assert [path.name for path in tmp_path.rglob("*.*")] == ["steady.json"]


class TestWanted:
    def test_missing_stale_unreadable_and_current(self, tmp_path):
        mlp = experiments("mlp")
        put(tmp_path, *(sample(one.id, has_trace=False) for one in mlp if not one.is_traced), device="d")
        traced = [one for one in mlp if one.is_traced]
        assert [one.name for one in capture.wanted(mlp, "d", False, tmp_path)] == [one.name for one in traced]
        path = tmp_path / "d" / "mlp" / "new_shapes.json"
        path.write_bytes(path.read_bytes()[:100])
        assert [one.name for one in capture.wanted(mlp[-1:], "d", False, tmp_path)] == ["new_shapes"]
        put(tmp_path, msgspec.structs.replace(sample("mlp/new_shapes", has_trace=False), digest="old"), device="d")
        assert [one.name for one in capture.wanted(mlp[-1:], "d", False, tmp_path)] == ["new_shapes"]

    def test_one_of_a_group_takes_its_mates_along(self, tmp_path):
        (eager,) = (one for one in experiments("mlp") if one.name == "eager")
        assert [one.name for one in capture.wanted([eager], "d", False, tmp_path)] == ["eager", "compiled", "liger"]

    def test_all_when_fresh(self):
        mlp = experiments("mlp")
        assert capture.wanted(mlp, recording.BUILDER, True) == list(mlp)


def test_a_cold_experiment_has_a_process_to_itself():
    pending = [(one,) for one in experiments("matmul_add")]
    assert [one.name for (one,) in capture._sharing_a_process(pending)] == ["eager_64_cold"]
    warm = [group for group in pending if group[0].first_steps and group[0].make]
    assert capture._sharing_a_process(warm) == warm


def test_an_outcome_without_a_cause_is_a_recording():
    assert Outcome(experiments("mlp")[0]).failed == ""


@pytest.mark.gpu
def test_what_spoils_a_cuda_context_is_named_and_the_others_are_recorded(tmp_path, capsys):
    found = recorded(list(experiments("gpu_faults", BROKEN)), tmp_path, on="cuda")
    assert "illegal memory access" in found["illegal"]
    assert "AcceleratorError" in found["out_of_range"] or "device-side assert" in found["out_of_range"]
    assert found["too_large"].startswith("OutOfMemoryError")
    assert found["waiting"] != ""
    assert (found["first"], found["second"]) == ("", "")
    first, second = (recording.load(f"gpu_faults/{name}", "test-device", tmp_path) for name in ("first", "second"))
    assert first.session == second.session
    for one in (first, second):
        timings = one.points[0].timings
        assert timings is not None
        for timing in (timings.warm, timings.cold, timings.launched, timings.enqueue):
            assert 0 < timing.q1_us <= timing.median_us <= timing.q3_us
        assert timings.rotated_bytes > one.circumstances.l2_bytes
        assert one.points[0].relative_error < 1e-2
        assert one.points[0].peak_memory_bytes == 2 * 256 * 256
        assert [ceiling.what for ceiling in one.ceilings] == ["copy", "matmul 8192x8192x8192", "matmul 256x256x256"]
        traced = recording.trace(one.id, "test-device", tmp_path)
        assert trace.steps_agree(traced)
        assert [len(step.kernels) for step in traced.steps] == [1, 1, 1]
    assert first.points[0].timings is not None
    assert second.points[0].timings is not None
    assert len(first.points[0].timings.warm.samples_us) == len(second.points[0].timings.warm.samples_us)
