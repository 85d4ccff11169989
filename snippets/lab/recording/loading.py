"""Recordings and their traces, read and checked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.schema import NotRecorded, Recording, RecordingError, parse_recording
from snippets.lab.trace.events import Trace
from snippets.lab.trace.kineto import read_trace


def load_recording(root: Path, device: str, experiment_id: str) -> Recording:
    """Read one recording, checking every field. Raises `RecordingError`."""
    chapter, _, name = experiment_id.partition("/")
    path = chapter_folder(root, device, chapter) / f"{name}.json"
    cure = f"on a machine with this GPU run make record CHAPTER={chapter}"
    return _load(path, path.stat().st_mtime_ns if path.is_file() else None, experiment_id, device, cure)


@lru_cache(maxsize=512)
def _load(path: Path, mtime_ns: int | None, experiment_id: str, device: str, cure: str) -> Recording:
    if mtime_ns is None:
        raise NotRecorded(f"no recording {experiment_id!r} for {device}; {cure}")
    recording = parse_recording(path.read_bytes(), path.name, cure)
    if recording.id != experiment_id:
        raise RecordingError(f"{path.name} is a recording of {recording.id!r}, not of {experiment_id!r}; {cure}")
    return recording


def trace_path(root: Path, device: str, recording: Recording) -> Path:
    """The compressed trace of a recording, for reading or for download."""
    return chapter_folder(root, device, recording.chapter) / f"{recording.experiment}.trace.json.gz"


def load_trace(root: Path, device: str, experiment_id: str) -> Trace:
    """The trace of a recording. Raises `NotRecorded` where it has none, `RecordingError`, `TraceError`."""
    recording = load_recording(root, device, experiment_id)
    path = trace_path(root, device, recording)
    if not recording.has_trace or not path.is_file():
        raise NotRecorded(f"{experiment_id} has no trace for {device}; make record CHAPTER={recording.chapter}")
    return _trace(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=128)
def _trace(path: Path, mtime_ns: int) -> Trace:
    return read_trace(path)


def load_recordings(root: Path, device: str) -> Iterator[Recording]:
    """All recordings of a device, by chapter and name."""
    for path in sorted((root / device).glob("*/*.json")):
        yield load_recording(root, device, f"{path.parent.name}/{path.stem}")
