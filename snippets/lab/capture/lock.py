"""One recorder per GPU, and no other program on it: a step takes longer on a shared GPU.

The lock is on a file in the system's temporary folder, named after the GPU's UUID. The kernel releases it when its
holder ends in any way. Several GPUs are locked in the order of their UUIDs, so that no two recorders wait for each
other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from snippets.lab.capture.gpu import Gpu, open_gpus, others_by_pid
from snippets.lab.experiment import NeedsGpu

POLL_S = 2.0
NO_NVML = "note: NVML does not answer, so nobody notices other programs on this GPU, its clocks, power or throttling"


class GpuInUse(NeedsGpu):
    """Another program uses the GPU; the message names it and the cure."""


@contextmanager
def reserve_gpu(
    wait: bool,
    shared: bool,
    count: int = 1,
    gpus: Sequence[Gpu] | None = None,
    folder: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the locks of GPUs while no other program uses them. Raises `GpuInUse`.

    Args:
        wait: wait for another recorder and for other programs instead of raising, and print them once.
        shared: continue with other programs on the GPU, and print them; a second recorder is still kept out.
        count: how many GPUs, the first of CUDA_VISIBLE_DEVICES.
        gpus: the GPUs themselves; None for this machine's.
        folder: the lock's folder; None for the system's temporary folder.
        sleep: waits between two checks of the programs.
    """
    by_uuid = {gpu.uuid: gpu for gpu in (open_gpus(count) if gpus is None else gpus)}
    ordered = [by_uuid[uuid] for uuid in sorted(by_uuid)]
    if not all(ordered):
        print(NO_NVML, flush=True)
    with ExitStack() as locks:
        for gpu in ordered:
            locks.enter_context(hold_lock(lock_file(gpu, folder), wait))
        for gpu in ordered:
            require_alone(gpu, wait, shared, sleep)
        yield


def lock_file(gpu: Gpu, folder: Path | None = None) -> Path:
    """The same file for all users; without NVML, one for the whole machine."""
    return (folder or Path(tempfile.gettempdir())) / f"profiling-pytorch-{gpu.uuid or 'gpu'}.lock"


@contextmanager
def hold_lock(path: Path, wait: bool) -> Iterator[None]:
    """Lock a file. Raises `GpuInUse` if another recorder has it, unless `wait`, or if it cannot be opened."""
    lock = FileLock(path, mode=0o666)  # whatever the umask: other users hold it next
    taken = f"another recorder has this GPU (fuser -v {path} names it)"
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if not wait:
            raise GpuInUse(f"{taken}; wait for it with --wait (make record WAIT=1), or end it") from None
        print(f"waiting: {taken}; Ctrl-C stops waiting", flush=True)
        lock.acquire(poll_interval=POLL_S)
    except OSError as error:
        raise GpuInUse(f"cannot open the lock {path} ({error.strerror}); remove it, or set TMPDIR") from error
    try:
        yield
    finally:
        lock.release()


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
