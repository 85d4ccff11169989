"""Whether a recording is stale: a hash of the definitions that its experiment reaches.

A fingerprint covers what an experiment is (parameters, sweep, schedule, ...), its maker, loop or probe, its work, and
everything that these name, in their chapter and in others: functions, classes, constants, kernels, and files of data.
Of a table of choices by GPU, only the choices for the GPU of the recording count.
Names of files, order, comments, docstrings, formatting, imports and whatever else stands beside it do not count. The
lab that measures counts as the number `PROTOCOL`. This module and those that it imports use only the standard library,
so that any Python computes the same.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from snippets.lab.recording.definitions import Definition
from snippets.lab.recording.reach import LAB, Code
from snippets.lab.recording.shape import plain_shape

if TYPE_CHECKING:
    from snippets.lab.experiment import Experiment
    from snippets.lab.recording.schema import Recording

PROTOCOL = 2
"""Part of every fingerprint: increase it when a change in snippets/lab/capture changes the measured values."""
SOURCES = Path(__file__).resolve().parents[2]
CHOICES = "tuned.json"
"""The name of a table of choices: an object with a key for each GPU."""
DESCRIBED = (
    "parameters",
    "sweep",
    "label",
    "group",
    "schedule",
    "first_steps",
    "profiler_options",
    "steady_sweep",
    "timed",
)
"""The fields of an experiment that decide what is measured."""
DESCRIBED_UNLESS_DEFAULT = ("gpus", "environment")
"""Such fields that came later: an experiment that does not set them has the fingerprint that it had before."""
FUNCTIONS = ("make", "loop", "probe", "work")


def is_stale(recording: Recording, experiment: Experiment, sources: Path = SOURCES) -> bool:
    """Whether what an experiment reaches has changed since it was recorded."""
    return recording.fingerprint != fingerprint(experiment, sources, recording.environment.device)


def fingerprint(experiment: Experiment, sources: Path = SOURCES, gpu: str = "") -> str:
    """Hash of what an experiment reaches in the chapters below `sources`, and of `PROTOCOL`: 16 hexadecimal digits.

    `gpu`: the name of the GPU whose choices count; without it, those of every GPU do.
    """
    return measured_code(sources, gpu).fingerprint(experiment)


def text_fingerprint(text: str, protocol: str, sources: Path = SOURCES, gpu: str = "") -> str:
    """Hash of a program that uses chapters, such as the cells of a notebook, with a GPU's choices. Raises
    `SyntaxError`."""
    return measured_code(sources, gpu).text_fingerprint(text, protocol)


def measured_code(sources: Path = SOURCES, gpu: str = "") -> MeasuredCode:
    """The chapters below a folder as they are now, with the choices for a GPU. Whoever asks for many fingerprints asks
    for this once."""
    return _measured_code(sources.resolve(), _stamp(sources), gpu)


@lru_cache(maxsize=16)
def _measured_code(sources: Path, stamp: frozenset[tuple[str, int]], gpu: str) -> MeasuredCode:
    """Kept until a file of a chapter changes."""
    return MeasuredCode(_code(sources, stamp), gpu)


@lru_cache(maxsize=8)
def _code(sources: Path, stamp: frozenset[tuple[str, int]]) -> Code:
    """Read once for all GPUs."""
    return Code(sources)


def _stamp(sources: Path) -> frozenset[tuple[str, int]]:
    """Every file of the chapters, and when it was written. No glob: a build asks often."""
    found = []
    folders = [str(sources)]
    while folders:
        inside = folders.pop()
        with os.scandir(inside) as entries:
            for each in entries:
                if each.is_dir():
                    if each.name not in ("__pycache__", LAB):
                        folders.append(each.path)
                else:
                    found.append((each.path, each.stat().st_mtime_ns))
    return frozenset(found)


class MeasuredCode:
    """The chapters' code, with a hash of each definition that covers whatever it reaches."""

    def __init__(self, code: Code, gpu: str = "") -> None:
        self.code = code
        self.gpu = gpu
        self._hashes: dict[Definition, str] = {}
        self._fingerprints: dict[int, tuple[Experiment, str]] = {}
        """By the `id` of an experiment, which is kept, so that no other one gets its `id`."""

    def fingerprint(self, experiment: Experiment) -> str:
        """Hash of what an experiment reaches; each page asks for it, for each device."""
        if id(experiment) not in self._fingerprints:
            self._fingerprints[id(experiment)] = experiment, self._fingerprint(experiment)
        return self._fingerprints[id(experiment)][1]

    def _fingerprint(self, experiment: Experiment) -> str:
        names = [*DESCRIBED, *(name for name in DESCRIBED_UNLESS_DEFAULT if _is_set(experiment, name))]
        described = "".join(f"{name}={_data_text(getattr(experiment, name))};" for name in names)
        roots: list[Definition] = []
        functions = "".join(f"{name}={self._value_text(getattr(experiment, name), roots)};" for name in FUNCTIONS)
        return self._hash([f"protocol {PROTOCOL}", described, functions], roots)

    def text_fingerprint(self, text: str, protocol: str) -> str:
        """Hash of a text, without comments and formatting, and of what it reaches. Raises `SyntaxError`."""
        path = self.code.sources / "text.py"
        definitions = self.code.add(path, text).definitions
        return self._hash([protocol, plain_shape(ast.parse(text)), *map(self._hash_of, definitions)], definitions)

    def reached(self, roots: Iterable[Definition]) -> tuple[list[Definition], list[Definition]]:
        """What roots reach, and of it what counts because its file is imported."""
        found: dict[Definition, None] = {}
        effects: dict[Definition, None] = {}
        files: set[Path] = set()
        waiting, entering = list(roots), list[Path]()
        while waiting or entering:
            if waiting:
                definition = waiting.pop()
                if definition not in found:
                    found[definition] = None
                    node = self.code.node(definition)
                    waiting += node.reached
                    entering += node.files
            elif (file := entering.pop()) not in files:
                files.add(file)
                entering += self.code.imported(file)
                effects |= dict.fromkeys(self.code.effects(file))
                waiting += self.code.effects(file)
        return list(found), list(effects)

    def _hash(self, texts: Iterable[str], roots: Iterable[Definition]) -> str:
        _, effects = self.reached(roots)
        lines = [*texts, *sorted({self._hash_of(each) for each in effects})]
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def _beyond(self, definition: Definition) -> tuple[Definition, ...]:
        return self.code.node(definition).reached

    def _hash_of(self, definition: Definition) -> str:
        """The hash of a definition, which covers everything that it reaches."""
        if definition not in self._hashes:
            for component in _components(definition, self._beyond, self._hashes):
                self._hash_component(component)
        return self._hashes[definition]

    def _hash_component(self, component: list[Definition]) -> None:
        """Hash definitions that reach each other: in rounds, so that each hash covers all of them."""
        known: dict[Definition, str] = dict.fromkeys(component, "")
        rounds = len(component) + 1 if len(component) > 1 else 1
        for _ in range(rounds):
            known = {definition: self._text_hash(definition, known) for definition in component}
        self._hashes |= known

    def _text_hash(self, definition: Definition, known: Mapping[Definition, str]) -> str:
        def name(one: Definition) -> str:
            return known[one] if one in known else self._hashes[one]

        node = self.code.node(definition)
        parts = [
            piece if isinstance(piece, str) else f"<{piece.text} {' '.join(map(name, piece.definitions))}>"
            for piece in node.shape
        ]
        parts += sorted(map(name, node.beside))
        parts += sorted(f"{path.name} {hashlib.sha256(self._data(path)).hexdigest()}" for path in node.data)
        return hashlib.sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def _data(self, path: Path) -> bytes:
        """What counts of a file of data: of a broken table of choices, the whole file."""
        content = path.read_bytes()
        if not self.gpu or path.name != CHOICES:
            return content
        try:
            choices = json.loads(content)
        except ValueError:
            return content
        return json.dumps(choices.get(self.gpu, {}), sort_keys=True).encode() if isinstance(choices, dict) else content

    def _value_text(self, value: object, roots: list[Definition]) -> str:
        """A function, or data that it is given, as text; the definitions that it is go to `roots`."""
        if isinstance(value, functools.partial):
            given = [self._value_text(each, roots) for each in value.args]
            given += [f"{name}={self._value_text(each, roots)}" for name, each in sorted(value.keywords.items())]
            return f"partial({self._value_text(value.func, roots)} {' '.join(given)})"
        if callable(value):
            return self._function_text(value, roots)
        return _data_text(value)

    def _function_text(self, function: Callable[..., object], roots: list[Definition]) -> str:
        module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
        parts = module.split(".")
        if self.code.sources.name not in parts:
            return f"{module}.{name or type(function).__qualname__}"
        inside = parts[parts.index(self.code.sources.name) + 1 :]
        if inside[:1] == [LAB]:
            return f".{name}"
        path = self.code.sources.joinpath(*inside)
        path = path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")
        defined = self.code.module(path.resolve()).binding(name.partition(".")[0]) if path.is_file() else []
        # what has no name in its file, such as a lambda, may be anything there
        found = defined or (self.code.whole(path.resolve()) if path.is_file() else [])
        roots += found
        around = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        closed = [self._value_text(each, roots) for each in around if each is not function]
        hashes = sorted(map(self._hash_of, found)) if not defined else map(self._hash_of, found)
        return f"{name if defined else ''}<{' '.join(hashes)}>{''.join(closed)}"


def _is_set(experiment: Experiment, name: str) -> bool:
    """Whether an experiment has another value than the default."""
    return bool(getattr(experiment, name) not in (1, {}))


def _data_text(value: object) -> str:
    """Plain data as text: the order of a mapping's keys does not count."""
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{key!r}:{_data_text(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_data_text, value)) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(map(_data_text, value))) + "}"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return f"{type(value).__name__}({_data_text({name: getattr(value, name) for name in fields})})"
    return type(value).__qualname__


def _components(
    start: Definition, beyond: Callable[[Definition], Iterable[Definition]], done: Mapping[Definition, str]
) -> Iterator[list[Definition]]:
    """The strongly connected components that are reached from a start, each after those that it reaches (Tarjan)."""
    index: dict[Definition, int] = {}
    low: dict[Definition, int] = {}
    stack: list[Definition] = []
    open_: set[Definition] = set()
    work: list[tuple[Definition, Iterator[Definition]]] = [(start, iter(beyond(start)))]
    index[start] = low[start] = 0
    stack.append(start)
    open_.add(start)
    while work:
        node, others = work[-1]
        for other in others:
            if other in done or (other in index and other not in open_):
                continue
            if other in open_:
                low[node] = min(low[node], index[other])
                continue
            index[other] = low[other] = len(index)
            stack.append(other)
            open_.add(other)
            work.append((other, iter(beyond(other))))
            break
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                at = stack.index(node)
                component = stack[at:]
                del stack[at:]
                open_ -= {*component}
                yield component
