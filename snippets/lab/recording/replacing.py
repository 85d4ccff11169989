"""Replace several files of the recordings together or not at all, however the process ends.

1. Under a lock, write every new file beside the old one as `.NAME.new`; an empty one deletes the old one.
2. Create the mark `.replacing` in the recordings' root: from here on, all of them count as replaced.
3. Rename each into its place, then remove the mark.

What an earlier process left is recovered by the next one that saves, imports or reads: without the mark it deletes the
new files, with it it renames the rest. No system call replaces two files, so a log of some kind is needed; one mark for
any number of files also makes an import of many recordings one step, which a digest in each JSON alone would not. The
mark is empty: the names of the new files say everything. JSON files come before their traces, so that even who reads
without this module sees the digest of a trace that is not there yet, never an old JSON without digest beside a new
trace.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from snippets.lab.recording.schema import RecordingError

try:
    import fcntl as _fcntl
except ImportError:  # Windows: nothing keeps a second writer off
    FCNTL: ModuleType | None = None
else:
    FCNTL = _fcntl

LOCK, MARK = ".lock", ".replacing"
HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def hold_root(root: Path) -> Iterator[None]:
    """Keep other writers off the recordings in `root`, and recover what an interrupted one left."""
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root / LOCK):
        _recover(root)
        try:
            yield
        finally:
            _recover(root)


def recover(root: Path) -> None:
    """Move recordings into place whose move was interrupted. Raises `RecordingError` if that fails."""
    if not os.path.lexists(f"{root}/{MARK}"):  # not pathlib: a build asks 30,000 times
        return
    try:
        with hold_root(root):
            pass
    except OSError as error:
        raise RecordingError(
            f"{root} has recordings whose move into place was interrupted, and it cannot be finished: {error}; "
            "run python -m snippets.lab list where this folder is writable"
        ) from error


def replace_files(root: Path, files: Mapping[Path, bytes | None]) -> None:
    """Replace files of the recordings or notebooks, or delete those without content; the caller holds the root.

    Raises `OSError` if the disk is full or read-only: then all files are as before. Raises `RecordingError` if only
    moving them failed: then all count as replaced, and the next command moves the rest.
    """
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.new").open("xb") as file:
            file.write(content or b"")
            file.flush()
            os.fsync(file.fileno())
    folders = {path.parent for path in files}
    _sync(folders)
    with signals_held():
        _make_mark(root)
        try:
            _finish(root)
        except OSError:
            _finish_again(root)


def write_file(root: Path, path: Path, content: bytes) -> None:
    """Replace one file that is not part of a recording: a notebook, the accepted statuses of a device."""
    with hold_root(root):
        replace_files(root, {path: content})


@contextmanager
def signals_held() -> Iterator[set[int]]:
    """Hold Ctrl-C and SIGTERM back until the end; yields those that came, which the caller may drop.

    Python runs signal handlers in the main thread: elsewhere there is nothing to hold.
    """
    held: set[int] = set()
    is_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.getsignal(each) for each in HELD_SIGNALS if is_main}
    for each in before:
        signal.signal(each, lambda number, _: held.add(number))
    try:
        yield held
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        for number in sorted(held):
            signal.raise_signal(number)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock; the kernel releases it when its holder ends, however that happens. Nothing of it stays."""
    if FCNTL is None:
        yield
        return
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            FCNTL.flock(descriptor, FCNTL.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else the holder before has removed the file: the lock is another one
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def _recover(root: Path) -> None:
    """Finish what was marked, delete what was not."""
    if os.path.lexists(root / MARK):
        _finish(root)
    else:
        for new in _new_files(root):
            new.unlink()


def _finish(root: Path) -> None:
    """Rename every new file into its place and remove the mark. Can be repeated."""
    new_files = _new_files(root)
    for new in new_files:
        path = new.with_name(new.name[1 : -len(".new")])
        if new.stat().st_size:
            os.replace(new, path)
        else:
            path.unlink(missing_ok=True)
            new.unlink()
    _sync({new.parent for new in new_files})
    (root / MARK).unlink()


def _finish_again(root: Path) -> None:
    try:
        _finish(root)
    except OSError as error:
        raise RecordingError(
            f"saved, but not all files are in their places yet: {error}; python -m snippets.lab list moves the rest"
        ) from error


def _make_mark(root: Path) -> None:
    mark = root / MARK
    try:
        mark.touch(exist_ok=False)
        _sync([root])
    except BaseException:
        mark.unlink(missing_ok=True)
        raise


def _new_files(root: Path) -> list[Path]:
    """New files of recordings and of the notebooks beside them, each JSON before its trace."""
    folders = ((root, "*/.*.new"), (root, "*/*/.*.new"), (root.parent / "labs", ".*.new"))
    return [path for folder, pattern in folders for path in sorted(folder.glob(pattern))]


def _sync(folders: Iterable[Path]) -> None:
    """Make the names in folders survive a loss of power, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
