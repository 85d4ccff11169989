"""One recorder per GPU, and no other program on it: a step takes longer on a shared GPU.

The lock is `flock` on a file in the system's temporary folder, named after the GPU's UUID. The kernel releases it when
its holder ends in any way.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from snippets.lab.capture.environment import now
from snippets.lab.capture.gpu import Gpu, open_gpu, others_by_pid
from snippets.lab.experiment import NeedsGpu

try:
    import fcntl as _fcntl
except ImportError:  # Windows
    FCNTL: ModuleType | None = None
else:
    FCNTL = _fcntl

POLL_S = 2.0
NO_LOCK = "note: this system has no fcntl, so nothing keeps a second recorder off this GPU; start only one"

NO_NVML = "note: NVML does not answer, so nobody notices other programs on this GPU, its clocks, power or throttling"


class GpuInUse(NeedsGpu):
    """Another program uses the GPU; the message names it and the cure."""


@contextmanager
def reserve_gpu(
    wait: bool,
    shared: bool,
    gpu: Gpu | None = None,
    folder: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the GPU's lock while no other program uses the GPU. Raises `GpuInUse`.

    Args:
        wait: wait for another recorder and for other programs instead of raising, and print them once.
        shared: continue with other programs on the GPU, and print them; a second recorder is still kept out.
        gpu: None for torch's GPU.
        folder: the lock's folder; None for the system's temporary folder.
        sleep: waits between two checks of the programs.
    """
    gpu = open_gpu() if gpu is None else gpu
    if not gpu:
        print(NO_NVML, flush=True)
    with hold_lock(lock_file(gpu, folder), wait):
        require_alone(gpu, wait, shared, sleep)
        yield


def lock_file(gpu: Gpu, folder: Path | None = None) -> Path:
    """The same file for all users; without NVML, one for the whole machine."""
    return (folder or Path(tempfile.gettempdir())) / f"profiling-pytorch-{gpu.uuid or 'gpu'}.lock"


@contextmanager
def hold_lock(path: Path, wait: bool, fcntl: ModuleType | None = FCNTL) -> Iterator[None]:
    """Lock a file and write pid, command and start into it. Raises `GpuInUse`, naming the holder, unless `wait`."""
    if fcntl is None:
        print(NO_LOCK, flush=True)
        yield
        return
    descriptor = _open(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            if not wait:
                raise GpuInUse(
                    f"{holder} is recording on this GPU; wait for it with --wait (make record WAIT=1), or end it"
                ) from None
            print(f"waiting for {holder}, which is recording on this GPU; Ctrl-C stops waiting", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _write(descriptor, json.dumps({"pid": os.getpid(), "program": " ".join(_program(sys.argv)), "since": now()}))
        try:
            yield
        finally:
            _write(descriptor, "")
    finally:
        os.close(descriptor)  # releases the lock; the file stays, because removing it could split the lock in two


def require_alone(gpu: Gpu, wait: bool, shared: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Return when no other program uses the GPU, or if `shared`. Raises `GpuInUse`, naming them, unless `wait`."""
    is_told = False
    while found := others_by_pid(gpu, set()):
        names = ", ".join(f"{name} (pid {pid})" for pid, name in sorted(found.items()))
        if shared:
            print(f"shared with {names}: every recording is marked as disturbed", flush=True)
            return
        if not wait:
            verb = "uses" if len(found) == 1 else "use"
            raise GpuInUse(
                f"{names} {verb} this GPU, and times of a shared GPU are wrong. End it, choose another GPU with "
                "CUDA_VISIBLE_DEVICES, wait with --wait (make record WAIT=1), or record what every page will call "
                "disturbed with --shared (make record SHARED=1)"
            )
        if not is_told:
            print(f"waiting for {names} on this GPU; Ctrl-C stops waiting", flush=True)
            is_told = True
        sleep(POLL_S)


def _open(path: Path) -> int:
    """Open or create a lock. Raises `GpuInUse`, because without its lock another recorder would go unnoticed."""
    try:
        return _opened(path)
    except OSError as error:
        raise GpuInUse(f"cannot open the lock {path} ({error.strerror}); remove it, or set TMPDIR") from error


def _opened(path: Path) -> int:
    """A descriptor of a lock that may be another user's: Linux then refuses O_CREAT in /tmp, and perhaps writing."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | flags)
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags)
    except FileExistsError:  # made by another recorder since
        return _opened(path)
    os.fchmod(descriptor, 0o666)  # whatever the umask: other users read who holds it, and hold it next
    return descriptor


def _holder(descriptor: int) -> str:
    """`pid 4321 (record mlp, since 2026-01-01T10:00:00Z)`, or the part of it that the file tells."""
    try:
        content = json.loads(os.pread(descriptor, 4096, 0))
        text = f"pid {int(content['pid'])} ({content['program']}, since {content['since']})"
        return "".join(letter for letter in text if letter.isprintable())  # any user may have written it
    except (OSError, ValueError, KeyError, TypeError):
        return "another recorder"


def _program(argv: Sequence[str]) -> list[str]:
    """The command without its folder."""
    return [Path(argv[0]).name, *argv[1:]] if argv else []


def _write(descriptor: int, content: str) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content.encode(), 0)
    except OSError:  # opened for reading only: it still locks, and names nobody
        return
