"""Compute once: what a build reads and judges, and slow text in .cache/lab, keyed by its inputs.

The key must include every input, also the code (`code_key`). Deleting the folder only costs time. Imports nothing from
the lab.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

PROJECT = Path(__file__).resolve().parents[2]
MAX_FILES = 8000
"""Above this number, the least recently used files are deleted: four builds of the book."""
PRUNE_EVERY = 500
"""A process prunes at its first new file, and after so many more."""
_stored = itertools.count()


def cached(key: object, make: Callable[[], str]) -> str:
    """Return the text of a key, whose `repr` must cover all inputs; call `make` once, or each time on a full disk."""
    text = load(key)
    if text is None:
        text = make()
        store(key, text)
    return text


def load(key: object) -> str | None:
    """The text stored under a key; None if there is none."""
    path = _path(key)
    try:
        text = path.read_bytes().decode("utf-8", "surrogatepass")
        os.utime(path)
    except OSError:
        return None
    return text


def store(key: object, text: str) -> None:
    """Store a text under a key. On a full or read-only disk nothing is stored, and the next build is slower."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}.new")
        new.write_bytes(text.encode("utf-8", "surrogatepass"))
        os.replace(new, path)
        if next(_stored) % PRUNE_EVERY == 0:
            _prune(path.parent)
    except OSError:
        pass


def _path(key: object) -> Path:
    return PROJECT / ".cache" / "lab" / hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _prune(folder: Path) -> None:
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
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


_results: dict[object, object] | None = None
"""Of the present build: a function with its arguments -> its result. None outside of builds."""


def start_build() -> None:
    """From now on `once` calls each function once: what it reads stays the same until the next start."""
    global _results
    _results = {}


def end_build() -> None:
    """From now on `once` calls each function each time."""
    global _results
    _results = None


def once(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Within a build, call a function once for the same arguments, which must be hashable; else each time."""

    @wraps(function)
    def remembered(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        if _results is None:
            return function(*args, **options)
        key = (function, args, *sorted(options.items())) if options else (function, args)
        try:
            return _results[key]  # type: ignore[return-value]
        except KeyError:
            result = _results[key] = function(*args, **options)
            return result

    return remembered
