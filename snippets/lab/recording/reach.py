"""The definitions, files and data that definitions reach: names followed from file to file, with all files imported on
the way.

A name that no syntax shows (`globals()`, `getattr(module, name)`) reaches everything that it could mean. Imports of
kinetoscope and of the lab end the search: the lab's own code is covered by `PROTOCOL` in fingerprint.py. Imports only
the standard library.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from snippets.lab.recording.definitions import (
    UNKNOWN,
    Definition,
    Import,
    Module,
    Reference,
    imported_modules,
    parse_module,
)
from snippets.lab.recording.effects import registers
from snippets.lab.recording.shape import code_shape, text_pattern

TOOL, LAB = "kinetoscope", "lab"
"""The package, and the folder beside the chapters, that no digest follows."""
WHOLE = ".*"
"""The text of a target that is a file as a value."""
FRAME_FILES = (".md",)
"""Suffixes of files in a folder that is loaded as a whole which no program loads."""


@dataclass(frozen=True, eq=False)
class Target:
    """The meaning of a reference: definitions, data files, or the dotted name of a foreign object."""

    text: str
    """As it counts: a foreign name, or what follows the name of a definition."""
    definitions: tuple[Definition, ...] = ()
    modules: tuple[Path, ...] = ()
    """The files that it imports."""


@dataclass(frozen=True, eq=False)
class Node:
    """A definition and its direct targets."""

    shape: tuple[str | Target, ...]
    beside: tuple[Definition, ...]
    """What it reaches without naming it."""
    reached: tuple[Definition, ...]
    """All definitions that it reaches directly."""
    files: tuple[Path, ...]
    """Its own file, and those that it imports."""
    data: tuple[Path, ...]
    """The files of data that it names."""


class Code:
    """The chapters below a folder. Reads each file once; make a new object to read changed files."""

    def __init__(self, sources: Path) -> None:
        self.sources = sources.resolve()
        self.homes: dict[Definition, Path] = {}
        self._modules: dict[Path, Module] = {}
        self._nodes: dict[Definition, Node] = {}
        self._imported: dict[Path, tuple[Path, ...]] = {}
        self._effects: dict[Path, tuple[Definition, ...]] = {}
        self._files_of: dict[tuple[str, ...], tuple[Path, ...]] = {}
        self._asked: set[tuple[Path, str]] = set()

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Every file of a chapter; a linked file counts once."""
        found = (path for path in self.sources.rglob("*.py") if path.relative_to(self.sources).parts[0] != LAB)
        return tuple(sorted({path.resolve() for path in found}))

    def module(self, path: Path) -> Module:
        """A file, parsed. Raises `OSError` and `SyntaxError`."""
        return self._modules.get(path) or self.add(path, path.read_text("utf-8"))

    def add(self, path: Path, text: str) -> Module:
        """Parse a text as a file. Raises `SyntaxError`."""
        self._modules[path] = module = parse_module(text)
        self._imported.pop(path, None)
        self._effects.pop(path, None)
        self.homes |= dict.fromkeys(module.definitions, path)
        return module

    def node(self, definition: Definition) -> Node:
        """A definition and its direct targets."""
        if definition not in self._nodes:
            self._nodes[definition] = self._node(definition)
        return self._nodes[definition]

    def effects(self, path: Path) -> tuple[Definition, ...]:
        """The definitions of a file that count wherever the file is imported."""
        if path not in self._effects:
            own = self.module(path).definitions
            self._effects[path] = tuple(one for one in own if one.is_effect or registers(self, one))
        return self._effects[path]

    def imported(self, path: Path) -> tuple[Path, ...]:
        """The files that an import of a file imports: packages around it, and the imports of its top level."""
        if path not in self._imported:
            around = [folder / "__init__.py" for folder in path.parents if folder.is_relative_to(self.sources)]
            named = (file for each in self.module(path).executed for file in self._files(each, path))
            self._imported[path] = (*(file for file in around if file.is_file()), *named)
        return self._imported[path]

    def whole(self, path: Path) -> list[Definition]:
        """All definitions of a file, and for an `__init__.py` also those that it re-exports."""
        module = self.module(path)
        found = list(module.definitions)
        if path.name == "__init__.py":
            for target in (one for each in module.imports.values() for one in each):
                found += self._resolve_import(target, (), path).definitions
            for target in module.stars:
                found += [one for file in self._files(target, path) for one in self.whole(file)]
        return list(dict.fromkeys(found))

    def _node(self, definition: Definition) -> Node:
        path = self.homes[definition]
        defers = self.module(path).defers_annotations
        pieces = code_shape(definition.node, defers)
        shape = tuple(self.resolve(each, path) if isinstance(each, Reference) else each for each in pieces)
        nodes = list(ast.walk(definition.node))
        imports = (each for each in nodes if isinstance(each, ast.Import | ast.ImportFrom))
        inside = (target for each in imports for target in imported_modules(each))
        data, packages = self._data(nodes, path)
        files = [path, *packages, *(file for each in inside for file in self._files(each, path))]
        files += [file for each in shape if isinstance(each, Target) for file in each.modules]
        beside = [*self._unknown(nodes, path), *self._named_in_texts(nodes)]
        beside += [one for file in packages for one in self.whole(file)]
        named = (one for each in shape if isinstance(each, Target) for one in each.definitions)
        return Node(
            shape,
            tuple(dict.fromkeys(beside)),
            tuple(dict.fromkeys((*named, *beside))),
            tuple(dict.fromkeys(files)),
            tuple(data),
        )

    def resolve(self, reference: Reference, path: Path) -> Target:
        """The meaning of a name in a file."""
        name, attributes = reference.name, reference.attributes
        if reference.imported is not None:
            target = self._resolve_import(reference.imported, attributes, path)
            return Target("", (), target.modules) if reference.is_import and target.text == WHOLE else target
        return self._lookup(name, attributes, path) or Target(".".join(("", name, *attributes)))

    def _lookup(self, name: str, attributes: tuple[str, ...], path: Path) -> Target | None:
        """The meaning of a name in a file; None if the file does not bind it."""
        module = self.module(path)
        targets = [self._resolve_import(one, attributes, path) for one in module.imports.get(name, ())]
        if own := module.binding(name):
            targets.append(Target("." + ".".join((name, *attributes)), tuple(own)))
        if not targets:
            starred = (file for each in module.stars for file in self._files(each, path))
            targets = [found for file in starred if (found := self._lookup(name, attributes, file))]
        if not targets:
            return None
        definitions = dict.fromkeys(one for each in targets for one in each.definitions)
        modules = dict.fromkeys(file for each in targets for file in each.modules)
        return Target(" or ".join(each.text for each in targets), tuple(definitions), tuple(modules))

    def _resolve_import(self, target: Import, attributes: tuple[str, ...], path: Path) -> Target:
        """The meaning of an imported file followed by attributes."""
        parts = (*self._absolute(target, path), *attributes)
        if parts[0] == self.sources.name:
            return self._walk(self.sources, parts[1:])
        return Target(f".{parts[-1]}" if parts[0] == TOOL else ".".join(parts))

    def _walk(self, folder: Path, names: tuple[str, ...]) -> Target:
        """Resolve names one by one: folders, then a file, then a name in the file, then its attributes."""
        if folder == self.sources and names[:1] == (LAB,):
            return Target(f".{names[-1]}")
        init = folder / "__init__.py"
        if not names:
            return self._whole_target(init) if init.is_file() else Target(".")
        first, rest = names[0], names[1:]
        if init.is_file() and (found := self._member(init.resolve(), first, rest)):
            return found
        file = folder / f"{first}.py"
        if file.is_file():
            return self._in_file(file.resolve(), rest)
        if (folder / first).is_dir():
            return self._walk(folder / first, rest)
        return self._whole_target(init) if init.is_file() else Target(".".join(names))

    def _in_file(self, file: Path, names: tuple[str, ...]) -> Target:
        if names and (found := self._member(file, names[0], names[1:])):
            return found
        return self._whole_target(file)  # the module as a value, or a name that its syntax does not show

    def _member(self, file: Path, name: str, rest: tuple[str, ...]) -> Target | None:
        """A name of a file, or all names that match a pattern."""
        if "*" not in name:
            if (file, name) in self._asked:  # `from . import layers` in an `__init__.py`: the file, not this name
                return None
            self._asked.add((file, name))
            found = self._lookup(name, rest, file)
            self._asked.remove((file, name))
            return found and Target(found.text, found.definitions, (file, *found.modules))
        fitting = [one for one in self.whole(file) if any(fnmatchcase(n, name) for n in one.names)]
        return Target(f".{name}", tuple(fitting), (file,)) if fitting else None

    def _whole_target(self, file: Path) -> Target:
        return Target(WHOLE, tuple(self.whole(file)), (file,))

    def _absolute(self, target: Import, path: Path) -> tuple[str, ...]:
        """The parts of an imported name; for a relative import, starting from the folder of chapters."""
        tail = tuple(filter(None, (*target.module.split("."), target.name)))
        if not target.level:
            return tail
        folder = path.parents[min(target.level, len(path.parents)) - 1]
        inside = folder.relative_to(self.sources).parts if folder.is_relative_to(self.sources) else (folder.name,)
        return (self.sources.name, *inside, *tail)

    def _files(self, target: Import, path: Path) -> tuple[Path, ...]:
        """The chapter files that an import runs; its last part may be a name in a file."""
        parts = self._absolute(target, path)
        if parts[0] != self.sources.name or parts[1:2] in ((), (LAB,)):
            return ()
        if parts not in self._files_of:
            place = self.sources.joinpath(*parts[1:])
            tried = [one / "__init__.py" for one in (place.parent, place)]
            tried += [one.with_name(f"{one.name}.py") for one in (place.parent, place)]
            self._files_of[parts] = tuple(file.resolve() for file in tried if file.is_file())
        return self._files_of[parts]

    def _unknown(self, nodes: Iterable[ast.AST], path: Path) -> Iterator[Definition]:
        """The targets that a definition reaches by names made at run time."""
        for each in nodes:
            if isinstance(each, ast.Call):
                name = ast.unparse(each.func).removeprefix("builtins.").removeprefix("importlib.")
                if name not in UNKNOWN or (name == "vars" and each.args):
                    continue
                if name in ("import_module", "__import__"):
                    if not (each.args and text_pattern(each.args[0]).replace("*", "")):
                        yield from (one for file in self.files for one in self.whole(file))
                else:
                    yield from self.whole(path)
            elif isinstance(each, ast.Attribute) and each.attr == "modules" and getattr(each.value, "id", "") == "sys":
                yield from self.whole(path)

    def _named_in_texts(self, nodes: Iterable[ast.AST]) -> Iterator[Definition]:
        """Files and names of chapters in texts: the code of a process, or arguments of `import_module`."""
        for each in nodes:
            text = text_pattern(each) if isinstance(each, ast.JoinedStr | ast.Constant) else ""
            for dotted in re.findall(rf"\b{self.sources.name}((?:\.[\w*]+)+)", text):
                parts = tuple(dotted.split(".")[1:])
                if "*" in dotted:
                    pattern = "/".join(parts)
                    for file in self.files:
                        if fnmatchcase(file.relative_to(self.sources).with_suffix("").as_posix(), pattern):
                            yield from self.whole(file)
                elif parts[0] != LAB:
                    yield from self._walk(self.sources, parts).definitions

    def _data(self, nodes: Iterable[ast.AST], path: Path) -> tuple[list[Path], list[Path]]:
        """The data files whose names, or name patterns, are in a definition; and packages in such folders."""
        entries = [one for one in path.parent.iterdir() if one.name != "__pycache__"] if path.parent.is_dir() else []
        entries = [one for one in entries if one.suffix != ".py"]
        if not entries:
            return [], []
        patterns = {text_pattern(one) for one in nodes if isinstance(one, ast.expr)} - {""}
        finds_itself = any(isinstance(one, ast.Name) and one.id == "__file__" for one in nodes)
        data: list[Path] = []
        packages: list[Path] = []
        for entry in sorted(entries):
            if entry.is_file():
                if any(fnmatchcase(entry.name, pattern) for pattern in patterns if pattern.strip("*.")):
                    data.append(entry)
            elif finds_itself and any(fnmatchcase(entry.name, pattern) for pattern in patterns):
                inside = sorted(_files_below(entry))
                roots = [one for one in inside if one.name == "__init__.py"]
                packages += roots or [one for one in inside if one.suffix == ".py"]
                data += [one for one in inside if one.suffix not in (".py", *FRAME_FILES)]
        return data, list(dict.fromkeys(one.resolve() for one in packages))


def _files_below(folder: Path) -> Iterable[Path]:
    """All files below a folder, including those in linked folders."""
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _files_below(entry)
        else:
            yield entry
