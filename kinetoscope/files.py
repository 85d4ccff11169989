"""Write files whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically; a full disk leaves the old one intact. Raises `OSError`."""
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
