"""Write files whole or not at all."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kinetoscope.terminal import CommandError


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically; a full disk leaves the old one intact. Raises `OSError`."""
    write_together({path: content})


def require_plain(path: Path) -> None:
    """Raise `CommandError` for a link, a pipe, a device or a folder.

    For a path that nobody named: what lies there may have come with a stranger's files.
    """
    kind = "a link" if path.is_symlink() else "" if path.is_file() or not path.exists() else "not a plain file"
    if kind:
        raise CommandError(f"{path} is {kind}, and nobody named it; delete it, or name a file with -o")


def write_output(path: Path, content: bytes, is_named: bool = True) -> None:
    """Replace a file, or write into a pipe or device. Raises `CommandError`; a full disk leaves the old file.

    Of a path that nobody named, only a plain file is replaced.
    """
    if not is_named:
        require_plain(path)
    try:
        if not is_named:
            write_whole(path, content)
        elif path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            write_whole(path.resolve(), content)  # of a link, the file that it leads to
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot write {path} ({reason}); choose another file with -o") from error


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces `path` atomically at the end; an error or Ctrl-C leaves `path` as it was.

    Raises `CommandError` if it cannot be written, or if `path` is a pipe or a device.
    """
    if path.exists() and not path.is_file():
        raise CommandError(f"{path} is not a plain file; name another file with -o")
    target = path.resolve()  # of a link, the file that it leads to
    new = _temporary(target)
    try:
        new.unlink(missing_ok=True)
        with new.open("xb") as file:  # a link that somebody left there is not followed
            yield file
            file.flush()
            os.fsync(file.fileno())
        with _signals_held():
            os.replace(new, target)
    except OSError as error:
        raise CommandError(f"cannot write {path} ({error.strerror or error}); choose another file with -o") from error
    finally:
        new.unlink(missing_ok=True)


def write_together(files: Mapping[Path, bytes | None]) -> None:
    """Replace files in this order, each atomically, or delete those without content. Raises `OSError`.

    Every new file is written before the first is moved into its place: a full disk or Ctrl-C leaves all of them as they
    were. While they are moved, Ctrl-C waits; a process that is killed then has moved only the first ones.
    """
    new = {path: _temporary(path) for path in files}
    try:
        for path, content in files.items():
            if content is not None:
                new[path].unlink(missing_ok=True)
                with new[path].open("xb") as file:  # a link that somebody left there is not followed
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        with _signals_held():
            for path, content in files.items():
                if content is None:
                    path.unlink(missing_ok=True)
                else:
                    os.replace(new[path], path)
    finally:
        for temporary in new.values():
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.{os.getpid()}.new")


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back. Python runs their handlers in the main thread only."""
    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {each: signal.signal(each, lambda number, _: held.append(number)) for each in numbers}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)
        for number in held:
            signal.raise_signal(number)
