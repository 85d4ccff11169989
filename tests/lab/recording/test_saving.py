"""A recording is whole, or said to be damaged, and the same recording is the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import to_builtins

from kinetoscope.trace.kineto import read_trace
from snippets.lab.recording.device import PROJECT, chapter_folder
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError
from tests.lab import samples
from tests.lab.samples import DEVICE, files, sample, save_all


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    one = sample(data={"graphs": [1, 2], "said": "é µ"}, points=(samples.point(), samples.point({"size": 1}, None)))
    trace = samples.trace_json()
    save_all(tmp_path, one, trace=trace)
    assert samples.untied(load_recording(tmp_path, DEVICE, "mlp/eager")) == one
    assert to_builtins(load_trace(tmp_path, DEVICE, "mlp/eager")) == to_builtins(read_trace(trace))
    assert sorted(files(tmp_path)) == [f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"]


def test_the_same_recording_is_the_same_bytes(tmp_path: Path) -> None:
    one = sample()
    save_all(tmp_path / "a", one)
    save_all(tmp_path / "b", sample(data=dict(reversed(one.data.items()))))
    assert files(tmp_path / "a") == files(tmp_path / "b")
    text = files(tmp_path / "a")[f"{DEVICE}/mlp/eager.json"].decode()
    assert text.startswith('{\n "schema": 2,\n "chapter": "mlp",\n')
    assert text.endswith("}\n")


def test_the_order_of_keys_does_not_matter(tmp_path: Path) -> None:
    save_all(tmp_path / "a", sample(data={"a": 1, "b": {"c": 1, "d": 2}}))
    save_all(tmp_path / "b", sample(data={"b": {"d": 2, "c": 1}, "a": 1}))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_recording_names_the_digest_of_its_trace(tmp_path: Path) -> None:
    """As `sha256sum` prints it; without a trace there is none."""
    save_all(tmp_path, sample(), sample("mlp/new", has_trace=False))
    packed = files(tmp_path)[f"{DEVICE}/mlp/eager.trace.json.gz"]
    assert load_recording(tmp_path, DEVICE, "mlp/eager").trace_sha256 == hashlib.sha256(packed).hexdigest()
    assert load_recording(tmp_path, DEVICE, "mlp/new").trace_sha256 == ""


def noise(count: int) -> bytes:
    return json.dumps({"traceEvents": [], "noise": random.Random(0).randbytes(count).hex()}).encode()


def test_a_trace_above_one_megabyte_is_refused(tmp_path: Path) -> None:
    save_all(tmp_path, sample())
    before = files(tmp_path)
    message = r"^the trace of mlp/eager is 1,\d{3},\d{3} bytes and the limit is 1,000,000: profile fewer steps"
    with pytest.raises(RecordingError, match=message):
        save_all(tmp_path, sample(label="new"), trace=noise(950_000))
    assert files(tmp_path) == before
    save_all(tmp_path, sample(label="new"), trace=noise(800_000))
    assert load_recording(tmp_path, DEVICE, "mlp/eager").label == "new"


def test_a_real_full_disk_loses_nothing(tmp_path: Path) -> None:
    """In a process whose files may have 700 bytes at most: the trace fits, the JSON does not."""
    resource = pytest.importorskip("resource")
    save_all(tmp_path, sample(), trace=b'{"traceEvents": []}')
    was = files(tmp_path)
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom tests.lab import samples\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))\n"
        "samples.save_all(Path(sys.argv[1]), samples.sample(label='new'), trace=b'{\"traceEvents\": [ ]}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resource is not None
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert files(tmp_path) == was


def test_a_read_only_place_loses_nothing(tmp_path: Path) -> None:
    """A file where the folder should be: to root, a folder without write permission is no obstacle."""
    (tmp_path / DEVICE).mkdir()
    (tmp_path / DEVICE / "mlp").write_text("in the way")
    with pytest.raises(OSError, match="mlp"):
        save_all(tmp_path, sample())
    assert files(tmp_path) == {f"{DEVICE}/mlp": b"in the way"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into any folder")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    save_all(tmp_path, sample())
    was = files(tmp_path)
    folder = chapter_folder(tmp_path, DEVICE, "mlp")
    folder.chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            save_all(tmp_path, sample(label="new"))
    finally:
        folder.chmod(0o755)
    assert files(tmp_path) == was


def test_an_interruption_while_writing_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_all(tmp_path, sample())
    was = files(tmp_path)

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_all(tmp_path, sample(label="new"))
    assert files(tmp_path) == was


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_leaves_a_recording_that_is_whole_or_damaged(tmp_path: Path, number: signal.Signals) -> None:
    """A trace beside a JSON that doesn't name it is never read."""
    code = (
        "import itertools, sys\nfrom pathlib import Path\nfrom tests.lab import samples\n"
        "for label in itertools.cycle(['old', 'new']):\n"
        "    trace = samples.trace_json(name=label)\n"
        "    samples.save_all(Path(sys.argv[1]), samples.sample(label=label), trace=trace)\n"
        "    print(label, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-B", "-c", code, str(tmp_path)], cwd=PROJECT, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(number)
    label = load_recording(tmp_path, DEVICE, "mlp/eager").label
    with suppress(RecordingError):
        assert load_trace(tmp_path, DEVICE, "mlp/eager").steps[0].activities[0].name == label


@pytest.mark.parametrize("was_untied", [False, True])
def test_a_move_that_ends_between_the_two_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_untied: bool
) -> None:
    """Also if the old recording is from before recordings named their traces. Recording it again is the cure."""
    save_all(tmp_path, sample(label="old"))
    if was_untied:
        samples.untie(tmp_path / DEVICE / "mlp" / "eager.trace.json.gz")
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        if new.suffix == ".gz":
            raise OSError("power is lost")
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="power"):
        save_all(tmp_path, sample(label="new"), trace=samples.trace_json(name="new"))
    monkeypatch.undo()
    with pytest.raises(RecordingError) as raised:
        load_trace(tmp_path, DEVICE, "mlp/eager")
    assert str(raised.value) == (
        "eager.trace.json.gz is damaged: it is not the trace that eager.json was saved with; restore both with git, or "
        "on a machine with this GPU run make record CHAPTER=mlp"
    )
    save_all(tmp_path, sample(label="new"), trace=samples.trace_json(name="new"))
    assert load_trace(tmp_path, DEVICE, "mlp/eager").steps[0].activities[0].name == "new"


def test_git_ignores_what_a_killed_process_leaves() -> None:
    left = ["docs/recordings/nvidia-h200/mlp/.eager.json.7.new", "docs/labs/.mlp.ipynb.7.new"]
    done = subprocess.run(["git", "check-ignore", *left], cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.split() == left


def test_a_trace_that_is_no_longer_recorded_goes(tmp_path: Path) -> None:
    save_all(tmp_path, sample())
    save_all(tmp_path, sample(has_trace=False))
    assert sorted(files(tmp_path)) == [f"{DEVICE}/mlp/eager.json"]
