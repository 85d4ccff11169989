"""Write recordings: the JSON, which names the digest of its trace, then the trace.

A process that is killed between the two leaves an old trace beside a new JSON. Its digest differs: readers say that the
trace is damaged. In the other order, an old JSON without a digest would fit any trace.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kinetoscope.files import write_together
from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.schema import (
    JSON_LIMIT_BYTES,
    Recording,
    RecordingError,
    trace_limits_bytes,
)


def save_recording(root: Path, device: str, recording: Recording, trace_json: bytes | None) -> None:
    """Write a recording and its trace.

    Raises `RecordingError` if the trace or the JSON is too large, `OSError` if the disk is full or read-only: the old
    recording is then intact.
    """
    packed = None if trace_json is None else pack_trace(recording, trace_json)
    write_files(recording_files(root, device, recording, packed))


def write_files(files: Mapping[Path, bytes | None]) -> None:
    """Replace files of recordings and notebooks, as `write_together` does, in folders that may be new."""
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_together(files)


def pack_trace(recording: Recording, trace_json: bytes) -> bytes:
    """Compress a trace deterministically. Raises `RecordingError` above the limits."""
    _require_small(f"the trace of {recording.id}", len(trace_json), trace_limits_bytes(recording.environment.gpus)[1])
    return gzip.compress(trace_json, compresslevel=9, mtime=0)


def recording_files(root: Path, device: str, recording: Recording, packed: bytes | None) -> dict[Path, bytes | None]:
    """Path and content of a recording's JSON, then of its packed trace. Raises `RecordingError` above the limits."""
    stem = chapter_folder(root, device, recording.chapter) / recording.experiment
    tied = msgspec.structs.replace(recording, trace_sha256="" if packed is None else trace_digest(packed))
    content = msgspec.json.format(msgspec.json.encode(tied, order="deterministic"), indent=1) + b"\n"
    _require_small(f"the JSON of {recording.id}", len(content), JSON_LIMIT_BYTES)
    limit_bytes, _ = trace_limits_bytes(recording.environment.gpus)
    _require_small(f"the trace of {recording.id}", len(packed or b""), limit_bytes)
    return {Path(f"{stem}.json"): content, Path(f"{stem}.trace.json.gz"): packed}


def trace_digest(packed: bytes) -> str:
    """The digest of a trace file as published, the same as `sha256sum` prints."""
    return hashlib.sha256(packed).hexdigest()


def _require_small(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise RecordingError(
            f"{what} is {size:,} bytes and the limit is {limit:,}: profile fewer steps or a smaller step"
        )
