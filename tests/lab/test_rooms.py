"""Files and functions are short, each room maps its files, and a chapter is few files."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from snippets.lab.experiment import chapters
from snippets.lab.recording.device import PROJECT

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
ROOMS = [path.parent for house in ("kinetoscope", "snippets/lab") for path in PROJECT.glob(f"{house}/*/**/__init__.py")]


def test_files_are_short() -> None:
    paths = [path for house in ("kinetoscope", "snippets") for path in PROJECT.glob(f"{house}/**/*.py")]
    names = {path: path.relative_to(PROJECT).as_posix() for path in paths if not path.is_symlink()}
    lengths = {name: path.read_text("utf-8").count("\n") for path, name in names.items() if "_kernels/" not in name}
    too_long = {name for name, length in lengths.items() if length > LONG_FILES.get(name, (MAX_LINES, ""))[0]}
    assert too_long == set(), "part it, or give a reason in LONG_FILES"
    assert {name for name in LONG_FILES if lengths.get(name, 0) <= MAX_LINES} == set(), "take it out of LONG_FILES"


def test_functions_are_short() -> None:
    """What readers copy and what they run is as long as it teaches."""
    places = ("kinetoscope/**/*.py", "snippets/lab/**/*.py", "snippets/*/findings.py", "snippets/*/findings/**/*.py")
    too_long = [
        f"{path.relative_to(PROJECT)}:{node.lineno} {node.name}"
        for path in (path for place in places for path in PROJECT.glob(place))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert too_long == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(PROJECT).as_posix())
def test_the_docstring_of_a_room_maps_its_files(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or ""
    lines = re.findall(r"^(\w+\.\w+)  +(.+)$", text, re.MULTILINE)
    listed = {name for name, _ in lines}
    named = {name for _, about in lines for name in re.findall(r"\w+\.(?:py|json|txt|css|js)", about)}
    real = {path.name for path in room.glob("*.*")} - {"__init__.py"}
    assert real - listed - named == set()
    assert listed - real == set()


SHOWN_ONLY = {
    "attention": {"online_softmax.py": "explains an idea on the CPU: no recording may depend on it"},
    "matmul_add": {"record.py": "the profiler around the model, as a reader types it; a test runs it"},
}
"""Chapter -> a file that is shown and run, but not measured -> why it is not in model.py."""
FILES_OF_A_CHAPTER = {"model.py", "kernels.py", "experiments.py", "findings.py", "findings", "publish.py"}
MORE_FILES = {
    "fused_mlp": {
        "geglu": "the subject: a package that others can load, hashed like model.py",
        "halves.py": "a part of experiments.py",
        "forwards.py": "a part of experiments.py",
        "launching.py": "a part of experiments.py",
        "peers.py": "a part of experiments.py",
        "portability.py": "a part of experiments.py",
        "probes.py": "a part of experiments.py",
        "subjects.py": "what they share",
        "architectures.py": "what portability.py asks of the compiler",
        "compiling.py": "how it reads machine code",
        "activations.py": "the sweep of portability.py",
    },
    "regimes": {
        "growth.py": "a part of experiments.py",
        "launches.py": "a part of experiments.py",
        "subjects.py": "the steps that they measure",
        "compiling.py": "a part of experiments.py",
        "compiled.py": "what compiling.py asks of the compiler",
        "fusing.py": "a part of experiments.py",
        "layer.py": "the subject of fusing.py and spilling.py",
        "spilling.py": "a part of experiments.py",
    },
    "training_step": {
        "compiling.py": "a part of experiments.py",
        "data.py": "the batches in which a fault shows",
        "faults.py": "what is planted in model.py, and the mends: hashed like it",
        "probes.py": "a part of experiments.py",
        "record.py": "the lines of the page that profile a reader's own loop",
    },
    "training_memory": {
        "precision.py": "a part of experiments.py",
        "memory.py": "a part of experiments.py",
        "timeline.py": "a part of memory.py",
        "phases.py": "what the page shows of memory.py: hashed like it",
        "allocator.py": "a part of experiments.py",
        "fragments.py": "what the page shows of allocator.py: hashed like it",
        "shapes.py": "what a forward keeps, derived; shown beside what was measured",
    },
}
"""Chapter -> further files, and why."""


@pytest.mark.parametrize("chapter", chapters())
def test_a_chapter_is_at_most_four_files(chapter: str) -> None:
    """And packages in the form that `kernels` loads, and what is in `SHOWN_ONLY` or `MORE_FILES`."""
    folder = PROJECT / "snippets" / chapter
    entries = {path.name for path in folder.iterdir()} - {"__pycache__", "__init__.py"}
    others = {path.name for path in folder.glob("*_kernels")} | set(SHOWN_ONLY.get(chapter, ()))
    assert entries - FILES_OF_A_CHAPTER == others | set(MORE_FILES.get(chapter, ()))
    assert "experiments.py" in entries
