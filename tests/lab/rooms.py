"""The rules of the rooms, each a function of sources that returns what breaks it, a line each: `path:line: ...`.

Sources are texts by path (`snippets/lab/page/frame.py`), so that a test can plant a fault without touching a file.
Imports inside functions and under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from snippets.lab.recording.device import PROJECT

Sources = Mapping[str, str]
Rule = Callable[[Sources], list[str]]
LEVELS = {
    "trace": 0,
    "diagnosis": 1,
    "recording": 1,
    "capture": 2,
    "finding": 2,
    "drawing": 3,
    "page": 4,
    "report": 5,
    "notebook": 5,
    "notebooks": 6,
    "tools": 7,
    "__main__": 8,
}
"""Of a room or of a module that is one by itself: it imports what is lower, and its own."""
LEAVES = {
    "experiment": set[str](),
    "cells": set[str](),
    "html": {"cells", "trace"},
    "cache": set[str](),
    "files": set[str](),
    "terminal": {"trace"},
}
"""What every room may import, and which rooms and leaves these may."""
CHAPTERS = sorted(path.parent.name for path in PROJECT.glob("snippets/*/*") if path.stem in ("experiments", "findings"))
CHAPTER = re.compile(rf"(?:snippets\.)?({'|'.join(CHAPTERS)})(?:[/.]\w|$)")
WORDS = {
    ("snippets/lab/tools/preview.py", "index.html"): "the file of any built page",
    ("snippets/lab/tools/set_aside.py", "index.html"): "the file of any built page",
    ("snippets/lab/page/__init__.py", "regimes"): "a chart of what limits a step as it grows",
}
NAMES_PAGES = ("kinetoscope/diagnosis/pages.py", "kinetoscope/diagnosis/symptoms.py")
"""A rule sends its reader to the page that shows what it found: a test follows each."""
"""Path and string that is a chapter's name by chance -> what it means there."""
SHARED_FINDINGS = {
    ("fact_check", "mlp"): "it holds what others said of mlp's traces against the same measures",
    ("fact_check", "fused_mlp"): "it counts the shapes at which a forward of fused_mlp's race gains what others said",
    ("fact_check", "regimes"): "it compares the compile modes of regimes as that chapter does",
    ("fact_check", "training_memory"): "it counts matrix products in the steps of training_memory as that chapter does",
    ("fused_mlp", "mlp"): "its kernel takes the place of the one that mlp compiles, and moves the same bytes",
    ("training_memory", "training_step"): "its steps have the same phases, and the same picture of them",
}
"""Chapter and the chapter whose findings its own may import -> why."""
TAKEN_NAMES = ("trace", "recording", "timing", "page", "summary")
"""The best names of variables: an import that binds one leaves `one`, `found` and `shown` for what they mean."""
MAX_LINES, MAX_FUNCTION_LINES = 300, 60
_HASHED = "hashed into every recording of its chapter: parted, all would have to be recorded anew"
LONG_FILES: Mapping[str, tuple[int, str]] = {
    "snippets/training_step/faults.py": (
        340,
        "faults before and after: each loop whole, so that two differ by the mend",
    ),
    "snippets/attention/experiments.py": (660, _HASHED),
    "snippets/capture_faults/experiments.py": (370, _HASHED),
    "snippets/fused_mlp/geglu/hopper_kernels.py": (360, _HASHED),
    "snippets/matmul_add/experiments.py": (380, _HASHED),
    "snippets/mlp/experiments.py": (800, _HASHED),
    "snippets/regimes/compiling.py": (320, _HASHED),
    "snippets/trace_rows/experiments.py": (310, _HASHED),
    "snippets/lab/experiment.py": (400, "the one file of the lab that experiments.py imports; a leaf imports no other"),
}
"""Path -> how many lines it may have, and why."""
COPIED = re.compile(r"snippets/\w+/\w+_kernels/")
"""Packages in the form that `kernels` loads: copies, links, relative imports."""


class Import(NamedTuple):
    """One name that a file imports."""

    line: int
    module: str
    """The module that the name is or is in: `snippets.lab.page.frame`."""
    bound: str
    """The name in this file: `show`; of `import a.b.c`, `a`."""


@lru_cache(maxsize=1)
def sources() -> Sources:
    """All of the project's own Python in snippets/."""
    paths = sorted(PROJECT.glob("snippets/**/*.py"))
    texts = {path.relative_to(PROJECT).as_posix(): path.read_text("utf-8") for path in paths if not path.is_symlink()}
    return {path: text for path, text in texts.items() if not COPIED.match(path)}


@lru_cache(maxsize=512)
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def module_name(path: str) -> str:
    """`snippets/lab/page/__init__.py` -> `snippets.lab.page`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: str, texts: Sources) -> list[Import]:
    """What a file imports, in the order of its lines."""
    return _imports(path, texts[path], _modules(tuple(texts)))


@lru_cache(maxsize=16)
def _modules(paths: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(module_name, paths))


@lru_cache(maxsize=1024)
def _imports(path: str, text: str, modules: frozenset[str]) -> list[Import]:
    package = module_name(path).split(".")[: None if path.endswith("/__init__.py") else -1]
    found = []
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            names = [(alias.name, alias.asname or alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) + 1 - node.level], *filter(None, [node.module])])
            source = base if node.level else node.module or ""
            names = [
                (inner if (inner := f"{source}.{alias.name}") in modules else source, alias.asname or alias.name)
                for alias in node.names
            ]
        else:
            continue
        found += [Import(node.lineno, module, bound) for module, bound in names]
    return sorted(found)


def room(module: str) -> str:
    """`snippets.lab.page.frame` -> `page`; empty for what is not of the lab."""
    return module.split(".")[2] if module.startswith("snippets.lab.") else ""


def _each(texts: Sources, under: str = "snippets/") -> Iterator[tuple[str, Import]]:
    return ((path, each) for path in texts if path.startswith(under) for each in imports(path, texts))


def trace_imports_no_other_room(texts: Sources) -> list[str]:
    """The ground of the lab stands on nothing."""
    return [
        f"{path}:{each.line}: trace imports {each.module}"
        for path, each in _each(texts, "kinetoscope/trace/")
        if each.module.startswith("snippets") and room(each.module) != "trace"
    ]


def imports_go_downwards(texts: Sources) -> list[str]:
    """A room imports itself, rooms of a lower level and leaves."""
    problems = []
    for path, each in _each(texts, "snippets/lab/"):
        own, other = room(module_name(path)), room(each.module)
        if not own or not other or own == other:
            continue
        is_lower = other in LEAVES or LEVELS.get(other, 99) < LEVELS.get(own, -1)
        if not (other in LEAVES[own] if own in LEAVES else is_lower):
            problems.append(f"{path}:{each.line}: {own} imports {each.module}")
    return problems


def what_shows_never_imports_what_measures(texts: Sources) -> list[str]:
    """finding, drawing, page and chapters' findings do not reach capture by any chain of imports."""
    paths = {module_name(path): path for path in texts}
    graph = {module: _reached_at_once(path, texts) for module, path in paths.items()}
    reaching = _reaching(graph, "capture")
    problems = []
    for module, path in paths.items():
        shows = room(module) in ("finding", "drawing", "page") or re.match(r"snippets\.\w+\.findings\b", module)
        if shows and module in reaching:
            way = next(way for way in _ways(graph, module) if room(way[-1]) == "capture")
            problems.append(f"{path}: {' imports '.join(way)}")
    return problems


def _reaching(graph: Mapping[str, list[str]], target: str) -> set[str]:
    """Modules from which a chain of imports leads into a room."""
    found = {module for module in chain(graph, *graph.values()) if room(module) == target}
    while new := {module for module, others in graph.items() if module not in found and not found.isdisjoint(others)}:
        found |= new
    return found


def _reached_at_once(path: str, texts: Sources) -> list[str]:
    """Modules that a file imports, with the packages that are run for it."""
    modules = [each.module for each in imports(path, texts) if each.module.startswith("snippets.")]
    return list(dict.fromkeys(chain.from_iterable(_with_packages(module) for module in modules)))


def _with_packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(2, len(parts) + 1)]


def _ways(graph: Mapping[str, list[str]], start: str) -> Iterator[tuple[str, ...]]:
    """A shortest chain of imports to each module that can be reached."""
    waiting, seen = [(start,)], {start}
    while waiting:
        way = waiting.pop(0)
        for module in graph.get(way[-1], []):
            if module not in seen:
                seen.add(module)
                yield (*way, module)
                waiting.append((*way, module))


def page_never_imports_notebooks_or_tools(texts: Sources) -> list[str]:
    """A page is made without the tools that serve and check it."""
    return [
        f"{path}:{each.line}: page imports {each.module}"
        for path, each in _each(texts, "snippets/lab/page/")
        if room(each.module) in ("notebook", "notebooks", "tools")
    ]


def the_lab_names_no_chapter(texts: Sources) -> list[str]:
    """No import of a chapter, and no string that is a chapter's name or the id of an experiment."""
    problems = []
    for path in (path for path in texts if path.startswith("snippets/lab/") and path not in NAMES_PAGES):
        for each in imports(path, texts):
            if each.module.startswith("snippets.") and each.module.split(".")[1] != "lab":
                problems.append(f"{path}:{each.line}: the lab imports {each.module}")
        for node in _strings(texts[path]):
            text = str(node.value)
            near = CHAPTER.match(text)
            if near and (path, text) not in WORDS:
                problems.append(f"{path}:{node.lineno}: the lab names the chapter {near[1]}: {text[:40]!r}")
    return problems


@lru_cache(maxsize=512)
def _strings(text: str) -> list[ast.Constant]:
    """Strings of a source that are not docstrings or notes."""
    tree = parsed(text)
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node for node in nodes if id(node) not in notes]


def experiments_import_nothing_of_the_lab_but_experiment(texts: Sources) -> list[str]:
    """What is measured does not change with the instrument."""
    return [
        f"{path}:{each.line}: a chapter's experiments import {each.module}"
        for path, each in _each(texts)
        if re.fullmatch(r"snippets/(?!lab/)\w+/(experiments|model|kernels)\.py", path)
        and each.module.startswith("snippets.lab")
        and each.module != "snippets.lab.experiment"
    ]


def only_the_book_imports_findings(texts: Sources) -> list[str]:
    """Others ask finding/book.py, which knows every chapter; a chapter's own findings may be in parts."""
    problems = []
    for path in texts:
        own = path.split("/")[1]
        for each in imports(path, texts):
            match = re.match(r"snippets\.(\w+)\.findings\b", each.module)
            if match and own != match[1] and (own, match[1]) not in SHARED_FINDINGS:
                problems.append(f"{path}:{each.line}: imports {each.module}")
        if own == "lab" and path != "snippets/lab/finding/book.py":
            problems += [
                f"{path}:{node.lineno}: imports findings by name: {node.value!r}"
                for node in _strings(texts[path])
                if re.fullmatch(r"(snippets\.\w+)?\.findings", str(node.value))
            ]
    return problems


def no_circles(texts: Sources) -> list[str]:
    """Two modules never need each other; that a package is run before its modules does not count."""
    paths = {module_name(path): path for path in texts}
    graph = {module: [each.module for each in imports(path, texts)] for module, path in paths.items()}
    circling = _circling(graph)
    problems = []
    for module, path in paths.items():
        circle = next(_ways_back(graph, module), None) if module in circling else None
        if circle is not None and module == min(circle):
            problems.append(f"{path}: {' imports '.join(circle)}")
    return problems


def _circling(graph: Mapping[str, list[str]]) -> set[str]:
    """Modules that are left when those that import no other of these are taken away, one after another."""
    left = set(graph)
    while ends := {module for module in left if left.isdisjoint(graph[module])}:
        left -= ends
    return left


def _ways_back(graph: Mapping[str, list[str]], start: str) -> Iterator[tuple[str, ...]]:
    if start in graph[start]:
        yield (start, start)
    yield from ((*way, start) for way in _ways(graph, start) if start in graph.get(way[-1], []))


def no_import_takes_a_good_name(texts: Sources) -> list[str]:
    """Names are imported, not modules: a variable may then be called what it is."""
    return [
        f"{path}:{each.line}: an import binds {each.bound!r}"
        for path, each in _each(texts, "")
        if each.bound in TAKEN_NAMES
    ]


def files_are_short(texts: Sources) -> list[str]:
    """One job a file."""
    lengths = {path: text.count("\n") for path, text in texts.items()}
    problems = [
        f"{path}: {length} lines; at most {limit}: part it, or give a reason in LONG_FILES"
        for path, length in lengths.items()
        if length > (limit := LONG_FILES.get(path, (MAX_LINES, ""))[0])
    ]
    unused = [path for path in LONG_FILES if lengths.get(path, 0) <= MAX_LINES]
    return problems + [f"{path}: is short; take it out of LONG_FILES" for path in unused]


def functions_are_short(texts: Sources) -> list[str]:
    """One job a function; what readers copy and what they run is as long as it teaches."""
    return [
        f"{path}:{node.lineno}: {node.name} has {length} lines; at most {MAX_FUNCTION_LINES}"
        for path, text in texts.items()
        if path.startswith("snippets/lab/") or "/findings" in path
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def rooms_map_their_files(texts: Sources) -> list[str]:
    """The docstring of a room's `__init__` lists the files of its folder, and no other."""
    problems = []
    for path in (path for path in texts if re.fullmatch(r"snippets/lab/(?:\w+/)+__init__\.py", path)):
        folder = path.removesuffix("__init__.py")
        inside = {other.removeprefix(folder) for other in texts if other.startswith(folder)} - {"__init__.py"}
        real = {other for other in inside if "/" not in other}  # a folder in it maps its own
        real |= {file.name for file in (PROJECT / folder).glob("*.*") if file.suffix in (".json", ".txt")}
        text = ast.get_docstring(parsed(texts[path])) or ""
        lines = re.findall(r"^(\w+\.(?:py|json|txt))  +(.+)$", text, re.MULTILINE)
        listed = {name for name, _ in lines}
        named = {name for _, about in lines for name in re.findall(r"\w+\.(?:py|json|txt)", about)}
        problems += [f"{path}: does not list {name}" for name in sorted(real - listed - named)]
        problems += [f"{path}: lists {name}, which is not there" for name in sorted(listed - real)]
    return problems


RULES: tuple[Rule, ...] = (
    trace_imports_no_other_room,
    imports_go_downwards,
    what_shows_never_imports_what_measures,
    page_never_imports_notebooks_or_tools,
    the_lab_names_no_chapter,
    experiments_import_nothing_of_the_lab_but_experiment,
    only_the_book_imports_findings,
    no_circles,
    no_import_takes_a_good_name,
    files_are_short,
    functions_are_short,
    rooms_map_their_files,
)
