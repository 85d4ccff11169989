"""The code that measures is pinned: whoever changes it decides whether recordings are still what it would measure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from snippets.lab.recording.digest import PROTOCOL, SOURCES, code_digest

MEASURED_OF_EXPERIMENT = ("Work", "Subject", "copy_subject", "matmul_subject", "Schedule")
PINNED = {
    "capture/__init__.py": "3d0780d27efe5b45",
    "capture/ceilings.py": "3f7c0be628c86a84",
    "capture/checking.py": "8f0b2b2135296491",
    "capture/environment.py": "9234c98ba84a0beb",
    "capture/instruments.py": "11dbb07a8581a58d",
    "capture/profile_here.py": "8ec0712f73320c40",
    "capture/profiling.py": "5cc0516f3e5bd5fe",
    "capture/recorder.py": "e2c3a845c2be1579",
    "capture/selection.py": "7d25084e2b3133fa",
    "capture/supervisor.py": "3509423f4d56f0fa",
    "capture/timing.py": "3359e129c02dde56",
    "capture/worker.py": "2f8b1f3099166a7b",
    "experiment.py": "a95a04ae7d146d3d",
}
CURE = (
    "snippets/lab/{name} changed. If what is measured changed, raise PROTOCOL in snippets/lab/recording/digest.py and "
    "record anew. If it is the same, write its digest {digest} into PINNED in tests/lab/capture/test_protocol.py: "
    "that states that what is measured is the same."
)


def measuring_code(lab: Path) -> dict[str, str]:
    """The files of the capture room, and what experiment.py has of the subjects that are measured."""
    code = {f"capture/{path.name}": path.read_text("utf-8") for path in sorted((lab / "capture").glob("*.py"))}
    source = (lab / "experiment.py").read_text("utf-8")
    nodes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    code["experiment.py"] = "\n".join(ast.unparse(nodes[name]) for name in MEASURED_OF_EXPERIMENT)
    return code


DIGESTS = {name: code_digest("", {name: text}) for name, text in measuring_code(SOURCES / "lab").items()}


def test_the_protocol_that_the_digests_belong_to() -> None:
    assert PROTOCOL == 2


@pytest.mark.parametrize("name", DIGESTS)
def test_the_code_that_measures_is_pinned(name: str) -> None:
    assert PINNED.get(name) == DIGESTS[name], CURE.format(name=name, digest=DIGESTS[name])


def test_what_is_pinned_is_there() -> None:
    assert sorted(PINNED) == sorted(DIGESTS)


def test_a_change_of_the_code_changes_its_digest() -> None:
    code = measuring_code(SOURCES / "lab")["capture/timing.py"]
    assert code.count("ROUNDS = 41") == 1
    assert (
        code_digest("", {"capture/timing.py": code.replace("ROUNDS = 41", "ROUNDS = 3")})
        != DIGESTS["capture/timing.py"]
    )
    assert code_digest("", {"capture/timing.py": f"# A comment.\n{code}"}) == DIGESTS["capture/timing.py"]
