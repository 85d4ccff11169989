"""Whether a recording still describes the code: a hash of what it measured."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.schema import Recording

PROTOCOL = 1
"""Part of every source digest: raise it when the capture room changes what they measure."""
HASHED_FILES = ("model.py", "kernels.py", "experiments.py")


def source_digest(chapter: str, sources: Path = PROJECT / "snippets") -> str:
    """Hash of what a chapter measures: its code without comments, docstrings and formatting, and the protocol.

    The same under every Python version: only node names and non-empty fields of the syntax tree count.
    """
    paths = [path for name in HASHED_FILES if (path := sources / chapter / name).is_file()]
    return code_digest(f"protocol {PROTOCOL}", {path.name: path.read_text("utf-8") for path in paths})


def code_digest(protocol: str, sources: Mapping[str, str]) -> str:
    """Hash of `protocol` and of the code in `sources`, by name, without comments, docstrings and formatting."""
    digest = hashlib.sha256(protocol.encode())
    for name, text in sources.items():
        digest.update(f"\n{name} {_code_shape(text)}".encode())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=64)
def _code_shape(text: str) -> str:
    """Remembered, because every recording of a chapter asks for the digest of the same files."""
    return _shape(ast.parse(text))


def _shape(node: object) -> str:
    """A syntax tree as text: (Name (id x)) with positions, contexts and empty fields left out."""
    if isinstance(node, ast.AST):
        fields = [(name, _code(value)) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind")]
        shapes = [f"{name}={_shape(value)}" for name, value in fields if value not in (None, [])]
        return f"({' '.join([type(node).__name__, *shapes])})"
    if isinstance(node, list):
        return f"[{' '.join(_shape(item) for item in node)}]"
    return repr(node)


def _code(value: object) -> object:
    """A body without bare strings: docstrings and notes."""
    if not isinstance(value, list):
        return value
    return [item for item in value if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]


def is_stale(recording: Recording) -> bool:
    """Whether the chapter's code has changed since the recording was made."""
    return recording.digest != source_digest(recording.chapter)
