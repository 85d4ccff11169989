"""Files that are not recordings: links, pipes, other names. Nothing follows or opens them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from snippets.lab.recording.device import FOLDER

CHAPTER = re.compile(r"[a-z0-9_]+")
FILE = re.compile(r"[a-z0-9_]+\.(json|trace\.json\.gz)")


def unexpected_files(root: Path) -> Iterator[tuple[str, str]]:
    """Path below the folder of all recordings, and why it is unexpected; a folder stands for its content.

    Omits hidden files: a recorder may be writing one.
    """
    for device in _entries(root) if root.is_dir() else ():
        if reason := _reason(device) or _not_a_folder(device, FOLDER, "a device"):
            yield device.name, reason
            continue
        for chapter in _entries(device):
            name = f"{device.name}/{chapter.name}"
            if reason := _reason(chapter):
                yield name, reason
            elif chapter.is_dir():
                if reason := _not_a_folder(chapter, CHAPTER, "a chapter"):
                    yield name, reason
                else:
                    yield from ((f"{name}/{file}", reason) for file, reason in _in_chapter(chapter))
            elif chapter.name != "accepted.json":
                yield name, "not a recording"


def _in_chapter(folder: Path) -> Iterator[tuple[str, str]]:
    for file in _entries(folder):
        if reason := _reason(file):
            yield file.name, reason
        elif not (file.is_file() and FILE.fullmatch(file.name)):
            yield file.name, "not a recording"


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _reason(path: Path) -> str:
    """Why the file is not read; empty for a folder or a regular file."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "a link"
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return "not a regular file"
    return "" if os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)) else "not readable"


def _not_a_folder(path: Path, name: re.Pattern[str], what: str) -> str:
    return "" if path.is_dir() and name.fullmatch(path.name) else f"not the folder of {what}"
