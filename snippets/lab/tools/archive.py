"""The command `import`: check and unpack recordings from a machine that cannot commit."""

from __future__ import annotations

import argparse
import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from kinetoscope.trace.events import TraceError
from snippets.lab.notebooks.files import PREFIX, adopt, load_notebook, notebooks
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.recording.device import DEFAULT_DEVICE, recordings_root, require_showable, slug
from snippets.lab.recording.loading import load_recording, read_traces, trace_path
from snippets.lab.recording.saving import recording_files, trace_digest, write_files
from snippets.lab.recording.schema import JSON_LIMIT_BYTES, RecordingError, parse_recording, trace_limits_bytes

MEMBER = re.compile(r"([a-z0-9-]+)/([a-z0-9_]+)/([a-z0-9_]+)\.(json|trace\.json\.gz|ipynb)")
MEMBERS, ARCHIVE_BYTES = 2_000, 240_000_000
"""Files, and all bytes of the archive after decompression. The archives of this book have 600 files of 70 MB."""
TRACES_BYTES = 1_000_000_000
"""All traces of an archive after decompression; the recordings of one device have 360 MB."""
_DATE = "%Y-%m-%dT%H:%M:%SZ"
DESCRIPTION = """\
Check every file of an archive that `record --archive` wrote, then unpack it. A newer recording in this checkout is
kept; if any file fails a check, nothing is unpacked. An import that was killed can be run again.

  python -m snippets.lab import recordings.tar.gz
"""


class ArchiveError(RecordingError):
    """An archive has something other than intact recordings, and nothing of it was unpacked; or the disk is full."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `import`."""
    parser.add_argument("archive", type=Path, metavar="FILE", help="the .tar.gz that record --archive wrote")


def command(arguments: argparse.Namespace) -> int:
    """Unpack recordings of another machine."""
    print_imported(unpack_archive(recordings_root(), arguments.archive))
    return 0


@dataclass
class Imported:
    """What became of the recordings and notebooks in an archive: their ids, device first."""

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """The recording here is newer."""
    unchanged: list[str] = field(default_factory=list)
    """The recording here is the same."""


def print_imported(imported: Imported) -> None:
    """Print the ids of what was replaced, and why others were not."""
    print("".join(f"{name}\n" for name in imported.written), end="", flush=True)
    if imported.unchanged:
        print(f"{len(imported.unchanged)} unchanged: the same recording is here")
    if imported.kept:
        print(f"{len(imported.kept)} kept, because the recording here is newer: {', '.join(imported.kept)}")


def pack_archive(root: Path, device: str, target: Path) -> int:
    """Pack all recordings of a device, and the notebooks recorded there, into `target`. Returns the file count.

    Equal recordings give equal bytes.
    """
    paths = {path.relative_to(root).as_posix(): path for path in (root / device).rglob("*")}
    files = {name: path for name, path in sorted(paths.items()) if MEMBER.fullmatch(name)}
    files |= {
        f"{device}/{notebook.id}.ipynb": notebook.path for notebook in notebooks(root) if notebook.device == device
    }
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


def unpack_archive(root: Path, source: Path) -> Imported:
    """Check every file of an archive, then write all but those that are here already, in the same or a newer state.

    Raises `ArchiveError` for foreign names, links, damaged recordings or traces, recordings without their trace, and
    notebooks that differ from this checkout's, for a second device and a device that pages cannot show: then nothing is
    unpacked. Also raised if the disk is full or read-only.
    """
    imported = Imported()
    files: dict[Path, bytes | None] = {}
    for piece in _check(root, source):
        fate = _fate(root, piece)
        getattr(imported, fate).append(f"{piece.device} {piece.id}")
        files |= piece.files if fate == "written" else {}
    try:
        write_files(files)
    except OSError as error:
        raise ArchiveError(f"{source.name}: cannot write recordings: {error}; then import it again") from error
    return imported


@dataclass(frozen=True)
class _Piece:
    """A recording or a notebook of an archive, checked."""

    device: str
    id: str
    session: str
    """Empty for a notebook."""
    files: dict[Path, bytes | None]


def _check(root: Path, source: Path) -> Sequence[_Piece]:
    """Check all files of an archive; only their bytes are kept, because decoded JSON needs up to 25 times as much."""
    members = _read_members(source)
    with _refusing(source.name):
        devices = {name.partition("/")[0] for name in members}
        if len(devices) > 1:
            raise RecordingError(f"it has recordings of {len(devices)} devices; an archive is of one machine")
        require_showable(root, *devices)
    pieces: list[_Piece] = []
    inflated_bytes = 0
    for name, content in sorted(members.items()):
        device, chapter, experiment, kind = _parts(name)
        stem = f"{device}/{chapter}/{experiment}"
        with _refusing(f"{source.name}: {name}"):
            if kind == "ipynb":
                pieces.append(_filled_notebook(name, content, root.parent / "labs"))
            elif kind == "json":
                packed = members.get(f"{stem}.trace.json.gz")
                piece, gpus = _checked(root, name, content, packed)
                pieces.append(piece)
                if packed is not None:
                    inflated_bytes += _inflated_bytes(packed, gpus)
                    if inflated_bytes > TRACES_BYTES:
                        raise RecordingError(
                            f"with its trace, all traces have over {TRACES_BYTES:,} bytes after decompression; "
                            "profile fewer steps or smaller steps"
                        )
                    _check_trace(packed, gpus)
            elif f"{stem}.json" not in members:
                raise RecordingError("has no recording beside it")
    return pieces


def _inflated_bytes(packed: bytes, gpus: int) -> int:
    """Bytes of a trace after decompression, up to its limit; of a damaged one, what could be read."""
    count, (_, limit_bytes) = 0, trace_limits_bytes(gpus)
    with suppress(OSError, EOFError, zlib.error), gzip.open(io.BytesIO(packed)) as file:
        while count <= limit_bytes and (block := file.read(1 << 20)):
            count += len(block)
    return count


def _read_members(source: Path) -> dict[str, bytes]:
    """The files of an archive by name. Raises `ArchiveError`."""
    if not source.is_file():
        raise ArchiveError(f"cannot read {source}: {'not a file' if source.exists() else 'no such file'}")
    members: dict[str, bytes] = {}
    try:
        with gzip.open(source) as packed:
            content = packed.read(ARCHIVE_BYTES + 1)
        if len(content) > ARCHIVE_BYTES:
            raise ValueError("it is too large")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) else None
                if file is None or not MEMBER.fullmatch(member.name):
                    raise ValueError(f"{member.name!r} is not a recording")
                if member.pax_headers or member.issparse():  # a few bytes could stand for megabytes of zeros
                    raise ValueError(f"{member.name} has more than a plain header")
                if member.name in members or not 0 <= member.size <= JSON_LIMIT_BYTES:
                    raise ValueError(f"{member.name} is too large, or there twice")
                members[member.name] = file.read()
            if content[tar.offset :].strip(b"\0"):  # where tarfile meets a damaged header it stops without a word
                raise ValueError(f"a header after {len(members)} files is damaged")
    except (tarfile.TarError, OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise ArchiveError(f"{source.name} is not an archive of recordings: {error}; nothing was unpacked") from error
    if not 0 < len(members) <= MEMBERS:
        raise ArchiveError(f"{source.name} has {len(members):,} recordings; nothing was unpacked")
    return members


@contextmanager
def _refusing(place: str) -> Iterator[None]:
    """Refuse an archive whatever the check of a file raises: a stranger may have made it."""
    try:
        yield
    except (RecordingError, TraceError) as error:
        raise ArchiveError(f"{place}: {error}; nothing was unpacked") from error
    except Exception as error:
        raise ArchiveError(
            f"{place} cannot be read ({type(error).__name__}: {error}); record it again; nothing was unpacked"
        ) from error


def _fate(root: Path, piece: _Piece) -> Literal["written", "kept", "unchanged"]:
    """What becomes of a piece: an archive has all recordings of its machine, even those it cloned."""
    if not piece.session:
        return "written"
    try:
        here = load_recording(root, piece.device, piece.id)
    except RecordingError:
        return "written"
    if here.session > piece.session and not _date_problem(here.session):
        return "kept"
    trace_file = trace_path(root, piece.device, here)
    packed = trace_file.read_bytes() if trace_file.is_file() else None
    return "unchanged" if recording_files(root, piece.device, here, packed) == piece.files else "written"


def _date_problem(text: str) -> str:
    """What is wrong with a date of a recording; empty if nothing is."""
    try:
        date = datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        date = None
    if date is None or date.strftime(_DATE) != text:
        return f"{text!r} is not a date such as 2026-10-01T12:00:00Z; record it again"
    if date > datetime.now(UTC) + timedelta(days=1):
        return f"{text} is in the future; set the clock of the machine that is wrong and record it again"
    return ""


def _filled_notebook(name: str, content: bytes, folder: Path) -> _Piece:
    """This checkout's notebook, filled with the outputs from the archive. Raises `RecordingError`."""
    device, _, stem, _ = _parts(name)
    if not name.startswith(f"{DEFAULT_DEVICE}/{PREFIX}"):
        raise RecordingError(f"notebooks are recorded for {DEFAULT_DEVICE} only")
    notebook = load_notebook(folder / f"{stem}.ipynb")
    return _Piece(device, notebook.id, "", {notebook.path: dumped(adopt(notebook, content, device))})


def _checked(root: Path, name: str, content: bytes, packed: bytes | None) -> tuple[_Piece, int]:
    """A recording and its compressed trace as they will be written, and its GPUs. Raises `RecordingError`."""
    device, chapter, experiment, _ = _parts(name)
    recording = parse_recording(content, name)
    if chapter == PREFIX.strip("/"):
        raise RecordingError(f"{chapter} is no chapter")
    if (recording.chapter, recording.experiment, recording.has_trace) != (chapter, experiment, packed is not None):
        raise RecordingError("it does not match its name, or its trace is missing")
    if slug(recording.environment.device) != device:
        raise RecordingError(f"it was recorded on {recording.environment.device!r}")
    if packed is not None and recording.trace_sha256 not in ("", trace_digest(packed)):
        raise RecordingError("it is damaged: it was not saved with this trace; record it again")
    for problem in filter(None, map(_date_problem, (recording.session, recording.environment.date))):
        raise RecordingError(problem)
    piece = _Piece(device, recording.id, recording.session, recording_files(root, device, recording, packed))
    return piece, recording.environment.gpus


def _check_trace(packed: bytes, gpus: int) -> None:
    """Read the traces of an archive's file as every page will. Raises `TraceError`, `RecordingError`."""
    read_traces(packed, gpus)
    if packed[:4] != b"\x1f\x8b\x08\0":  # plain JSON, or a file name is in its header
        raise TraceError("its trace is not compressed as record does it; record it again")


def _parts(name: str) -> tuple[str, str, str, str]:
    match = MEMBER.fullmatch(name)
    assert match is not None
    device, chapter, experiment, kind = match.groups()
    return device, chapter, experiment, kind
