"""The command `import`: check and unpack recordings from a machine that cannot commit."""

from __future__ import annotations

import argparse
import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import read_recorded_trace
from snippets.lab.notebooks.files import PREFIX, adopt, load_notebook, notebooks
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.recording.device import DEFAULT_DEVICE, recordings_root, slug
from snippets.lab.recording.loading import load_recording, trace_path
from snippets.lab.recording.replacing import hold_root, replace_files, signals_held
from snippets.lab.recording.saving import recording_files, trace_digest
from snippets.lab.recording.schema import RecordingError, parse_recording
from snippets.lab.tools.archive_members import LIMITS, MEMBER, ArchiveError, Limits, read_members

_DATE = "%Y-%m-%dT%H:%M:%SZ"
DESCRIPTION = """\
Check every file of an archive that `record --archive` wrote, then unpack it. A newer recording in this checkout is
kept; if any file fails a check, nothing is unpacked. All recordings are replaced together: an import that is
interrupted has replaced none, or the next command completes it.

  python -m snippets.lab import recordings.tar.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `import`."""
    parser.add_argument("archive", type=Path, metavar="FILE", help="the .tar.gz that record --archive wrote")


def command(arguments: argparse.Namespace) -> int:
    """Unpack recordings of another machine."""
    unpack_archive(recordings_root(), arguments.archive, report=print_imported)
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
    with hold_root(root):
        content, count = _packed(root, device)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return count


def _packed(root: Path, device: str) -> tuple[bytes, int]:
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
    return gzip.compress(buffer.getvalue(), mtime=0), len(files)


def unpack_archive(
    root: Path, source: Path, limits: Limits = LIMITS, report: Callable[[Imported], None] = lambda imported: None
) -> Imported:
    """Check every file of an archive, then write all but those that are here already, in the same or a newer state.

    Ctrl-C ends the check; while all are written and reported, which takes about a second, it is ignored.

    Raises `ArchiveError` for foreign names, links, damaged recordings or traces, recordings without their trace,
    notebooks that differ from this checkout's, and for a disk that is full or read-only; then nothing is unpacked.
    """
    pieces = _check(root, source, limits)
    imported = Imported()
    is_reported = False
    try:
        with ExitStack() as stack:
            with _nothing_unpacked(source):
                stack.enter_context(hold_root(root))
            stack.enter_context(signals_held())
            files: dict[Path, bytes | None] = {}
            for piece in pieces:
                fate = _fate(root, piece)
                getattr(imported, fate).append(f"{piece.device} {piece.id}")
                files |= piece.files if fate == "written" else {}
            with _nothing_unpacked(source):
                replace_files(root, files)
            report(imported)
            is_reported = True
    except KeyboardInterrupt:
        if not is_reported:
            raise
    return imported


@dataclass(frozen=True)
class _Piece:
    """A recording or a notebook of an archive, checked."""

    device: str
    id: str
    session: str
    """Empty for a notebook."""
    files: dict[Path, bytes | None]

    @property
    def size_bytes(self) -> int:
        return sum(len(content or b"") for content in self.files.values())


def _check(root: Path, source: Path, limits: Limits) -> Sequence[_Piece]:
    """Check all files of an archive; only their bytes are kept, because decoded JSON needs up to 25 times as much."""
    members = read_members(source, limits)
    pieces: list[_Piece] = []
    left = limits.archive_bytes
    for name, content in sorted(members.items()):
        device, chapter, experiment, kind = _parts(name)
        stem = f"{device}/{chapter}/{experiment}"
        with _refusing(f"{source.name}: {name}"):
            if kind == "ipynb":
                pieces.append(_filled_notebook(name, content, root.parent / "labs"))
            elif kind == "json":
                packed = members.get(f"{stem}.trace.json.gz")
                pieces.append(_checked(root, name, content, packed))
                left -= _check_trace(packed, limits) if packed is not None else 0
            elif f"{stem}.json" not in members:
                raise RecordingError("has no recording beside it")
            else:
                continue
            left -= pieces[-1].size_bytes
        if left < 0:
            raise ArchiveError(f"{source.name} is too large for recordings; nothing was unpacked")
    return pieces


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


@contextmanager
def _nothing_unpacked(source: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveError(f"{source.name}: cannot write recordings: {error}; nothing was unpacked") from error


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


def _checked(root: Path, name: str, content: bytes, packed: bytes | None) -> _Piece:
    """A recording and its compressed trace as they will be written. Raises `RecordingError`."""
    device, chapter, experiment, _ = _parts(name)
    recording = parse_recording(content, name)
    if (recording.chapter, recording.experiment, recording.has_trace) != (chapter, experiment, packed is not None):
        raise RecordingError("it does not match its name, or its trace is missing")
    if slug(recording.environment.device) != device:
        raise RecordingError(f"it was recorded on {recording.environment.device!r}")
    if packed is not None and recording.trace_sha256 not in ("", trace_digest(packed)):
        raise RecordingError("it is damaged: it was not saved with this trace; record it again")
    for problem in filter(None, map(_date_problem, (recording.session, recording.environment.date))):
        raise RecordingError(problem)
    return _Piece(device, recording.id, recording.session, recording_files(root, device, recording, packed))


def _check_trace(packed: bytes, limits: Limits) -> int:
    """Read a trace of an archive as every page will; return its decompressed size. Raises `TraceError`."""
    limit = min(limits.trace_bytes, max(limits.small_bytes, limits.ratio * len(packed)))
    read_recorded_trace(packed, limit_bytes=limit)
    inflater = zlib.decompressobj(wbits=31)
    if packed[:2] != b"\x1f\x8b":  # `read_recorded_trace` also accepts plain JSON
        raise TraceError("its trace is not compressed; record it again")
    size = len(inflater.decompress(packed, limit + 1))
    if packed[3] or not inflater.eof or inflater.unused_data:  # a file name, or several members: some browsers stop
        raise TraceError("its trace is not compressed as record does it; record it again")
    return size


def _parts(name: str) -> tuple[str, str, str, str]:
    match = MEMBER.fullmatch(name)
    assert match is not None
    device, chapter, experiment, kind = match.groups()
    return device, chapter, experiment, kind
