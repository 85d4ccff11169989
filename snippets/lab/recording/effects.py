"""Whether importing a file may register its function or class, for example in a list of models.

If so, it counts for every file that imports its file. Imports only the standard library, as fingerprint.py does.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from snippets.lab.recording.definitions import Definition, Reference, bound_names, own_nodes
from snippets.lab.recording.shape import code_shape

PURE = {
    *("classmethod", "property", "staticmethod", "abc.abstractmethod", "contextlib.contextmanager", "enum.unique"),
    *("dataclasses.dataclass", "functools.cache", "functools.cached_property", "functools.lru_cache"),
    *(
        "functools.total_ordering",
        "functools.partial",
        "functools.wraps",
        "typing.final",
        "typing.overload",
        "typing.runtime_checkable",
    ),
    *("torch.compile", "torch.compiler.assume_constant_result", "torch.compiler.disable", "torch.enable_grad"),
    *("torch.inference_mode", "torch.no_grad", "triton.autotune", "triton.heuristics", "triton.jit"),
    "triton.experimental.gluon.jit",
}
"""Decorators that only return what they decorate."""


class Named(Protocol):
    """The meaning of a name."""

    @property
    def text(self) -> str:
        """A foreign name, dotted."""

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The definitions that it names."""


class Names(Protocol):
    """The names of all files."""

    @property
    def homes(self) -> Mapping[Definition, Path]:
        """The file of each definition."""

    def resolve(self, reference: Reference, path: Path) -> Named:
        """The meaning of a name in a file."""


def registers(names: Names, definition: Definition) -> bool:
    """Whether a decorator, or a base with `__init_subclass__`, may register a definition, for example in a list."""
    node, path = definition.node, names.homes[definition]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if not all(_is_pure(names, each, path) for each in node.decorator_list):
        return True
    if isinstance(node, ast.ClassDef):
        for base in (one for each in node.bases for one in _named(names, each, path) if one is not definition):
            hears = isinstance(base.node, ast.ClassDef) and "__init_subclass__" in bound_names(base.node.body)
            if hears or registers(names, base):
                return True
    return False


def _named(names: Names, node: ast.expr, path: Path) -> list[Definition]:
    """The definitions that an expression names."""
    pieces = (each for each in code_shape(node, True) if isinstance(each, Reference))
    return [one for each in pieces for one in names.resolve(each, path).definitions]


def _is_pure(names: Names, decorator: ast.expr, path: Path) -> bool:
    """Whether a decorator only returns its function, or a replacement.

    A function of a chapter does so if it changes nothing outside itself and calls nothing. A decorator with arguments
    also runs the function that it returns.
    """
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    pieces = [each for each in code_shape(called, True) if isinstance(each, Reference)]
    if len(pieces) != 1:
        return False
    target = names.resolve(pieces[0], path)
    if not target.definitions:
        return target.text.lstrip(".") in PURE
    return all(
        isinstance(one.node, ast.FunctionDef)
        and _only_returns(names, one.node, names.homes[one], isinstance(decorator, ast.Call))
        for one in target.definitions
    )


def _only_returns(names: Names, function: ast.FunctionDef, path: Path, runs_result: bool) -> bool:
    for each in own_nodes(function.body):
        match each:
            case ast.Call() if not _is_pure(names, each, path):
                return False
            case ast.Global() | ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                return False
            case ast.FunctionDef() if runs_result and not _only_returns(names, each, path, False):
                return False
    return True
