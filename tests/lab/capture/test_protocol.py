"""The code that measures is pinned: whoever changes it decides whether recordings are still what it would measure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from snippets.lab.recording.digest import PROTOCOL, SOURCES, code_digest

MEASURED_OF_EXPERIMENT = ("Work", "Subject", "copy_subject", "matmul_subject", "Schedule")
PINNED = {
    "capture/__init__.py": "3d0780d27efe5b45",
    "capture/ceilings.py": "5063e2917509188a",
    "capture/checking.py": "8f0b2b2135296491",
    "capture/cpu.py": "8bcf580adb6fc1cc",
    "capture/environment.py": "d879b3ad7cb198be",
    "capture/gpu.py": "b3b1ab0825baa2ef",
    "capture/instruments.py": "abbdbe7a28c123bc",
    "capture/lock.py": "09ab1c6aa4688e34",
    "capture/loops.py": "c524eb03cb74c475",
    "capture/merging.py": "1e1840ed28056a75",
    "capture/profile_here.py": "3e658e5f4dfabdde",
    "capture/profiling.py": "5cc0516f3e5bd5fe",
    "capture/recorder.py": "5a1da6c1e85b3793",
    "capture/selection.py": "59d1b774878b0d93",
    "capture/steady.py": "caf094eccfce0244",
    "capture/supervisor.py": "440f10e300df5b22",
    "capture/timing.py": "f59b096a837d25d2",
    "capture/worker.py": "9286890163933871",
    "experiment.py": "b06c0b02df098935",
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
