"""The contract of imports: kinetoscope <- snippets.lab <- chapters, and in each house only downwards.

Imports inside functions and under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import pytest

from snippets.lab.experiment import chapters
from snippets.lab.recording.device import PROJECT

LAYERS = {
    "kinetoscope": "trace cells exit_codes, html terminal, files, job, diagnosis ranks timeline, compare,"
    " report doctor viewer, schema skill, program, __main__",
    "snippets.lab": "experiment cache, recording, capture finding, charts, page notebook, notebooks, tools, __main__",
}
"""House -> its rooms, from low to high: a room imports itself and those of the layers before its own."""
MEASURES = r"snippets\.lab\.(capture|notebook|notebooks|tools)\b"
CHAPTER = r"snippets\.(?!lab\b)\w+"
COPIED = rf"{CHAPTER}\.(model|kernels|online_softmax|geglu(\..+)?)"
FORBIDDEN = (
    (r"kinetoscope\b.*", r"snippets\b"),
    (r"snippets\.lab\b.*", CHAPTER),
    (r"snippets\.lab\.(experiment|cache)\b.*", r"kinetoscope|snippets\.(?!lab\.experiment\b)"),
    (r"snippets\.lab\.(recording|finding|charts|page)\b.*", MEASURES),
    (rf"{CHAPTER}\.(findings\b.*|reports|publish)", MEASURES),
    (rf"{CHAPTER}\.(?!findings\b|(reports|publish)$).+", r"kinetoscope|snippets\.lab\.(?!experiment$)"),
    (r"kinetoscope\b(?!\.doctor\.torch_probe$).*|" + CHAPTER + r"\.findings\b.*", r"(torch|triton)\b"),
    (r"snippets\.lab\b(?!\.(experiment\..+|notebook|tools\.run|capture\..+)$).*", r"(torch|triton)\b"),
)
"""Module -> what it never imports. What shows does not measure, and needs neither torch nor a GPU."""
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
"""The best names of variables: no import binds one, so names are imported, not modules."""
WORDS = {
    ("snippets.lab.tools.preview", "index.html"): "the file of any built page",
    ("snippets.lab.tools.set_aside", "index.html"): "the file of any built page",
    ("snippets.lab.tools.check_site", "index.html"): "the file of any built page",
    ("snippets.lab.tools.check_site", "index"): "the name of a page that is its folder's",
    ("snippets.lab.tools.llms", "index"): "the name of a page that is its folder's",
    ("snippets.lab.tools.search", "index.md"): "the page of the site's root",
    ("snippets.lab.page", "regimes"): "a chart of what limits a step as it grows",
}
"""Module and string that is a chapter's name by chance -> what it means there."""


class Import(NamedTuple):
    """One name that a file imports."""

    line: int
    module: str
    """The module that the name is or is in: `snippets.lab.page.frame`."""
    bound: str
    """The name in this file: `show`; of `import a.b.c`, `a`."""


@cache
def sources() -> Mapping[str, str]:
    """Module -> source, of the project's own code but the copies for `kernels`."""
    paths = sorted(path for house in ("kinetoscope", "snippets") for path in (PROJECT / house).rglob("*.py"))
    names = {path: ".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in paths}
    return {
        name.removesuffix(".__init__"): path.read_text("utf-8")
        for path, name in names.items()
        if "_kernels." not in name
    }


@cache
def imports(module: str, text: str) -> list[Import]:
    """The imports of a source, in the order of its lines."""
    known, parts, found = sources(), module.split("."), list[Import]()
    is_package = any(name.startswith(f"{module}.") for name in known)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, each.name, each.asname or each.name.split(".")[0]) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = parts[: len(parts) + is_package - node.level] if node.level else []
            source = ".".join([*package, *filter(None, [node.module])])
            inner = {each: f"{source}.{each.name}" for each in node.names}
            found += [
                Import(node.lineno, name if name in known else source, each.asname or each.name)
                for each, name in inner.items()
            ]
    return sorted(found)


def room(module: str) -> tuple[str, str]:
    """`snippets.lab.page.frame` -> `snippets.lab`, `page`; empty for what is in no house."""
    house = next((house for house in LAYERS if module.startswith(f"{house}.")), "")
    return house, module.removeprefix(f"{house}.").split(".")[0] if house else ""


def layer(house: str, name: str) -> int:
    """A room that `LAYERS` lacks is above all others."""
    layers = [each.split() for each in LAYERS[house].split(",")]
    return next((index for index, names in enumerate(layers) if name in names), len(layers))


def is_allowed(module: str, imported: str) -> bool:
    (house, own), (other_house, other) = room(module), room(imported)
    if house and house == other_house and own != other and layer(house, own) <= layer(house, other):
        return False
    chapter = module.split(".")[1] if re.match(CHAPTER, module) else ""
    if findings := re.match(r"snippets\.(\w+)\.findings\b", imported):
        return chapter == findings[1] or (chapter, findings[1]) in SHARED_FINDINGS
    if re.fullmatch(COPIED, module) and not re.fullmatch(COPIED, imported):
        return imported.split(".")[0] in {"torch", "triton", *sys.stdlib_module_names}
    return not any(re.fullmatch(names, module) and re.match(never, imported) for names, never in FORBIDDEN)


def problems(texts: Mapping[str, str]) -> list[str]:
    """What breaks the contract, a line each."""
    graph = {module: imports(module, text) for module, text in texts.items()}
    found = [
        f"{module}:{each.line} imports {each.module} as {each.bound}"
        for module, names in graph.items()
        for each in names
        if each.bound in TAKEN_NAMES or not is_allowed(module, each.module)
    ]
    try:
        TopologicalSorter({module: {each.module for each in names} for module, names in graph.items()}).prepare()
    except CycleError as error:
        found.append(" imports ".join(reversed(error.args[1])))
    return found


def chapters_named(module: str, text: str) -> list[str]:
    """Strings that are a chapter's name, the id of an experiment or a module of findings; docstrings do not count."""
    tree = ast.parse(text)
    notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    named = re.compile(rf"(?:snippets\.)?(?:{'|'.join(chapters())})(?:[/.]\w|$)|(?:snippets\.\w+)?\.findings$")
    return [
        f"{module}:{node.lineno} {node.value!r}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes
        if named.match(node.value) and (module, node.value) not in WORDS
    ]


def test_imports_keep_the_contract() -> None:
    assert problems(sources()) == []


def test_the_lab_names_no_chapter() -> None:
    """Only finding/book.py imports modules of chapters by name."""
    named = [
        line
        for module, text in sources().items()
        if module.startswith("snippets.lab") and module != "snippets.lab.finding.book"
        for line in chapters_named(module, text)
    ]
    assert named == []
    assert chapters_named("snippets.lab.page.frame", 'x = ["mlp/eager", "mlp", "mlps"]\n"""mlp"""') == [
        "snippets.lab.page.frame:1 'mlp/eager'",
        "snippets.lab.page.frame:1 'mlp'",
    ]


@pytest.mark.parametrize(
    ("module", "planted", "problem"),
    [
        ("kinetoscope.trace.queries", "from kinetoscope.html import Html", "{} imports kinetoscope.html "),
        (
            "kinetoscope.trace.queries",
            "from kinetoscope.trace.totals import x",
            "queries imports kinetoscope.trace.totals",
        ),
        ("snippets.lab.charts.svg", "import snippets.lab.capture.lock", "{} imports snippets.lab.capture.lock "),
        ("snippets.linear.findings", "from snippets.mlp import findings", "{} imports snippets.mlp.findings "),
        ("snippets.fused_mlp.geglu.plans", "from ..kernelize import x", "{} imports snippets.fused_mlp.kernelize "),
    ],
)
def test_a_planted_import_breaks_the_contract(module: str, planted: str, problem: str) -> None:
    text = sources()[module]
    found = problems({**sources(), module: f"{text}\ndef planted():\n    {planted}\n"})
    assert problem.format(f"{module}:{text.count(chr(10)) + 3}") in found[0]
