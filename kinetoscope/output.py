"""Write a command's output file: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from kinetoscope.files import write_whole
from kinetoscope.terminal import CommandError


def write_output(path: Path, content: bytes) -> None:
    """Replace a file, or write into a pipe or device. Raises `CommandError`; a full disk leaves the old file."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            write_whole(path.resolve(), content)  # of a link, the file that it leads to
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot write {path} ({reason}); choose another file with -o") from error
