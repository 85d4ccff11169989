"""One recorder per GPU, and no other program on it; the holders here are real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snippets.lab.capture.gpu import Gpu, open_gpu, open_gpus
from snippets.lab.capture.lock import (
    NO_NVML,
    POLL_S,
    GpuInUse,
    hold_lock,
    lock_file,
    require_alone,
    reserve_gpu,
)
from snippets.lab.recording.device import PROJECT
from tests.lab.capture.nvml import Card, FakeNvml

HOLD = """
import sys
from pathlib import Path
from snippets.lab.capture.lock import hold_lock
with hold_lock(Path({path!r}), wait=False):
    print("held", flush=True)
    sys.stdin.readline()
"""


class TestLock:
    def test_a_second_recorder_is_refused(self, tmp_path: Path) -> None:
        lock = tmp_path / "lock"
        with hold_lock(lock, wait=False):
            with pytest.raises(GpuInUse) as refused, hold_lock(lock, wait=False):
                pass
            taken = f"another recorder has this GPU (fuser -v {lock} names it)"
            assert str(refused.value) == f"{taken}; wait for it with --wait (make record WAIT=1), or end it"
        with hold_lock(lock, wait=False):
            pass

    def test_a_death_of_any_kind_releases_it(self, tmp_path: Path) -> None:
        """A real process, killed."""
        command = [sys.executable, "-c", HOLD.format(path=str(tmp_path / "lock"))]
        with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(GpuInUse), hold_lock(tmp_path / "lock", wait=False):
                pass
            holder.kill()
            holder.wait()
            with hold_lock(tmp_path / "lock", wait=False):
                pass

    def test_waiting_says_so_once_and_ends_with_the_holder(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        got = threading.Event()

        def second() -> None:
            with hold_lock(tmp_path / "lock", wait=True):
                got.set()

        waiting = threading.Thread(target=second)
        with hold_lock(tmp_path / "lock", wait=False):
            waiting.start()
            assert not got.wait(0.3)
        assert got.wait(30)
        waiting.join()
        assert re.fullmatch(
            r"waiting: another recorder has this GPU .*; Ctrl-C stops waiting\n", capsys.readouterr().out
        )

    def test_what_a_process_starts_does_not_hold_it(self, tmp_path: Path) -> None:
        with hold_lock(tmp_path / "lock", wait=False):
            child = subprocess.Popen(["sleep", "60"])
        try:
            with hold_lock(tmp_path / "lock", wait=False):
                pass
        finally:
            child.kill()
            child.wait()

    def test_it_is_everybodys_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            with hold_lock(tmp_path / "lock", wait=False):
                assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o666
        finally:
            os.umask(before)

    def test_a_file_that_cannot_be_opened(self, tmp_path: Path) -> None:
        (tmp_path / "lock").mkdir()
        with pytest.raises(GpuInUse, match=r"^cannot open the lock .*; remove it, or set TMPDIR$"):
            hold_lock(tmp_path / "lock", wait=False).__enter__()

    def test_a_file_for_each_gpu(self, tmp_path: Path) -> None:
        gpus = [open_gpu(FakeNvml(Card("GPU-a1"), Card("GPU-b2")), visible, str) for visible in ("0", "1")]
        names = [lock_file(gpu, tmp_path).name for gpu in (*gpus, Gpu())]
        assert names == [f"profiling-pytorch-{uuid}.lock" for uuid in ("GPU-a1", "GPU-b2", "gpu")]


def used_by(**programs: int) -> tuple[Card, Gpu]:
    card = Card("GPU-a1", {"Compute": list(programs.values())})
    return card, open_gpu(FakeNvml(card, names={pid: name for name, pid in programs.items()}), "0", str)


class TestAlone:
    def test_others_are_refused_with_their_names_and_the_cures(self) -> None:
        _, gpu = used_by(python3=42, Xorg=7)
        with pytest.raises(GpuInUse) as refused:
            require_alone(gpu, wait=False, shared=False)
        assert str(refused.value) == (
            "Xorg (pid 7), python3 (pid 42) use this GPU, and times of a shared GPU are wrong. End it, choose another "
            "GPU with CUDA_VISIBLE_DEVICES, wait with --wait (make record WAIT=1), or record what every page will call "
            "disturbed with --shared (make record SHARED=1)"
        )

    def test_one_other(self) -> None:
        with pytest.raises(GpuInUse, match=r"^python3 \(pid 42\) uses this GPU, "):
            require_alone(used_by(python3=42)[1], wait=False, shared=False)

    @pytest.mark.parametrize("wait", [False, True])
    def test_shared_goes_on_and_says_so(self, capsys: pytest.CaptureFixture[str], wait: bool) -> None:
        require_alone(used_by(python3=42)[1], wait, shared=True)
        expected = "shared with python3 (pid 42): every recording is marked as disturbed\n"
        assert capsys.readouterr().out == expected

    def test_waiting_for_others(self, capsys: pytest.CaptureFixture[str]) -> None:
        card, gpu = used_by(python3=42)
        slept = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                card.pids.clear()

        require_alone(gpu, wait=True, shared=False, sleep=sleep)
        assert slept == [POLL_S] * 3
        assert capsys.readouterr().out == "waiting for python3 (pid 42) on this GPU; Ctrl-C stops waiting\n"

    def test_no_other_program_uses_the_gpu(self, capsys: pytest.CaptureFixture[str]) -> None:
        for gpu in (used_by()[1], Gpu()):
            require_alone(gpu, wait=False, shared=False)
        assert capsys.readouterr().out == ""


def test_reserving_holds_the_lock_and_looks_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card, gpu = used_by(python3=42)
    with pytest.raises(GpuInUse, match="python3"), reserve_gpu(False, False, gpus=[gpu], folder=tmp_path):
        pass
    card.pids.clear()
    with reserve_gpu(False, False, gpus=[gpu], folder=tmp_path):
        with (
            pytest.raises(GpuInUse, match="another recorder has this GPU"),
            reserve_gpu(False, True, gpus=[gpu], folder=tmp_path),
        ):
            pass
        with reserve_gpu(False, False, gpus=[Gpu()], folder=tmp_path):
            pass
    assert capsys.readouterr().out == NO_NVML + "\n"


def test_several_gpus_are_locked_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = FakeNvml(Card("GPU-c3"), Card("GPU-a1"), Card("GPU-b2"))
    locked: list[str] = []

    @contextmanager
    def note(path: Path, wait: bool) -> Iterator[None]:
        locked.append(path.name)
        yield

    monkeypatch.setattr("snippets.lab.capture.lock.hold_lock", note)
    for visible in ("0,1,2", "2,1,0"):
        with reserve_gpu(False, False, gpus=open_gpus(3, cards, visible), folder=tmp_path):
            pass
    assert locked == [f"profiling-pytorch-GPU-{name}.lock" for name in ("a1", "b2", "c3")] * 2


def test_others_on_one_of_several_gpus_are_refused(tmp_path: Path) -> None:
    cards = FakeNvml(Card("GPU-a1"), Card("GPU-b2", {"Compute": [42]}), names={42: "python3"})
    with (
        pytest.raises(GpuInUse, match=r"^python3 \(pid 42\) uses this GPU"),
        reserve_gpu(False, False, gpus=open_gpus(2, cards, "0,1"), folder=tmp_path),
    ):
        pass
    with reserve_gpu(False, False, gpus=open_gpus(1, cards, "0"), folder=tmp_path):
        pass


def test_without_nvml_there_is_one_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reserve_gpu(False, False, gpus=open_gpus(2, FakeNvml(fails=True), "0,1"), folder=tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["profiling-pytorch-gpu.lock"]
    assert capsys.readouterr().out == NO_NVML + "\n"
