"""The syntax tree of a definition as text, without comments, docstrings, formatting and imports.

A `Reference` replaces each name from outside a function, so that fingerprint.py can put the name's meaning there,
wherever it is defined. Imports only the standard library.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from snippets.lab.recording.definitions import (
    COMPREHENSIONS,
    FUNCTIONS,
    Import,
    Reference,
    bindings,
    bound_names,
    own_nodes,
)

Pieces = Iterator[str | Reference]
ANNOTATIONS = ("annotation", "returns")


@dataclass(frozen=True)
class Scope:
    """The names of a function, a class or a comprehension; None instead of a scope means the file's."""

    names: dict[str, Import | None]
    """What each is bound to, if it is imported."""
    outer: Scope | None
    is_class: bool = False
    asks_outside: frozenset[str] = field(default_factory=frozenset)
    """Names declared `global`."""

    def find(self, name: str) -> tuple[bool, Import | None]:
        """Whether a name is local, and the source of its import."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.asks_outside:
                return False, None
            if name in scope.names and (scope is self or not scope.is_class):
                return True, scope.names[name]
            scope = scope.outer
        return False, None


def code_shape(node: object, defers_annotations: bool) -> list[str | Reference]:
    """A definition, or a list of statements, as text and references.

    Args:
        node: a syntax tree, or a list of them.
        defers_annotations: whether its file imports `annotations` from `__future__`, so that annotations never run.
    """
    merged: list[str | Reference] = []
    texts: list[str] = []
    for piece in _Shape(defers_annotations).pieces(node, None):
        if isinstance(piece, str):
            texts.append(piece)
        else:
            merged += ["".join(texts), piece]
            texts = []
    return [*merged, "".join(texts)]


def plain_shape(node: object) -> str:
    """A syntax tree as text, with names unchanged: `(Name id='x')`, without positions, contexts and empty fields."""
    if isinstance(node, ast.AST):
        shapes = [f"{name}={plain_shape(value)}" for name, value in _fields(node)]
        return f"({' '.join([type(node).__name__, *shapes])})"
    if isinstance(node, list):
        return f"[{' '.join(plain_shape(item) for item in node)}]"
    return repr(node)


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """The significant fields. Fields that only newer Pythons have are empty for older code."""
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment", "type_ignores"):
            continue
        if isinstance(value, list):
            value = [item for item in value if not is_bare_constant(item)]
        if value not in (None, []):
            yield name, value


def is_bare_constant(node: object) -> bool:
    """Whether a statement is a docstring, or another expression without effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@dataclass(frozen=True)
class _Shape:
    defers_annotations: bool

    def pieces(self, node: object, scope: Scope | None, in_branch: bool = False) -> Pieces:
        match node:
            case list():
                yield "["
                for item in node:
                    if in_branch or not isinstance(item, ast.Import | ast.ImportFrom):
                        yield from self.pieces(item, scope, in_branch)
                        yield " "
                yield "]"
            case ast.Import() | ast.ImportFrom():  # in a branch: which of several is imported
                for name, target in bindings(node):
                    yield f"(import {name} "
                    yield Reference(name, (), target, is_import=True)
                    yield ")"
            case ast.Name():
                yield from _name(node.id, (), scope)
            case ast.Attribute():
                yield from self._attribute(node, scope)
            case ast.Call(func=ast.Name(id="getattr"), args=[object_, name, *_]):
                yield from self._getattr(node, object_, name, scope)
            case _ if isinstance(node, (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)):
                yield from self._scoped(node, scope)
            case ast.AST():
                branches = isinstance(node, ast.If | ast.Try | ast.TryStar | ast.ExceptHandler)
                yield from self._node(node, scope, branches)
            case _:
                yield repr(node)

    def _node(self, node: ast.AST, scope: Scope | None, in_branch: bool = False) -> Pieces:
        yield f"({type(node).__name__}"
        for name, value in _fields(node):
            yield f" {name}="
            if name in ANNOTATIONS and (self.defers_annotations or _is_local_annotation(node, scope)):
                yield plain_shape(value)
            else:
                yield from self.pieces(value, scope, in_branch)
        yield ")"

    def _attribute(self, node: ast.Attribute, scope: Scope | None) -> Pieces:
        names: list[str] = []
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            names.insert(0, base.attr)
            base = base.value
        if isinstance(base, ast.Name):
            yield from _name(base.id, tuple(names), scope)
        else:
            yield from self._node(node, scope)

    def _getattr(self, call: ast.Call, object_: ast.expr, name: ast.expr, scope: Scope | None) -> Pieces:
        """The shape of `getattr(module, f"{kind}_step")`, which refers to every attribute that matches `*_step`."""
        pattern = text_pattern(name)
        if isinstance(object_, ast.Name) and pattern not in ("", "*"):
            yield "(getattr "
            yield from _name(object_.id, (pattern,), scope)
            yield " "
            yield from self.pieces(call.args[1:], scope)
            yield ")"
        else:
            yield from self._node(call, scope)

    def _scoped(self, node: ast.AST, scope: Scope | None) -> Pieces:
        """The shape of a node with a scope of its own. Its decorators, defaults and bases belong to the surrounding
        scope."""
        inner = _inner_scope(node, scope)
        yield f"({type(node).__name__}"
        for name, value in _fields(node):
            yield f" {name}="
            if name == "returns" and self.defers_annotations:
                yield plain_shape(value)
            elif isinstance(node, COMPREHENSIONS) or name == "body":
                yield from self.pieces(value, inner)
            else:
                yield from self.pieces(value, scope)
        yield ")"


def _is_local_annotation(node: ast.AST, scope: Scope | None) -> bool:
    """Whether an annotation is inside a function, `x: int = 1`, where it never runs."""
    return isinstance(node, ast.AnnAssign) and scope is not None and not scope.is_class


def _inner_scope(node: ast.AST, outer: Scope | None) -> Scope:
    names: dict[str, Import | None] = {}
    asks_outside: set[str] = set()
    if isinstance(node, FUNCTIONS):
        given = node.args
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        names |= {one.arg: None for one in arguments if one}
    if isinstance(node, COMPREHENSIONS):
        names |= dict.fromkeys(bound_names([each.target for each in node.generators]))
    elif not isinstance(node, ast.Lambda):
        body: list[ast.stmt] = getattr(node, "body")  # noqa: B009
        names |= dict.fromkeys(bound_names(body))
        for each in own_nodes(body):
            if isinstance(each, ast.Import | ast.ImportFrom):
                names |= {name: target for name, target in bindings(each) if name != "*"}
            elif isinstance(each, ast.Global):
                asks_outside |= {*each.names}
    return Scope(names, outer, isinstance(node, ast.ClassDef), frozenset(asks_outside))


def _name(name: str, attributes: tuple[str, ...], scope: Scope | None) -> Pieces:
    is_local, imported = scope.find(name) if scope else (False, None)
    if is_local and imported is None:
        yield ".".join((f"'{name}'", *attributes))
    else:
        yield Reference(name, attributes, imported)


def text_pattern(node: ast.expr) -> str:
    """A constant text, or an f-string with `*` in place of its values; empty for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_pattern(each) if isinstance(each, ast.Constant) else "*" for each in node.values)
    return ""
