"""The code that measures is pinned: whoever changes it decides whether recordings are still what it would measure."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import pytest

from snippets.lab.recording.fingerprint import PROTOCOL, SOURCES
from snippets.lab.recording.shape import plain_shape

MEASURED_OF_EXPERIMENT = ("Work", "Subject", "copy_subject", "matmul_subject", "Schedule")
PINNED = {
    "capture/__init__.py": "3d0780d27efe5b45",
    "capture/agreement.py": "fca65932a9386ce6",
    "capture/ceilings.py": "5063e2917509188a",
    "capture/checking.py": "8f0b2b2135296491",
    "capture/cpu.py": "8bcf580adb6fc1cc",
    "capture/environment.py": "206771db3a359e24",
    "capture/gpu.py": "62ae1519a398b4ce",
    "capture/instruments.py": "abbdbe7a28c123bc",
    "capture/lock.py": "45343a6950464498",
    "capture/loops.py": "56c4ed22db472db1",
    "capture/merging.py": "1e1840ed28056a75",
    "capture/profile_here.py": "6a9f56f24c216252",
    "capture/profiling.py": "3a74435178156fb2",
    "capture/rank_traces.py": "5db4e49c0368dc6e",
    "capture/ranks.py": "dc18771d7c195590",
    "capture/recorder.py": "aaf70f9f0e3a34d5",
    "capture/selection.py": "8fa03f58bc9acdaf",
    "capture/steady.py": "caf094eccfce0244",
    "capture/supervisor.py": "13a87701b410da2f",
    "capture/timing.py": "f59b096a837d25d2",
    "capture/trial.py": "fe3ca9bc71098869",
    "capture/worker.py": "37ce142d30b18ccf",
    "experiment": "285bbace2fab2cf5",
}
CURE = (
    "snippets/lab/{name} changed. If what is measured changed, raise PROTOCOL in "
    "snippets/lab/recording/fingerprint.py and record again. If it is the same, write its hash {code_hash} into PINNED "
    "in tests/lab/capture/test_protocol.py: "
    "that states that what is measured is the same."
)


def measuring_code(lab: Path) -> dict[str, str]:
    """The files of the capture room, and what the room experiment has of the subjects that are measured."""
    code = {f"capture/{path.name}": path.read_text("utf-8") for path in sorted((lab / "capture").glob("*.py"))}
    trees = [ast.parse(path.read_text("utf-8")) for path in (lab / "experiment").glob("*.py")]
    definitions = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    nodes = {node.name: node for node in definitions}
    code["experiment"] = "\n".join(ast.unparse(nodes[name]) for name in MEASURED_OF_EXPERIMENT)
    return code


class _WithoutLabImports(ast.NodeTransformer):
    """Modules of the lab and of kinetoscope may move."""

    def visit_Import(self, node: ast.Import) -> ast.Import | None:
        return None if all(_is_lab(alias.name) for alias in node.names) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if all(_is_lab(f"{node.module}.{alias.name}") for alias in node.names) else node


def _is_lab(name: str) -> bool:
    return f"{name}.".startswith(("snippets.lab.", "kinetoscope."))


def code_hash(name: str, text: str) -> str:
    """Of a file of the lab by this name, without comments, docstrings, formatting and imports of the lab."""
    shape = plain_shape(_WithoutLabImports().visit(ast.parse(text)))
    return hashlib.sha256(f"\n{name} {shape}".encode()).hexdigest()[:16]


HASHES = {name: code_hash(name, text) for name, text in measuring_code(SOURCES / "lab").items()}


def test_the_protocol_that_the_hashes_belong_to() -> None:
    assert PROTOCOL == 2


@pytest.mark.parametrize("name", HASHES)
def test_the_code_that_measures_is_pinned(name: str) -> None:
    assert PINNED.get(name) == HASHES[name], CURE.format(name=name, code_hash=HASHES[name])


def test_what_is_pinned_is_there() -> None:
    assert sorted(PINNED) == sorted(HASHES)


def test_a_change_of_the_code_changes_its_hash() -> None:
    code = measuring_code(SOURCES / "lab")["capture/timing.py"]
    assert code.count("ROUNDS = 41") == 1
    assert code_hash("capture/timing.py", code.replace("ROUNDS = 41", "ROUNDS = 3")) != HASHES["capture/timing.py"]
    assert code_hash("capture/timing.py", f"# A comment.\n{code}") == HASHES["capture/timing.py"]
