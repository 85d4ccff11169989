"""Read Kineto JSON, plain or gzipped, into a `Trace`. An unusable file raises `TraceError`.

kineto_events.py decodes each event separately and only the fields that the lab uses: a large trace loads fast, and a
malformed event does not affect others.
"""

from __future__ import annotations

import gc
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Raw

from snippets.lab.trace.assembly import assemble
from snippets.lab.trace.events import Trace, TraceError
from snippets.lab.trace.kineto_events import TraceFile


def read_trace(source: str | os.PathLike[str] | bytes, *, limit_bytes: int = 2_000_000_000) -> Trace:
    """Read a trace from a file or from its bytes; raise `TraceError` above `limit_bytes` after decompression."""
    where = "trace" if isinstance(source, bytes) else os.fspath(source)
    with no_collection():
        return _parsed(_content(source, where, limit_bytes), where)


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the garbage collector: it would scan half a million live objects repeatedly and find no cycle."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _content(source: str | os.PathLike[str] | bytes, where: str, limit_bytes: int) -> bytes | bytearray:
    try:
        data: bytes | bytearray = source if isinstance(source, bytes) else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{where}: cannot be read ({reason}); give the path of a .json or .json.gz trace") from error
    if data[:2] == b"\x1f\x8b":
        data = _decompressed(data, where, limit_bytes)
    if len(data) > limit_bytes:
        raise TraceError(f"{where}: over {limit_bytes:,} bytes; record fewer steps")
    if not data:
        raise TraceError(f"{where}: empty; record the trace again")
    return data[3:] if data.startswith(b"\xef\xbb\xbf") else data


def _decompressed(data: bytes | bytearray, where: str, limit_bytes: int) -> bytearray:
    content = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while len(content) <= limit_bytes and (block := file.read(1 << 20)):
                content += block
    except EOFError as error:
        raise TraceError(f"{where}: the gzip stream is cut off; copy or record the trace again") from error
    except (OSError, zlib.error) as error:
        raise TraceError(f"{where}: the gzip stream is damaged ({error}); copy or record the trace again") from error
    return content


def _parsed(data: bytes | bytearray, where: str) -> Trace:
    try:
        if data[:64].lstrip()[:1] == b"[":  # Perfetto also accepts a bare list of events
            return assemble(TraceFile(msgspec.json.decode(data, type=list[Raw])))
        return assemble(msgspec.json.decode(data, type=TraceFile))
    except msgspec.ValidationError as error:
        raise TraceError(f"{where}: JSON, but not a Kineto trace ({error}); use export_chrome_trace") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            data.decode()
        except UnicodeDecodeError as not_text:
            raise TraceError(f"{where}: is not UTF-8 text ({not_text.reason}); give a .json or .json.gz") from error
        if data.lstrip()[:1] not in (b"{", b"["):
            raise TraceError(f"{where} is not a .json or .json.gz trace") from error
        raise TraceError(f"{where}: is not complete JSON ({error}); copy or record the trace again") from error
