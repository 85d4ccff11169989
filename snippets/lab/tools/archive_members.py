"""Read the files of an archive that a stranger may have made: as a stream, with limits before anything is held whole.

Only what `record --archive` writes is read: one gzip member, USTAR headers, regular files. The module tarfile would
also follow sparse, pax and GNU headers, whose sizes and nesting the archive chooses; here it parses single headers.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from snippets.lab.recording.schema import JSON_LIMIT_BYTES, TRACE_JSON_LIMIT_BYTES, RecordingError

MEMBER = re.compile(r"([a-z0-9-]+)/([a-z0-9_]+)/([a-z0-9_]+)\.(json|trace\.json\.gz|ipynb)")
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """Far above our own archives, which have 300 files of 70 MB, decompressed."""

    members: int = 2_000
    member_bytes: int = JSON_LIMIT_BYTES
    trace_bytes: int = TRACE_JSON_LIMIT_BYTES
    """Decompressed."""
    archive_bytes: int = 240_000_000
    """Everything in it together, decompressed."""
    ratio: int = 100
    """Decompressed over compressed size, where it is above `small_bytes`. Recorded traces have up to 14."""
    small_bytes: int = 1_000_000


LIMITS = Limits()


class ArchiveError(RecordingError):
    """An archive has something other than intact recordings; nothing of it was unpacked."""


def read_members(source: Path, limits: Limits = LIMITS) -> dict[str, bytes]:
    """The files of an archive by name. Raises `ArchiveError`."""
    if source.exists() and not source.is_file():
        raise ArchiveError(f"cannot read {source}: not a file")
    try:
        with source.open("rb") as file:
            members = dict(_members(_Stream(source, file, limits), limits))
    except FileNotFoundError as error:
        raise ArchiveError(f"cannot read {source}: no such file") from error
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise ArchiveError(f"{source.name} is not an archive of recordings: {error}") from error
    if not members:
        raise ArchiveError(f"{source.name} contains no recordings")
    return members


class _Stream:
    """What a gzip file contains, decompressed as it is read."""

    def __init__(self, source: Path, file: BinaryIO, limits: Limits) -> None:
        self.name = source.name
        self._file = file
        self._inflater = zlib.decompressobj(wbits=31)
        self._plain = bytearray()
        self._left = min(limits.archive_bytes, max(limits.small_bytes, limits.ratio * source.stat().st_size))

    def read(self, count: int) -> bytes:
        """The next `count` bytes. Raises `EOFError` where there are fewer."""
        while len(self._plain) < count:
            if not self._more():
                raise EOFError("it is cut off")
        taken = bytes(self._plain[:count])
        del self._plain[:count]
        return taken

    def finish(self) -> None:
        """Read to the end, which checks the checksum. Raises `ValueError` for anything but padding."""
        while True:
            if self._plain.strip(b"\0"):
                raise ValueError("something follows its last file")
            self._plain.clear()
            if not self._more():
                break
        if self._inflater.unused_data or self._file.read(1):
            raise ValueError("something follows its end")

    def _more(self) -> bool:
        """Decompress a block more; False at the end. Raises `EOFError` if the file ends before."""
        while not self._inflater.eof:
            block = self._inflater.unconsumed_tail or self._file.read(_BLOCK_BYTES)
            piece = self._inflater.decompress(block, _BLOCK_BYTES)
            self._left -= len(piece)
            if self._left < 0:
                raise ArchiveError(f"{self.name} is too large for recordings; nothing was unpacked")
            if piece:
                self._plain += piece
                return True
            if not block and not self._inflater.eof:
                raise EOFError("it is cut off")
        return False


def _members(stream: _Stream, limits: Limits) -> Iterator[tuple[str, bytes]]:
    names: set[str] = set()
    while (header := stream.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        place = f"{stream.name}: {member.name!r}"
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not MEMBER.fullmatch(member.name):
            raise ArchiveError(f"{place} is not a recording; nothing was unpacked")
        if not 0 <= member.size <= limits.member_bytes:
            raise ArchiveError(f"{stream.name}: {member.name} is too large; nothing was unpacked")
        if member.name in names:
            raise ArchiveError(f"{place} is there twice; nothing was unpacked")
        names.add(member.name)
        if len(names) > limits.members:
            raise ArchiveError(f"{stream.name} has over {limits.members:,} files; nothing was unpacked")
        yield member.name, stream.read(member.size)
        stream.read(-member.size % tarfile.BLOCKSIZE)
    stream.finish()
