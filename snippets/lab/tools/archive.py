"""Recordings on their way home: a .tar.gz from a machine on which one cannot commit, checked before it is unpacked."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from pathlib import Path

from snippets.lab.notebooks.files import PREFIX, adopt, dumped, load_notebook, notebooks
from snippets.lab.recording.device import DEFAULT_DEVICE, RECORDINGS, slug
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.saving import pack_trace, save_recording, write_file
from snippets.lab.recording.schema import Recording, RecordingError, parse_recording
from snippets.lab.trace.events import TraceError
from snippets.lab.trace.kineto import read_trace

_MEMBER = re.compile(r"([a-z0-9-]+)/([a-z0-9_]+)/([a-z0-9_]+)\.(json|trace\.json\.gz|ipynb)")
_MEMBER_LIMIT_BYTES = 4_000_000
_ARCHIVE_LIMIT_BYTES = 500_000_000
_TRACE_LIMIT_BYTES = 200_000_000
"""Of a trace once decompressed."""


class ArchiveError(Exception):
    """An archive that is not one of recordings, whole and unaltered; nothing of it was unpacked."""


def pack_archive(target: Path, device: str, root: Path = RECORDINGS) -> int:
    """Pack all recordings of a device, and the labs recorded there, into `target`. Returns the file count.

    The same bytes for the same recordings.
    """
    paths = {path.relative_to(root).as_posix(): path for path in (root / device).rglob("*")}
    files = {name: path for name, path in sorted(paths.items()) if _MEMBER.fullmatch(name)}
    files |= {f"{device}/{lab.id}.ipynb": lab.path for lab in notebooks(root) if lab.device == device}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, path in files.items():
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(member, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return len(files)


def unpack_archive(source: Path, root: Path = RECORDINGS) -> tuple[list[str], list[str]]:
    """Check every file of an archive, then write those that are not older than what is here.

    Returns the ids of the recordings, device first: what was written, and what was kept because it is newer.

    Raises `ArchiveError` for foreign names, links, damaged recordings or traces, recordings without their trace, and
    labs that are not those of this checkout.
    """
    files = _read(source)
    filled: list[tuple[str, Path, bytes]] = []
    found: list[tuple[str, Recording, bytes | None]] = []
    for name, content in files.items():
        device, chapter, experiment, kind = _parts(name)
        if kind == "ipynb":
            filled.append(_lab(source, name, content, root.parent / "labs"))
            continue
        if kind != "json":
            if f"{device}/{chapter}/{experiment}.json" not in files:
                raise ArchiveError(f"{source.name}: {name} has no recording beside it; nothing was unpacked")
            continue
        found.append((device, *_checked(source, name, content, files)))
    kept = {(device, read.id) for device, read, _ in found if _is_newer_here(read, device, root)}
    written = [one for one in found if (one[0], one[1].id) not in kept]
    for device, read, trace_json in written:
        save_recording(read, trace_json, device, root)
    for _, path, content in filled:
        write_file(path, content)
    names = [*(f"{device} {read.id}" for device, read, _ in written), *(name for name, _, _ in filled)]
    return sorted(names), sorted(map(" ".join, kept))


def _is_newer_here(read: Recording, device: str, root: Path) -> bool:
    """An archive holds all recordings of its machine, among them such as that machine was given."""
    try:
        return load_recording(read.id, device, root).session > read.session
    except RecordingError:
        return False


def _lab(source: Path, name: str, content: bytes, folder: Path) -> tuple[str, Path, bytes]:
    """What is written of a lab: the outputs in the archive, in the notebook of this checkout."""
    device, _, stem, _ = _parts(name)
    if not name.startswith(f"{DEFAULT_DEVICE}/{PREFIX}"):
        raise ArchiveError(f"{source.name}: {name} is no place for a lab; nothing was unpacked")
    try:
        lab = load_notebook(folder / f"{stem}.ipynb")
        return f"{device} {lab.id}", lab.path, dumped(adopt(lab, content, device))
    except RecordingError as error:
        raise ArchiveError(f"{source.name}: {name}: {error}; nothing was unpacked") from error


def _checked(source: Path, name: str, content: bytes, files: dict[str, bytes]) -> tuple[Recording, bytes | None]:
    device, chapter, experiment, _ = _parts(name)
    try:
        read = parse_recording(content, name)
        packed = files.get(f"{device}/{chapter}/{experiment}.trace.json.gz")
        if (read.chapter, read.experiment, read.has_trace) != (chapter, experiment, packed is not None):
            raise ArchiveError(f"{source.name}: {name} is not what its name says, or its trace is missing")
        if slug(read.circumstances.device) != device:
            raise ArchiveError(f"{source.name}: {name} was recorded on {read.circumstances.device}")
        if packed is None:
            return read, None
        read_trace(packed, limit_bytes=_TRACE_LIMIT_BYTES)
        if packed[:2] != b"\x1f\x8b":  # `read` takes plain JSON as well
            raise ArchiveError(f"{source.name}: the trace of {name} is not compressed; nothing was unpacked")
        trace_json = gzip.decompress(packed)
        pack_trace(read, trace_json)  # now, so that a trace that is too large keeps the others out, too
        return read, trace_json
    except (RecordingError, TraceError) as error:
        raise ArchiveError(f"{source.name}: {name}: {error}; nothing was unpacked") from error


def _parts(name: str) -> tuple[str, str, str, str]:
    match = _MEMBER.fullmatch(name)
    assert match is not None
    device, chapter, experiment, kind = match.groups()
    return device, chapter, experiment, kind


def _read(source: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with gzip.open(source) as packed:  # to its end, where the checksum is
            content = packed.read(_ARCHIVE_LIMIT_BYTES + 1)
        if len(content) > _ARCHIVE_LIMIT_BYTES:
            raise ArchiveError(f"{source.name} is larger than recordings are; nothing was unpacked")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                if not member.isfile() or not _MEMBER.fullmatch(member.name):
                    raise ArchiveError(f"{source.name}: {member.name!r} does not belong there; nothing was unpacked")
                if member.size > _MEMBER_LIMIT_BYTES:
                    raise ArchiveError(f"{source.name}: {member.name} is too large; nothing was unpacked")
                member_file = tar.extractfile(member)
                assert member_file is not None
                files[member.name] = member_file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ArchiveError(f"{source.name} is no archive of recordings: {error}") from error
    if not files:
        raise ArchiveError(f"{source.name} holds no recordings")
    return files
