"""Whether a recording is stale: a hash of the code that it measured.

The hash covers a chapter's model, kernels and experiments, their imports from chapters, and the number `PROTOCOL` for
the measuring code. Comments, docstrings, formatting and imports of the lab do not count, so modules of the lab can
move. This module imports only the standard library, so that any Python can compute a digest.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from snippets.lab.recording.schema import Recording

PROTOCOL = 2
"""Part of every source digest: increase it when a change in snippets/lab/capture changes the measured values."""
HASHED_FILES = ("model.py", "kernels.py", "experiments.py")
SOURCES = Path(__file__).resolve().parents[2]
LAB = ("snippets.lab.", "kinetoscope.")


def is_stale(recording: Recording, sources: Path = SOURCES) -> bool:
    """Whether the code of a recording has changed since it was recorded."""
    return recording.digest != source_digest(recording.chapter, sources)


def source_digest(chapter: str, sources: Path = SOURCES) -> str:
    """Hash of the code that a chapter measures, and of `PROTOCOL`."""
    return _source_digest(chapter, sources, PROTOCOL, _stamp(sources))


def _stamp(sources: Path) -> frozenset[tuple[str, int]]:
    """Every source file of a chapter, its packages' too, or of the lab's top, and when it was written. No glob: a list
    asks 300 times."""
    found = []
    lab = str(sources / "lab")
    folders = [str(sources)]
    while folders:
        inside = folders.pop()
        with os.scandir(inside) as entries:
            for each in entries:
                if each.name.endswith(".py"):
                    found.append((each.path, each.stat().st_mtime_ns))
                elif inside != lab and each.name != "__pycache__" and each.is_dir(follow_symlinks=False):
                    folders.append(each.path)
    return frozenset(found)


@lru_cache(maxsize=64)
def _source_digest(chapter: str, sources: Path, protocol: int, stamp: frozenset[tuple[str, int]]) -> str:
    """Cached until a file of any chapter changes, because every recording needs its chapter's digest."""
    paths = measured_files(chapter, sources)
    return code_digest(
        f"protocol {protocol}", {path.relative_to(sources).as_posix(): path.read_text("utf-8") for path in paths}
    )


def measured_files(chapter: str, sources: Path = SOURCES) -> list[Path]:
    """The chapter's hashed files and the chapter files that they import, directly or indirectly, sorted."""
    files: set[Path] = set()
    waiting = [sources / chapter / name for name in HASHED_FILES]
    while waiting:
        path = waiting.pop()
        if path in files or not path.is_file():
            continue
        files.add(path)
        package = (sources.name, *path.relative_to(sources).parent.parts)
        for module in _parse(path.read_text("utf-8")).imports:
            waiting += _files(_absolute(module, package), sources)
    return sorted(files)


def code_digest(protocol: str, code: Mapping[str, str]) -> str:
    """Hash `protocol` and the sources in `code` (name -> text), without comments, docstrings and formatting.

    Every Python version returns the same hash: only node names and non-empty fields of the syntax tree count.
    """
    digest = hashlib.sha256(protocol.encode())
    for name, text in code.items():
        digest.update(f"\n{name} {_parse(text).shape}".encode())
    return digest.hexdigest()[:16]


class _Code(NamedTuple):
    """The hashed part of a file, and its imports."""

    shape: str
    imports: tuple[str, ...]
    """All imports, relative ones with their dots: `.kernels.KERNEL`, `snippets.mlp.model.GeGLU`."""


@lru_cache(maxsize=128)
def _parse(text: str) -> _Code:
    """Cached, because every recording of a chapter needs the same files."""
    tree = ast.parse(text)
    return _Code(_shape(tree), tuple(name for node in ast.walk(tree) for name in _imported(node)))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield from (f"{module}.{alias.name}" if node.module else module + alias.name for alias in node.names)


def _absolute(module: str, package: tuple[str, ...]) -> tuple[str, ...]:
    """`..mlp.model` in the package (snippets, fused_mlp) -> (snippets, mlp, model)."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    return (*package[: len(package) + 1 - level], *name.split(".")) if level else tuple(name.split("."))


def _files(name: tuple[str, ...], sources: Path) -> Iterator[Path]:
    """The chapter modules that importing a dotted name may run; its last part may be a name inside a module."""
    if name[0] == sources.name and name[1:2] != ("lab",):
        for end in range(2, len(name) + 1):
            path = sources.joinpath(*name[1:end])
            yield from (path / "__init__.py", path.with_name(f"{path.name}.py"))


def _shape(node: object) -> str:
    """A syntax tree as text, `(Name (id x))`, without positions, contexts and empty fields."""
    if isinstance(node, ast.AST):
        fields = [(name, _code(value)) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind")]
        shapes = [f"{name}={_shape(value)}" for name, value in fields if value not in (None, [])]
        return f"({' '.join([type(node).__name__, *shapes])})"
    if isinstance(node, list):
        return f"[{' '.join(_shape(item) for item in node)}]"
    return repr(node)


def _code(value: object) -> object:
    """A body without bare strings (such as docstrings) and without imports of the lab."""
    if not isinstance(value, list):
        return value
    return [item for item in value if not _is_bare_constant(item) and not _imports_lab(item)]


def _is_bare_constant(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _imports_lab(node: object) -> bool:
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return False
    return all(f"{name}.".startswith(LAB) for name in _imported(node))
