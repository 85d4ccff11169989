"""Read and check recordings and their traces."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from kinetoscope.ranks.joined import read_recorded_ranks
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_recorded_trace
from snippets.lab.cache import once
from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.saving import trace_digest
from snippets.lab.recording.schema import (
    NotRecorded,
    Recording,
    RecordingError,
    parse_recording,
    trace_limits_bytes,
)

Stamp = tuple[int, int]
"""Time and inode of a file. Content stays cached until another file is in its place."""


@once
def load_recording(root: Path, device: str, experiment_id: str) -> Recording:
    """Read one recording and check every field. Raises `RecordingError`."""
    path = _paths(root, device, experiment_id)[0]
    stamp = _stamp(path, experiment_id)
    if stamp is None:
        raise NotRecorded(f"no recording {experiment_id!r} for {device}; {_cure(experiment_id)}")
    return _load(path, stamp, experiment_id)


@lru_cache(maxsize=2048)
def _paths(root: Path, device: str, experiment_id: str) -> tuple[str, str]:
    """The paths of a recording's JSON and trace. Cached: a build calls this 50,000 times."""
    chapter, _, name = experiment_id.partition("/")
    stem = chapter_folder(root, device, chapter) / name
    return f"{stem}.json", f"{stem}.trace.json.gz"


def _stamp(path: str, experiment_id: str) -> Stamp | None:
    """The stamp of a file; None if it does not exist. Raises `RecordingError` if it is not a regular file.

    Links are never followed: a recording comes from a stranger, and a pipe or a device never ends.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error, _cure(experiment_id)) from error
    if not stat.S_ISREG(status.st_mode):
        raise RecordingError(f"{Path(path).name} is not a regular file; delete it, then {_cure(experiment_id)}")
    return status.st_mtime_ns, status.st_ino


@lru_cache(maxsize=2048)
def _load(path: str, stamp: Stamp, experiment_id: str) -> Recording:
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
    """Read the trace of a recording, of several ranks rank 0's. Raises as `load_ranks` does."""
    return load_ranks(root, device, experiment_id)[0]


@once
def load_ranks(root: Path, device: str, experiment_id: str) -> tuple[Trace, ...]:
    """Read the trace of each rank of a recording, one of an experiment on one GPU.

    Raises `NotRecorded` if it has none, `RecordingError`, `TraceError`.
    """
    while True:
        recording = load_recording(root, device, experiment_id)
        try:
            traces = _load_ranks(_paths(root, device, experiment_id)[1], device, recording)
        except (RecordingError, TraceError):
            if load_recording(root, device, experiment_id) is recording:
                raise
        else:
            if load_recording(root, device, experiment_id) is recording:
                return traces
        # both were replaced after the first was read


def _load_ranks(path: str, device: str, recording: Recording) -> tuple[Trace, ...]:
    stamp = _stamp(path, recording.id) if recording.has_trace else None
    if stamp is not None:
        return _ranks(path, stamp, recording.trace_sha256, recording.id, recording.environment.gpus)
    raise NotRecorded(f"{recording.id} has no trace for {device}; make record CHAPTER={recording.chapter}")


@lru_cache(maxsize=1024)  # all of several devices: a build asks for each a hundred times, device after device
def _ranks(path: str, stamp: Stamp, digest: str, experiment_id: str, gpus: int) -> tuple[Trace, ...]:
    try:
        packed = Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error, _cure(experiment_id)) from error
    if digest and trace_digest(packed) != digest:
        json_name = f"{experiment_id.partition('/')[2]}.json"
        raise RecordingError(
            f"{Path(path).name} is damaged: it is not the trace that {json_name} was saved with; restore both "
            f"with git, or {_cure(experiment_id)}"
        )
    try:
        return read_traces(packed, gpus)
    except TraceError as error:
        raise TraceError(f"{path}{str(error).removeprefix('trace')}") from error
    except RecordingError as error:
        raise RecordingError(f"{Path(path).name} {error}; {_cure(experiment_id)}") from error


def read_traces(packed: bytes, gpus: int) -> tuple[Trace, ...]:
    """The trace of each rank of a trace file. Raises `TraceError`, and `RecordingError` for other ranks."""
    _, limit_bytes = trace_limits_bytes(gpus)
    if gpus == 1:
        return (read_recorded_trace(packed, limit_bytes=limit_bytes),)
    traces = read_recorded_ranks(packed, limit_bytes=limit_bytes)
    if [trace.rank for trace in traces] != list(range(gpus)):
        raise RecordingError(f"has the traces of {len(traces)} ranks, and its recording is of {gpus} GPUs")
    return traces


def load_recordings(root: Path, device: str) -> Iterator[Recording]:
    """All recordings of a device, sorted by chapter and name."""
    for path in sorted((root / device).glob("*/*.json")):
        yield load_recording(root, device, f"{path.parent.name}/{path.stem}")
