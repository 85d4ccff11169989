"""Cache slow text in .cache/lab, keyed by its inputs. Imports nothing from the lab.

The key must include every input, also the code (`code_key`). Deleting the folder only costs time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
MAX_FILES = 400
"""Above this number, the least recently used files are deleted."""


def cached(key: object, make: Callable[[], str]) -> str:
    """Return the text of a key, whose `repr` must cover all inputs; call `make` once, or each time if the disk is
    full."""
    folder = PROJECT / ".cache" / "lab"
    path = folder / hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    try:
        text = path.read_bytes().decode("utf-8", "surrogatepass")
        os.utime(path)
        return text
    except OSError:
        text = make()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_bytes(text.encode("utf-8", "surrogatepass"))
        os.replace(new, path)
        _prune(folder)
    except OSError:
        pass  # on a full or read-only disk the next build is slower
    return text


def _prune(folder: Path) -> None:
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in paths[: max(0, len(paths) - MAX_FILES)]:
        path.unlink(missing_ok=True)


@lru_cache(maxsize=64)
def code_key(*paths: Path) -> str:
    """Hash files, or the Python files in folders, as they are on disk."""
    digest = hashlib.sha256()
    for path in paths:
        for file in _files(path):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _files(path: Path) -> Iterable[Path]:
    return sorted(path.glob("*.py")) if path.is_dir() else (path,)
