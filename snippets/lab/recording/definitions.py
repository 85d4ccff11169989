"""A Python file as definitions: its top-level statements, the names that each binds, and the names that each uses.

Only syntax counts; nothing is imported. fingerprint.py follows the names from file to file. Imports only the standard
library, so that any Python computes the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MUTATORS = {*("add", "append", "clear", "discard", "extend", "insert", "pop", "remove", "setdefault", "sort", "update")}
"""Methods that change nothing but the list, set or dict that they belong to."""
UNKNOWN = {*("eval", "exec", "globals", "vars", "__import__", "import_module")}
"""Functions that reach names which no syntax shows."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
COMPOUND = (ast.If, ast.Try, ast.TryStar, ast.For, ast.While, ast.With, ast.Match)


class Import(NamedTuple):
    """The target of an imported name: a module, or a name in a module. `level` counts the dots of a relative import."""

    module: str
    name: str = ""
    level: int = 0


class Reference(NamedTuple):
    """A use of a name from outside a function: `model.GeGLU` -> name `model`, attributes `("GeGLU",)`.

    A last attribute of `getattr(model, f"{kind}_step")` is a pattern: `*_step`.
    """

    name: str
    attributes: tuple[str, ...] = ()
    imported: Import | None = None
    """Of a name that the function itself imports."""
    is_import: bool = False
    """Whether it stands for an import, which uses nothing yet."""


@dataclass(frozen=True, eq=False)
class Definition:
    """A top-level statement."""

    node: ast.stmt
    names: frozenset[str]
    """The names that it binds or changes."""
    is_effect: bool
    """Whether running it may do more than bind its names. Decorators and bases are judged in reach.py."""


@dataclass(frozen=True)
class Module:
    """A file: its definitions, and the names that its imports bind."""

    definitions: list[Definition] = field(default_factory=list)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    executed: list[Import] = field(default_factory=list)
    """Everything that is imported when the file is."""
    defers_annotations: bool = False

    def binding(self, name: str) -> list[Definition]:
        """The definitions that bind or change a name, in the order of the file."""
        return [each for each in self.definitions if name in each.names]


def parse_module(text: str) -> Module:
    """The definitions of a source. Raises `SyntaxError`."""
    body = ast.parse(text).body
    module = Module(defers_annotations=any(_imports_annotations(node) for node in body))
    kept = []
    for node in body:
        if _runs_as_program(node) or _is_idle(node):
            continue
        for each in _imports_of([node]):
            if not _checks_types(node):
                module.executed.extend(imported_modules(each))
            for name, target in bindings(each):
                if name == "*":
                    module.stars.append(target)
                else:
                    module.imports.setdefault(name, []).append(target)
        if not isinstance(node, ast.Import | ast.ImportFrom) and not _checks_types(node):
            kept.append(node)
    bound = {id(node): bound_names([node]) | _globals_set(node) for node in kept}
    own = frozenset().union(*bound.values())
    for node in kept:
        changed, is_effect = _changes(node, own)
        module.definitions.append(Definition(node, frozenset(bound[id(node)] | changed), is_effect))
    return module


def bindings(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
    """Each name that an import binds, and its target."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Import(node.module or "", alias.name, node.level)
        elif alias.asname:
            yield alias.asname, Import(alias.name)
        else:
            first = alias.name.partition(".")[0]
            yield first, Import(first)


def imported_modules(node: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    """The modules that an import statement imports."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield Import(alias.name)
        else:
            yield Import(node.module or "", alias.name, node.level)


def bound_names(body: Iterable[ast.AST]) -> set[str]:
    """The names that statements bind in their own scope."""
    names: set[str] = set()
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                waiting += node.decorator_list
                continue
            case ast.Lambda():
                continue
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.Import() | ast.ImportFrom():
                names |= {name for name, _ in bindings(node)}
        if isinstance(node, COMPREHENSIONS):  # its variables are its own; `:=` binds outside of it
            waiting += [each for each in ast.walk(node) if isinstance(each, ast.NamedExpr)]
            waiting += [each.iter for each in node.generators]
            continue
        waiting += ast.iter_child_nodes(node)
    return names


def own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of statements; functions and classes count as one node each."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def _imports_of(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when statements run, except those inside functions."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr)]


def _imports_annotations(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"


def _runs_as_program(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`, which never runs on import."""
    return isinstance(node, ast.If) and ast.unparse(node.test).replace("'", '"') == '__name__ == "__main__"'


def _checks_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"


def _is_idle(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, `pass`, an assertion, or an expression without a call."""
    if isinstance(node, ast.Expr):
        return not any(isinstance(each, ast.Call) for each in ast.walk(node))
    return isinstance(node, ast.Pass | ast.Assert)


def _globals_set(node: ast.stmt) -> set[str]:
    """The names that functions declare `global` and may therefore bind when called."""
    return {name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}


def _changes(node: ast.stmt, own: frozenset[str]) -> tuple[set[str], bool]:
    """The names of this file that a statement changes in place, and whether it may have other effects."""
    changed: set[str] = set()
    is_effect = False
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            is_effect = isinstance(node, ast.ClassDef) and bool(node.keywords)
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Delete():
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in (each for one in targets for each in ast.walk(one)):
                if isinstance(target, ast.Attribute | ast.Subscript) and not isinstance(target.ctx, ast.Load):
                    root = _root(target)
                    changed |= {root} & own
                    is_effect |= root not in own
        case ast.Expr():
            changed, is_effect = _call_changes(node.value, own)
        case _ if isinstance(node, COMPOUND):
            is_effect = isinstance(node, ast.With)
            for each in _statements(node):
                if not _is_idle(each) and not isinstance(each, ast.Import | ast.ImportFrom):
                    more, does_more = _changes(each, own)
                    changed |= more
                    is_effect |= does_more
        case _:
            is_effect = not isinstance(node, ast.Raise | ast.Break | ast.Continue)
    return changed, is_effect


def _call_changes(node: ast.expr, own: frozenset[str]) -> tuple[set[str], bool]:
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in MUTATORS and _root(function) in own:
            return {_root(function)}, False
        if isinstance(function, ast.Name) and function.id in ("setattr", "delattr") and node.args:
            root = _root(node.args[0])
            return ({root}, False) if root in own else (set(), True)
    return set(), True


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            yield each
        elif isinstance(each, ast.ExceptHandler | ast.match_case):
            yield from each.body


def _root(node: ast.expr) -> str:
    """`TABLE["a"].sizes` -> `TABLE`; empty if an expression starts with anything but a name."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
