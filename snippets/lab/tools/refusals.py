"""Experiments that a GPU refused to run, kept next to this machine's builds, so that `make docs` does not retry them.

A GPU refuses an experiment that needs another generation or more memory. A refusal holds while the chapter's code and
the versions of torch and Triton are the same; `make record` always tries again.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from kinetoscope.files import write_whole
from snippets.lab.experiment import UnknownName, find
from snippets.lab.recording.fingerprint import fingerprint

KINDS = ("NeedsGpu: ", "OutOfMemoryError: ")
"""How the cause of a refusal begins."""


def load_refusals(folder: Path, device: str) -> dict[str, str]:
    """Experiment -> its cause, for the current code and versions."""
    try:
        kept = msgspec.json.decode(_file(folder, device).read_bytes(), type=dict[str, tuple[str, str]])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {name: cause for name, (state, cause) in kept.items() if state == _state(name)}


def save_refusals(folder: Path, device: str, causes: Mapping[str, str], tried: Iterable[str]) -> None:
    """Keep the refusals among the failures, and forget those of the other tried experiments."""
    known = load_refusals(folder, device)
    now = {name: cause for name, cause in known.items() if name not in {*tried}}
    now |= {name: cause for name, cause in causes.items() if cause.startswith(KINDS)}
    if now == known:
        return
    path = _file(folder, device)
    content = msgspec.json.encode({name: (_state(name), cause) for name, cause in sorted(now.items())})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(content, indent=1))
    except OSError:
        pass  # on a full or read-only disk the next build tries again


def _file(folder: Path, device: str) -> Path:
    return folder / f"{device}.json"


def _state(experiment: str) -> str:
    """The inputs that a refusal depends on, besides the GPU."""
    try:
        code = " ".join(fingerprint(each) for each in find(experiment))
    except UnknownName:
        code = ""
    return " ".join([code, *(f"{name} {_version(name)}" for name in ("torch", "triton"))])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
