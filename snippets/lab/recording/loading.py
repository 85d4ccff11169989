"""Read and check recordings and their traces."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.schema import NotRecorded, Recording, RecordingError, parse_recording
from snippets.lab.trace.events import Trace
from snippets.lab.trace.kineto import read_recorded_trace


def load_recording(root: Path, device: str, experiment_id: str) -> Recording:
    """Read one recording and check every field. Raises `RecordingError`."""
    path = _paths(root, device, experiment_id)[0]
    mtime_ns = _modified_ns(path, experiment_id)
    if mtime_ns is None:
        raise NotRecorded(f"no recording {experiment_id!r} for {device}; {_cure(experiment_id)}")
    return _load(path, mtime_ns, experiment_id)


def _modified_ns(path: str, experiment_id: str) -> int | None:
    """When a file was last changed; None if there is none. Raises `RecordingError` if it is no regular file.

    A link is followed by nobody: a recording comes from a stranger, and a pipe or a device never ends.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error, _cure(experiment_id)) from error
    if not stat.S_ISREG(status.st_mode):
        raise RecordingError(f"{Path(path).name} is not a regular file; delete it, then {_cure(experiment_id)}")
    return status.st_mtime_ns


@lru_cache(maxsize=512)
def _paths(root: Path, device: str, experiment_id: str) -> tuple[str, str]:
    """The paths of a recording's JSON and trace. Cached: a build calls this 50,000 times."""
    chapter, _, name = experiment_id.partition("/")
    stem = chapter_folder(root, device, chapter) / name
    return f"{stem}.json", f"{stem}.trace.json.gz"


@lru_cache(maxsize=512)
def _load(path: str, mtime_ns: int, experiment_id: str) -> Recording:
    name, cure = Path(path).name, _cure(experiment_id)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error, cure) from error
    recording = parse_recording(content, name, cure)
    if recording.id != experiment_id:
        raise RecordingError(f"{name} is a recording of {recording.id!r}, not of {experiment_id!r}; {cure}")
    return recording


def _unreadable(path: str, error: OSError, cure: str) -> RecordingError:
    return RecordingError(f"{Path(path).name} cannot be read ({error.strerror}); let this user read it, or {cure}")


def _cure(experiment_id: str) -> str:
    return f"on a machine with this GPU run make record CHAPTER={experiment_id.partition('/')[0]}"


def trace_path(root: Path, device: str, recording: Recording) -> Path:
    """The path of a recording's compressed trace, for reading or for download."""
    return Path(_paths(root, device, recording.id)[1])


def load_trace(root: Path, device: str, experiment_id: str) -> Trace:
    """Read the trace of a recording. Raises `NotRecorded` if it has none, `RecordingError`, `TraceError`."""
    recording = load_recording(root, device, experiment_id)
    path = _paths(root, device, experiment_id)[1]
    mtime_ns = _modified_ns(path, experiment_id) if recording.has_trace else None
    if mtime_ns is not None:
        return _trace(path, mtime_ns)
    raise NotRecorded(f"{experiment_id} has no trace for {device}; make record CHAPTER={recording.chapter}")


@lru_cache(maxsize=128)
def _trace(path: str, mtime_ns: int) -> Trace:
    return read_recorded_trace(path)


def load_recordings(root: Path, device: str) -> Iterator[Recording]:
    """All recordings of a device, sorted by chapter and name."""
    for path in sorted((root / device).glob("*/*.json")):
        yield load_recording(root, device, f"{path.parent.name}/{path.stem}")
