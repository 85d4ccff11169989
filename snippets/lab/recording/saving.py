"""Write recordings atomically: a reader never sees a partial one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import msgspec

from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.schema import TRACE_LIMIT_BYTES, Recording, RecordingError


def save_recording(root: Path, device: str, recording: Recording, trace_json: bytes | None) -> None:
    """Write a recording atomically: complete new files, then two renames.

    Raises `RecordingError` if the compressed trace is larger than `TRACE_LIMIT_BYTES`; `OSError` if the disk
    is full or read-only. Either error leaves the old recording intact.
    """
    target = chapter_folder(root, device, recording.chapter)
    packed = None if trace_json is None else pack_trace(recording, trace_json)
    target.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(recording, order="deterministic"), indent=1) + b"\n"
    trace_file, json_file = target / f"{recording.experiment}.trace.json.gz", target / f"{recording.experiment}.json"
    new_trace = None if packed is None else _write_new(trace_file, packed)
    new_json = None
    try:
        new_json = _write_new(json_file, content)
        _swap(new_trace, trace_file, new_json, json_file)
    finally:
        for left in (new_trace, new_json):
            if left is not None:
                left.unlink(missing_ok=True)


def pack_trace(recording: Recording, trace_json: bytes) -> bytes:
    """Compress a trace deterministically. Raises `RecordingError` above `TRACE_LIMIT_BYTES`."""
    packed = gzip.compress(trace_json, compresslevel=9, mtime=0)
    if len(packed) > TRACE_LIMIT_BYTES:
        raise RecordingError(
            f"the trace of {recording.id} is {len(packed):,} bytes and the limit is {TRACE_LIMIT_BYTES:,}: "
            "profile fewer steps or a smaller step"
        )
    return packed


def _swap(new_trace: Path | None, trace_file: Path, new_json: Path, json_file: Path) -> None:
    """Replace both files or neither: keep the old trace until the new JSON is in place."""
    aside = _write_new(trace_file.with_suffix(".old"), trace_file.read_bytes()) if trace_file.is_file() else None
    try:
        if new_trace is None:
            trace_file.unlink(missing_ok=True)
        else:
            os.replace(new_trace, trace_file)
        os.replace(new_json, json_file)
    except BaseException:
        if aside is None:
            trace_file.unlink(missing_ok=True)
        else:
            os.replace(aside, trace_file)
        raise
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; a full disk leaves the old file intact."""
    os.replace(_write_new(path, content), path)


def _write_new(path: Path, content: bytes) -> Path:
    """Write `content` to a temporary file beside `path`; delete that file if the disk is full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
