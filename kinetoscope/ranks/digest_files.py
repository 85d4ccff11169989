"""Read and write digests: one JSON file each, checked field by field, since it may come from a stranger."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from kinetoscope.files import write_output
from kinetoscope.ranks.digest import FORMAT, VERSION, Digest, digest
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.ranks.merge import merge, require_distinct
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import read_trace

LIMIT_BYTES = 1_000_000_000
"""The most bytes of a digest file: ten thousand merged ranks fit."""
_START = re.compile(rb'\s*\{\s*"format"\s*:\s*"' + FORMAT.encode())


class _Header(msgspec.Struct):
    format: str
    version: int


def write_digest(content: Digest, path: str | os.PathLike[str]) -> None:
    """Write a digest as JSON, atomically: a reader never sees half a file. Raises `CommandError` if it cannot.

    Raises `TraceError` for a digest that could not be read again, such as one with sums above the limits: then nothing
    is written.
    """
    data = msgspec.json.encode(content)
    try:
        _require_size(os.fspath(path), len(data))
        msgspec.json.decode(data, type=Digest)
    except (msgspec.DecodeError, TraceError) as error:
        raise TraceError(f"{os.fspath(path)} is not written, because it could not be read again: {error}") from error
    write_output(Path(path), data)


def read_digest(path: str | os.PathLike[str]) -> Digest:
    """Read a digest. Raises `TraceError` if the file is not a digest, is damaged, or has another version."""
    where = os.fspath(path)
    data = _content(where)
    if not _START.match(data):
        raise TraceError(f"{where}: not a digest; write one with: report TRACE --digest-only -o FILE")
    try:
        header = msgspec.json.decode(data, type=_Header)
        if (header.format, header.version) != (FORMAT, VERSION):
            raise TraceError(
                f"{where}: a digest of version {header.version}; this program reads version {VERSION}. Write it again "
                f"from the trace, with the same release on all machines"
            )
        content = msgspec.json.decode(data, type=Digest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where}: a damaged digest ({error}); write it again from the trace") from error
    if len(content.ranks) > 1:
        require_distinct(content.ranks)
    return content


def is_digest(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts like a digest; False if it is unreadable, or a pipe, which can be read only once."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return bool(_START.match(file.read(200)))
    except (OSError, ValueError):
        return False


def read_any(path: str | os.PathLike[str], rank: int | None = None) -> Digest:
    """Read a digest, or reduce a trace or the ranks of a merged file to one.

    `rank` applies if a trace does not tell its rank. Raises `TraceError`.
    """
    if is_merged(path):
        return merge(map(digest, read_ranks(path)))
    return read_digest(path) if is_digest(path) else digest(read_trace(path), rank)


def _content(where: str) -> bytes:
    try:
        with open(where, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{where}: cannot be read ({reason}); give the path of a digest") from error
    _require_size(where, len(data))
    return data


def _require_size(where: str, size_bytes: int) -> None:
    if size_bytes > LIMIT_BYTES:
        raise TraceError(f"{where}: over {LIMIT_BYTES:,} bytes; no digest is that large")
