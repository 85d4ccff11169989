"""What the tests of the tool import: the tool, and nothing of the book."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EVERYWHERE = {*sys.stdlib_module_names, "kinetoscope", "msgspec", "pytest", "hypothesis"}
INSIDE = {"torch"}
"""Only in functions: a test asks for it, or is skipped."""


def problems(text: str) -> list[str]:
    """Imports that tests of the tool may not have, by line."""
    tree = ast.parse(text)
    return [
        f"{node.lineno}: {module}"
        for node in ast.walk(tree)
        for module in modules(node)
        if not module.startswith("tests.tool.")
        and module.split(".")[0] not in EVERYWHERE | (INSIDE if node not in tree.body else set())
    ]


def modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ("." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names)


def test_the_tool_is_tested_without_the_book() -> None:
    found = {path.relative_to(TESTS).as_posix(): problems(path.read_text("utf-8")) for path in TESTS.rglob("*.py")}
    assert len(found) > 60
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("planted", "module"),
    [
        ("from snippets.lab.recording.device import PROJECT", "snippets.lab.recording.device.PROJECT"),
        ("import snippets.lab.cache", "snippets.lab.cache"),
        ("from tests.lab.samples import BOOK", "tests.lab.samples.BOOK"),
        ("from tests import lab", "tests.lab"),
        ("from tests.lab import samples", "tests.lab.samples"),
        ("import yaml", "yaml"),
        ("import torch", "torch"),
        ("from ..lab import samples", "..lab.samples"),
    ],
)
def test_an_import_of_the_book_is_found(planted: str, module: str) -> None:
    assert problems(planted) == [f"1: {module}"]
    inside = [] if module in INSIDE else [f"2: {module}"]
    assert problems(f"def planted():\n    {planted}") == inside
    assert problems("import msgspec\nfrom tests.tool import events\nfrom tests.tool.runs import GEMM") == []
