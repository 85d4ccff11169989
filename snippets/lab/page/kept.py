"""HTML stored from one build to the next, until anything changes that a page may show.

The key of a stored text is the content of all code, recordings, labs and terms, of mkdocs.yml and of the parts of a
page that other pages may show (`outline`), with the installed packages and the variables that choose recordings. It
does not include the prose of pages. At the start of each page `look` compares the time stamps of all these, and makes a
new key after a change. A process that runs older code than the code on the disk stores nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from snippets.lab import cache
from snippets.lab.recording.device import PROJECT, this_device

CODE = ("snippets", "kinetoscope")
OTHERS = ("mkdocs.yml", "docs/assets/terms.txt")
VARIABLES = ("DEVICE", "RECORDINGS", "SAMPLE")
_OUTLINE = re.compile(r"^(?:#|---|description: |.*\bshow\()")
"""Lines of a page that another page may show: headings, its description, the fences with its claims."""

Stamps = tuple[tuple[str, int, int, int], ...]
"""Of each file: path, time, bytes and inode."""


def outline(path: Path) -> str:
    """The parts of a page that other pages may read: its headings, its description and its fences; empty without a
    page."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return _outline(path, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=256)
def _outline(path: Path, mtime_ns: int, inode: int) -> str:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if _OUTLINE.match(line))


def _stamps(*tops: Path) -> Stamps:
    """The stamps of files, and of all files in folders, in order; a link counts as itself. Each page calls this
    twice."""
    found, folders = [], []
    for top in map(str, tops):
        if os.path.isdir(top):
            folders.append(top)
        elif os.path.lexists(top):
            found.append(_stamp(top, os.lstat(top)))
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    found.append(_stamp(entry.path, entry.stat(follow_symlinks=False)))
                elif entry.name != "__pycache__":
                    folders.append(entry.path)
    return tuple(sorted(found))


def _stamp(path: str, status: os.stat_result) -> tuple[str, int, int, int]:
    return path, status.st_mtime_ns, status.st_size, status.st_ino


def _code() -> Stamps:
    return _stamps(*(PROJECT / name for name in CODE))


def _data(root: Path) -> Stamps:
    devices = sorted(path.resolve() for path in root.iterdir()) if root.is_dir() else ()  # a preview links to folders
    return _stamps(*devices, root.parent / "labs", *(PROJECT / name for name in OTHERS))


_imported = _code()
"""The code that this process runs: what was on the disk when it imported this module, or since `imported_again`."""
_root = Path()
"""The recordings that the last look found."""
_seen: tuple[Stamps, Stamps] | None = None
"""Code and data at the last look."""
_content = ""
"""Hash of them; empty while the code on the disk is not the code that runs."""
_key: object = None
"""The key of what is kept now; None if nothing is."""
_new: list[tuple[object, str]] = []
"""Keys and texts made since the last look, to be stored if everything is still the same."""


def look(root: Path) -> None:
    """Start a page: renew the key and clear the build's memory if anything that pages show has changed.

    `root` is the folder of all recordings.
    """
    global _root, _seen, _content, _key
    _root, seen = root, (_code(), _data(root))
    if seen != _seen:
        cache.start_build()
        _seen, _content = seen, _hash(*seen) if seen[0] == _imported else ""
    _new.clear()
    _key = (_content, _outlines()) if _content else None


def stop() -> None:
    """End the build: nothing is stored or remembered until the next look."""
    global _seen, _content, _key
    _seen, _content, _key = None, "", None
    _new.clear()
    cache.end_build()


def imported_again() -> None:
    """Announce that the process will import the code on the disk again."""
    global _imported
    _imported = _code()


def kept(name: tuple[str, ...], make: Callable[[], str], *, start: str = "") -> str:
    """The text stored under this name and the present key, else the result of `make`.

    Only a text that begins with `start` is stored. Without an earlier `look`, nothing is stored.
    """
    if _key is None:
        return make()
    key = (_key, *name)
    text = cache.load(key)
    if text is None:
        text = make()
        if text.startswith(start):
            _new.append((key, text))
    return text


def keep() -> None:
    """End a page: store its new texts, unless anything has changed since the look."""
    if _new and _seen == (_code(), _data(_root)) and _key == (_content, _outlines()):
        for key, text in _new:
            cache.store(key, text)
    _new.clear()


def _outlines() -> str:
    paths = sorted((PROJECT / "docs").rglob("*.md"))
    return hashlib.sha256("\0".join(f"{path}\0{outline(path)}" for path in paths).encode()).hexdigest()


def _hash(*groups: Stamps) -> str:
    digest = hashlib.sha256()
    variables = [os.environ.get(name, "") for name in VARIABLES]
    digest.update(repr((sys.version, sys.platform, this_device(), _packages(), variables)).encode())
    for path, _, size, _ in (stamp for group in groups for stamp in group):
        digest.update(f"\0{path}\0{size}\0".encode("utf-8", "surrogateescape"))
        digest.update(_bytes(path))
    return digest.hexdigest()


def _bytes(path: str) -> bytes:
    """The content of a file; the target of a link. Empty for a pipe or an unreadable file."""
    try:
        if os.path.islink(path):
            return os.fsencode(os.readlink(path))
        return Path(path).read_bytes() if os.path.isfile(path) else b""
    except OSError:
        return b""


def _packages() -> list[str]:
    """The installed packages with their versions: the names of their folders of metadata."""
    folders = [folder for folder in sys.path if os.path.isdir(folder)]
    return sorted(
        {name for folder in folders for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))}
    )
