"""Above the recording torch, below it none: what `make docs` imports works where there is no torch."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from snippets.lab.experiment import chapters
from tests.lab.layers import ROOT, without_torch

ABOVE = {"capture", "worker", "timing", "hardware"}
BELOW = sorted(path.stem for path in (ROOT / "snippets/lab").glob("*.py") if path.stem not in {*ABOVE, "__init__"})
FINDINGS = sorted(path.parent.name for path in ROOT.glob("snippets/*/findings*") if path.stem == "findings")
SUBJECTS = sorted([*ROOT.glob("snippets/*/model.py"), *ROOT.glob("snippets/*/kernels.py")])
FILES_OF_A_CHAPTER = {"model.py", "kernels.py", "experiments.py", "findings.py", "findings"}
PACKAGES = "*_kernels"
"""Layers in the form that `kernels` loads."""


def test_what_is_below_is_what_we_think() -> None:
    expected = {"trace", "summary", "recording", "figures", "claims", "html", "tables", "page", "archive", "__main__"}
    assert expected | {"experiment"} <= set(BELOW)
    assert "mlp" in FINDINGS


@pytest.mark.parametrize("modules", [[f"lab.{name}" for name in BELOW], [f"{name}.findings" for name in FINDINGS]])
def test_nothing_below_the_recording_imports_torch(modules: list[str]) -> None:
    """Each in turn and all in one process: what one has imported already cannot hide a second import of torch."""
    code = "".join(f"import snippets.{name}\n" for name in modules)
    done = without_torch(f"{code}assert not {{'torch', 'triton'}} & sys.modules.keys()\nprint('fine')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


@pytest.mark.parametrize("name", sorted(ABOVE))
def test_what_is_above_does_import_torch(name: str) -> None:
    """Else the list of exceptions is longer than it has to be."""
    tree = ast.parse((ROOT / f"snippets/lab/{name}.py").read_text(encoding="utf-8"))
    assert "torch" in imported(tree)


def test_the_commands_that_only_read_need_no_torch() -> None:
    trace = ROOT / "tests/traces/mlp_eager.json.gz"
    done = without_torch(
        "import contextlib, io\nfrom snippets.lab.__main__ import main\n"
        f"for argv in (['list'], ['claims', '--json'], ['claims'], ['summary', {str(trace)!r}, '--json']):\n"
        "    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out):\n"
        "        code = main(argv)\n"
        "    print(repr((argv[0], code, out.getvalue())))\n"
    )
    assert done.stderr == ""
    listed, claims, ledger, summary = map(ast.literal_eval, done.stdout.splitlines())
    assert (listed[1], claims[1], ledger[1], summary[1]) == (0, 0, 0, 0)
    assert "  mlp/eager " in listed[2]
    assert isinstance(json.loads(claims[2]), list)
    assert json.loads(summary[2])["kernels_per_step"] == 5


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of everything imported, inside functions too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or ".").split(".")[0] if node.level == 0 else "." * node.level)
    return found


def test_there_are_subjects() -> None:
    assert {path.relative_to(ROOT).as_posix() for path in SUBJECTS} >= {"snippets/mlp/model.py"}


@pytest.mark.parametrize("path", SUBJECTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_readers_copy_imports_nothing_of_ours(path: Path) -> None:
    allowed = {".", "torch", "triton", *sys.stdlib_module_names}
    assert imported(ast.parse(path.read_text(encoding="utf-8"))) - allowed == set()


@pytest.mark.parametrize("chapter", chapters())
def test_a_chapter_is_at_most_four_files(chapter: str) -> None:
    folder = ROOT / "snippets" / chapter
    entries = {path.name for path in folder.iterdir()} - {"__pycache__", "__init__.py"}
    assert entries - FILES_OF_A_CHAPTER == {path.name for path in folder.glob(PACKAGES)}
    assert "experiments.py" in entries
