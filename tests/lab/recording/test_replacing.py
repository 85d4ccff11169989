"""Several files are replaced together or not at all, however the process that replaces them ends."""

from __future__ import annotations

import errno
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.replacing import LOCK, MARK, hold_root, replace_files, signals_held
from snippets.lab.recording.schema import RecordingError
from tests.lab import samples
from tests.lab.samples import DEVICE, files, sample, save_all

CALLS = ("open", "stat", "fstat", "lstat", "scandir", "mkdir", "replace", "unlink", "fsync")


def save(root: Path, label: str) -> None:
    """A recording whose label is the name of its trace's kernel."""
    save_all(root, sample(label=label), trace=samples.trace_json(name=label))


def saved(root: Path) -> str:
    """The label of a recording that fits its trace."""
    label = load_recording(root, DEVICE, "mlp/eager").label
    step = load_trace(root, DEVICE, "mlp/eager").steps[0]
    assert step.activities[0].name == label
    return label


class Disk:
    """Counts calls of the system, and fails one of them, or all from one on."""

    def __init__(self, fail_at: int, is_broken: bool) -> None:
        self.fail_at, self.is_broken, self.calls = fail_at, is_broken, 0

    def call(self, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self.fail_at or (self.is_broken and self.calls > self.fail_at > 0):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    def close(self, descriptor: int) -> None:
        """As the system's: the descriptor is closed even if an error is returned."""
        CLOSE(descriptor)
        self.call(lambda: None)

    def through(self, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: self.call(real, *arguments, **options)

    def open(self, *arguments: Any, **options: Any) -> io.IOBase:
        """A file whose first write also counts."""
        file: Any = self.call(OPEN, *arguments, **options)
        if file.writable():
            file = DiskFile(self, file.detach())
        return file  # type: ignore[no-any-return]


class DiskFile(io.BufferedWriter):
    def __init__(self, disk: Disk, raw: Any) -> None:
        super().__init__(raw)
        self.disk = disk

    def write(self, content: Any) -> int:
        written: int = self.disk.call(super().write, content)
        return written


OPEN, CLOSE = io.open, os.close


@contextmanager
def failing(fail_at: int, is_broken: bool = False) -> Iterator[Disk]:
    disk = Disk(fail_at, is_broken)
    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, disk.through(getattr(os, name)))
        patched.setattr(io, "open", disk.open)
        patched.setattr(os, "close", disk.close)
        yield disk


@pytest.mark.parametrize("before", ["old", ""])
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_fault_at_any_call_never_leaves_a_mixed_pair(tmp_path: Path, before: str, is_broken: bool) -> None:
    """Of one call, or of all from one on; the next process finds both files as they were, or both new."""
    ends = set()
    for fail_at in range(1, 100):
        root = tmp_path / str(fail_at)
        if before:
            save(root, before)
        was = files(root)
        try:
            with failing(fail_at, is_broken) as disk:
                save(root, "new")
            error = ""
        except (OSError, RecordingError) as raised:
            error = str(raised)
        if disk.calls < fail_at:
            break
        if before or (root / DEVICE / "mlp" / "eager.json").exists() or (root / MARK).exists():
            end = saved(root)
            ends.add((end, bool(error)))
            assert error or end == "new"
        with hold_root(root):
            left = files(root)
            assert sorted(left) == [LOCK, *sorted(name for name in left if name != LOCK and "/." not in name)]
        assert files(root) == was or saved(root) == "new"
    assert fail_at > 25, "the calls are counted"
    assert ("new", False) in ends or is_broken
    assert ("old", True) in ends or not before


KILLED = """
import sys
from pathlib import Path
from tests.lab.recording.test_replacing import save
save(Path(sys.argv[1]), "old")
print("ready", flush=True)
while True:
    save(Path(sys.argv[1]), "new")
    save(Path(sys.argv[1]), "old")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_killed_leaves_a_whole_recording(tmp_path: Path, number: signal.Signals) -> None:
    chance = random.Random(number)
    for attempt in range(2):
        root = tmp_path / str(attempt)
        command = [sys.executable, "-B", "-c", KILLED, str(root)]
        with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(number)
        assert saved(root) in ("old", "new")
        save(root, "next")
        assert sorted(files(root)) == [f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"]


def interrupted(root: Path, at_rename: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a new recording; the process is killed before one of its two renames, and cleans nothing up."""
    renames = iter(range(at_rename + 1))
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        if next(renames) == at_rename:
            os._exit(9)
        real(old, new)

    child = os.fork()
    if not child:
        monkeypatch.setattr(os, "replace", replace)
        save(root, "new")
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("at_rename", [0, 1])
def test_a_reader_finishes_what_was_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_rename: int) -> None:
    save(tmp_path, "old")
    interrupted(tmp_path, at_rename, monkeypatch)
    assert f"{DEVICE}/mlp/.eager.trace.json.gz.new" in files(tmp_path)
    assert saved(tmp_path) == "new"
    assert sorted(files(tmp_path)) == [f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"]


def test_a_reader_that_cannot_finish_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, "old")
    (tmp_path / MARK).touch()
    with failing(2, is_broken=True), pytest.raises(RecordingError) as raised:
        load_recording(tmp_path, DEVICE, "mlp/eager")
    assert str(raised.value) == (
        f"{tmp_path} has recordings whose move into place was interrupted, and it cannot be finished: [Errno 28] No "
        "space left on device; run python -m snippets.lab list where this folder is writable"
    )


def test_what_was_not_marked_is_swept_by_the_next_save(tmp_path: Path) -> None:
    """Files of any earlier version of this code, too."""
    save(tmp_path, "old")
    for name in (".eager.json.new", ".eager.json.123.new", ".eager.trace.json.old.123.new", "../.accepted.json.7.new"):
        (tmp_path / DEVICE / "mlp" / name).write_text("half")
    save(tmp_path, "next")
    assert sorted(files(tmp_path)) == [f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"]


def test_git_ignores_what_an_interruption_leaves() -> None:
    left = ["nvidia-h200/mlp/.eager.json.new", "nvidia-h200/mlp/.eager.trace.json.gz.123.new", LOCK, MARK]
    paths = [*(f"docs/recordings/{name}" for name in left), "docs/labs/.mlp.ipynb.new"]
    done = subprocess.run(["git", "check-ignore", *paths], cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.split() == paths


def test_two_writers_at_once(tmp_path: Path) -> None:
    """Many rounds; a reader beside them never sees a mixed pair."""
    threads = [
        threading.Thread(target=lambda label=label: [save(tmp_path, label) for _ in range(15)]) for label in ("a", "b")
    ]
    save(tmp_path, "a")
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        trace = load_trace(tmp_path, DEVICE, "mlp/eager")
        assert trace.steps[0].activities[0].name in "ab"
    assert saved(tmp_path) in "ab"
    assert not [name for name in files(tmp_path) if "/." in name or name.startswith(".")]


def test_ctrl_c_waits_until_a_recording_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, "old")
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, "new")
    assert saved(tmp_path) == "new"


def test_signals_are_handled_as_before(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_held() as held:
        signal.raise_signal(signal.SIGTERM)
        assert held == {signal.SIGTERM}
        held.clear()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_move_that_keeps_failing_says_where_the_rest_is(tmp_path: Path) -> None:
    path = tmp_path / DEVICE / "mlp" / "eager.json"
    path.mkdir(parents=True)
    with pytest.raises(RecordingError, match=r"^saved, but not all files are in their places yet: .*list moves the"):
        replace_files(tmp_path, {path: b"{}"})
    path.rmdir()
    with hold_root(tmp_path):
        assert files(tmp_path)[f"{DEVICE}/mlp/eager.json"] == b"{}"
