"""The command `import`: check and unpack recordings from a machine that cannot commit."""

from __future__ import annotations

import argparse
import gzip
import io
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from snippets.lab.notebooks.files import PREFIX, adopt, load_notebook, notebooks
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.recording.device import DEFAULT_DEVICE, recordings_root, slug
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.saving import pack_trace, save_recording, write_file
from snippets.lab.recording.schema import Recording, RecordingError, parse_recording
from snippets.lab.trace.events import TraceError
from snippets.lab.trace.kineto import read_recorded_trace

_MEMBER = re.compile(r"([a-z0-9-]+)/([a-z0-9_]+)/([a-z0-9_]+)\.(json|trace\.json\.gz|ipynb)")
HELP = "unpack an archive of recordings after checking it"
DESCRIPTION = """\
Check every file of an archive that `record --archive` wrote, then unpack it. A newer recording in this checkout is
kept; if any file fails a check, nothing is unpacked.

  python -m snippets.lab import recordings.tar.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `import`."""
    parser.add_argument("archive", type=Path, metavar="FILE", help="the .tar.gz that record --archive wrote")


def command(arguments: argparse.Namespace) -> int:
    """Unpack recordings of another machine."""
    written, kept = unpack_archive(recordings_root(), arguments.archive)
    print("".join(f"{name}\n" for name in written), end="")
    if kept:
        print(f"{len(kept)} kept, because the recording here is newer: {', '.join(kept)}")
    return 0


@dataclass(frozen=True)
class Limits:
    """Sizes above those of all our recordings."""

    member_bytes: int = 4_000_000
    archive_bytes: int = 500_000_000
    """Decompressed."""
    trace_bytes: int = 200_000_000
    """Decompressed."""


LIMITS = Limits()


class ArchiveError(RecordingError):
    """An archive has something other than intact recordings; nothing of it was unpacked."""


def pack_archive(root: Path, device: str, target: Path) -> int:
    """Pack all recordings of a device, and the notebooks recorded there, into `target`. Returns the file count.

    Equal recordings give equal bytes.
    """
    paths = {path.relative_to(root).as_posix(): path for path in (root / device).rglob("*")}
    files = {name: path for name, path in sorted(paths.items()) if _MEMBER.fullmatch(name)}
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


def unpack_archive(root: Path, source: Path, limits: Limits = LIMITS) -> tuple[list[str], list[str]]:
    """Check every file of an archive, then write all but those with a newer recording here.

    Returns the ids of the recordings, device first: those written, and those kept because the one here is newer.

    Raises `ArchiveError` for foreign names, links, damaged recordings or traces, recordings without their trace, and
    notebooks that differ from this checkout's.
    """
    files = _read(source, limits)
    filled: list[tuple[str, Path, bytes]] = []
    checked: list[tuple[str, Recording, bytes | None]] = []
    for name, content in files.items():
        device, chapter, experiment, kind = _parts(name)
        if kind == "ipynb":
            filled.append(_filled_notebook(source, name, content, root.parent / "labs"))
            continue
        if kind != "json":
            if f"{device}/{chapter}/{experiment}.json" not in files:
                raise ArchiveError(f"{source.name}: {name} has no recording beside it; nothing was unpacked")
            continue
        checked.append((device, *_checked(source, name, content, files, limits)))
    kept = {(device, recording.id) for device, recording, _ in checked if _is_newer_here(root, device, recording)}
    written = [(device, recording, trace) for device, recording, trace in checked if (device, recording.id) not in kept]
    for device, recording, trace_json in written:
        save_recording(root, device, recording, trace_json)
    for _, path, content in filled:
        write_file(path, content)
    names = [*(f"{device} {recording.id}" for device, recording, _ in written), *(name for name, _, _ in filled)]
    return sorted(names), sorted(map(" ".join, kept))


def _is_newer_here(root: Path, device: str, recording: Recording) -> bool:
    """Whether the recording here is newer: an archive has all recordings of its machine, even those it cloned."""
    try:
        return load_recording(root, device, recording.id).session > recording.session
    except RecordingError:
        return False


def _filled_notebook(source: Path, name: str, content: bytes, folder: Path) -> tuple[str, Path, bytes]:
    """Id, path and content of this checkout's notebook, filled with the outputs from the archive."""
    device, _, stem, _ = _parts(name)
    if not name.startswith(f"{DEFAULT_DEVICE}/{PREFIX}"):
        raise ArchiveError(
            f"{source.name}: {name}: notebooks are recorded for {DEFAULT_DEVICE} only; nothing was unpacked"
        )
    try:
        notebook = load_notebook(folder / f"{stem}.ipynb")
        return f"{device} {notebook.id}", notebook.path, dumped(adopt(notebook, content, device))
    except RecordingError as error:
        raise ArchiveError(f"{source.name}: {name}: {error}; nothing was unpacked") from error


def _checked(
    source: Path, name: str, content: bytes, files: dict[str, bytes], limits: Limits
) -> tuple[Recording, bytes | None]:
    """A recording and its trace as JSON. Raises `ArchiveError`."""
    device, chapter, experiment, _ = _parts(name)
    try:
        recording = parse_recording(content, name)
    except RecordingError as error:
        raise ArchiveError(f"{source.name}: {name}: {error}; nothing was unpacked") from error
    packed = files.get(f"{device}/{chapter}/{experiment}.trace.json.gz")
    if (recording.chapter, recording.experiment, recording.has_trace) != (chapter, experiment, packed is not None):
        raise ArchiveError(f"{source.name}: {name} does not match its name, or its trace is missing")
    if slug(recording.environment.device) != device:
        raise ArchiveError(f"{source.name}: {name} was recorded on {recording.environment.device}")
    if packed is None:
        return recording, None
    try:
        read_recorded_trace(packed, limit_bytes=limits.trace_bytes)
    except TraceError as error:
        raise ArchiveError(f"{source.name}: {name}: {error}; nothing was unpacked") from error
    if packed[:2] != b"\x1f\x8b":  # `read_recorded_trace` also accepts plain JSON
        raise ArchiveError(f"{source.name}: the trace of {name} is not compressed; nothing was unpacked")
    trace_json = gzip.decompress(packed)
    try:
        pack_trace(recording, trace_json)  # checks the size before anything is written
    except RecordingError as error:
        raise ArchiveError(f"{source.name}: {name}: {error}; nothing was unpacked") from error
    return recording, trace_json


def _parts(name: str) -> tuple[str, str, str, str]:
    match = _MEMBER.fullmatch(name)
    assert match is not None
    device, chapter, experiment, kind = match.groups()
    return device, chapter, experiment, kind


def _read(source: Path, limits: Limits) -> dict[str, bytes]:
    """The files of an archive by name. Raises `ArchiveError`."""
    files: dict[str, bytes] = {}
    try:
        with gzip.open(source) as packed:  # to the end, which checks the checksum
            content = packed.read(limits.archive_bytes + 1)
        if len(content) > limits.archive_bytes:
            raise ArchiveError(f"{source.name} is too large for recordings; nothing was unpacked")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                if not member.isfile() or not _MEMBER.fullmatch(member.name):
                    raise ArchiveError(f"{source.name}: {member.name!r} is not a recording; nothing was unpacked")
                if member.size > limits.member_bytes:
                    raise ArchiveError(f"{source.name}: {member.name} is too large; nothing was unpacked")
                member_file = tar.extractfile(member)
                assert member_file is not None
                files[member.name] = member_file.read()
    except FileNotFoundError as error:
        raise ArchiveError(f"cannot read {source}: no such file") from error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ArchiveError(f"{source.name} is not an archive of recordings: {error}") from error
    if not files:
        raise ArchiveError(f"{source.name} contains no recordings")
    return files
