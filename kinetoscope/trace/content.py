"""The content of a trace file, a block at a time: plain or gzip, UTF-8 or UTF-16, from a file, a pipe or bytes.

Reading stops at the limit, and where gzip text is much longer than its file: neither `/dev/zero` nor a small gzip bomb
can fill the memory.
"""

from __future__ import annotations

import codecs
import os
import select
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Protocol

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.progress import Progress

NOT_WRITTEN = (
    ". If the profiler wrote none, its schedule never came to its active steps: call profiler.step() in each of "
    "wait + warmup + active iterations"
)
BLOCK_BYTES = 1 << 20
PIPE_WAIT_SECONDS = 10
MAX_RATIO, FREE_BYTES = 100, 4 << 20
"""The text of a gzip file may be so many times as long as the file, and the first 4 MB may be of any ratio. Traces of
the PyTorch profiler have 8 to 32 (ours and public ones), an indented one of a kernel in a loop 54; one event repeated
without a change reaches 350."""
_BOM = b"\xef\xbb\xbf"
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"{\0": "utf-16-le", b"[\0": "utf-16-le",
           b"\0{": "utf-16-be", b"\0[": "utf-16-be"}  # fmt: skip


class Opened(Protocol):
    """An open file with its name."""

    @property
    def name(self) -> str:
        """Its path."""

    def read(self, size: int, /) -> bytes:
        """Read at most `size` bytes; none at the end."""

    def fileno(self) -> int:
        """The descriptor."""


Source = str | os.PathLike[str] | bytes | Opened
"""The path of a trace, its content, or an open file."""


def source_name(source: Source) -> str:
    """The name of a source in messages."""
    if isinstance(source, bytes):
        return "trace"
    return os.fspath(source) if isinstance(source, str | os.PathLike) else source.name


class Content:
    """Yields the text of a trace as UTF-8 without byte order marks; raises `TraceError`."""

    def __init__(self, source: Source, limit_bytes: int, progress: Progress) -> None:
        self.where = source_name(source)
        self.is_cut = False
        """Whether a gzip stream ended in the middle."""
        self._source, self._limit_bytes, self._progress = source, limit_bytes, progress

    def blocks(self) -> Iterator[bytes]:
        """The content in blocks, never an empty one."""
        total = 0
        for block in self._without_mark(self._utf_8(self._plain(self._stored()))):
            total += len(block)
            if total > self._limit_bytes:
                raise TraceError(f"{self.where}: over {self._limit_bytes:,} bytes; record fewer steps")
            if block:
                yield block
        if not total:
            why = "the gzip stream is cut off; copy or record" if self.is_cut else "empty; record"
            raise TraceError(f"{self.where}: {why} the trace again")

    def _stored(self) -> Iterator[bytes]:
        if isinstance(self._source, bytes):
            for start in range(0, len(self._source), BLOCK_BYTES):
                yield self._source[start : start + BLOCK_BYTES]
            return
        try:
            with open_source(self._source) as file:
                size = os.fstat(file.fileno()).st_size
                read = 0
                while block := file.read(BLOCK_BYTES):
                    read += len(block)
                    self._progress.read(read, size)
                    yield block
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            cure = NOT_WRITTEN if isinstance(error, FileNotFoundError) else ""
            raise TraceError(
                f"{self.where}: cannot be read ({reason}); give the path of a .json or .json.gz trace{cure}"
            ) from error

    def _plain(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Decompress content that begins like gzip; a truncated stream ends early."""
        first = next(blocks, b"")
        if first[:2] != b"\x1f\x8b":
            yield first
            yield from blocks
            return
        inflater = zlib.decompressobj(wbits=31)
        stored = inflated = 0
        try:
            for block in chain([first], blocks):
                stored += len(block)
                while block:
                    if inflater.eof:
                        block = block.lstrip(b"\0")  # padding between the members of a file
                        if not block:
                            break
                        inflater = zlib.decompressobj(wbits=31)
                    text = inflater.decompress(block, BLOCK_BYTES)
                    inflated += len(text)
                    if inflated > FREE_BYTES + MAX_RATIO * stored:
                        raise self._bomb()
                    yield text
                    block = inflater.unused_data or inflater.unconsumed_tail
            yield inflater.flush()
        except zlib.error as error:
            raise TraceError(
                f"{self.where}: the gzip stream is damaged ({error}); copy or record the trace again"
            ) from error
        self.is_cut = not inflater.eof

    def _bomb(self) -> TraceError:
        return TraceError(
            f"{self.where}: its text is over {MAX_RATIO} times as long as the gzip file, as no honest trace is; "
            "if you trust the file, unpack it with gunzip and give the .json"
        )

    def _utf_8(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, b"")
        encoding = _UTF_16.get(first[:2])
        if encoding is None:
            yield first
            yield from blocks
            return
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(first).encode()
        for block in blocks:
            yield decoder.decode(block).encode()

    def _without_mark(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, b"")
        while first.startswith(_BOM):  # two, where a program added its own
            first = first[len(_BOM) :]
        yield first
        yield from blocks


def open_source(path: str | os.PathLike[str] | Opened) -> AbstractContextManager[Opened]:
    """Open a file for reading. A pipe without a writer raises `OSError` instead of waiting forever."""
    if not isinstance(path, str | os.PathLike):
        return nullcontext(path)
    if sys.platform == "win32" or not stat.S_ISFIFO(os.stat(path).st_mode):  # there, no file is a pipe
        return open(path, "rb")
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not select.select([file], [], [], PIPE_WAIT_SECONDS)[0]:
        file.close()
        raise OSError(f"nothing came out of this pipe in {PIPE_WAIT_SECONDS} s")
    os.set_blocking(file.fileno(), True)
    return file
