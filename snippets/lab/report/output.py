"""Write the file that a command was asked for: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from snippets.lab.terminal import CommandError


def write_output(path: Path, content: bytes) -> None:
    """Replace a file, or write into a pipe or device. Raises `CommandError`; a full disk leaves the old file."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)  # of a link, the file that it leads to
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot write {path} ({reason}); choose another file with -o") from error


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
