"""Files and functions are short, each room maps its files, and a chapter is few files."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from snippets.lab.recording.definitions import parse_module
from snippets.lab.recording.device import PROJECT

MAX_LINES, MAX_FUNCTION_LINES = 300, 60
ROOMS = [path.parent for house in ("kinetoscope", "snippets/lab") for path in PROJECT.glob(f"{house}/*/**/__init__.py")]


def test_files_are_short() -> None:
    paths = [path for house in ("kinetoscope", "snippets") for path in PROJECT.glob(f"{house}/**/*.py")]
    names = {path: path.relative_to(PROJECT).as_posix() for path in paths if not path.is_symlink()}
    lengths = {name: path.read_text("utf-8").count("\n") for path, name in names.items() if "_kernels/" not in name}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


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


PARTS = {"model", "kernels", "experiments", "findings", "publish"}
"""Each a file, or a package that parts it by subject; publish.py writes further files into the site."""
MORE_FILES: Mapping[str, Mapping[str, str]] = {
    "attention": {"online_softmax.py": "explains an idea on the CPU: no recording may depend on it"},
    "decode_kernels": {
        "attending.py": "attention of one token, which two kernels call",
        "kernelize.py": "how a model takes the package; beside the package, which it loads",
        "one_kernel.py": "a step as one kernel, which a reader calls",
        "persistent.py": "the kernel of a whole step",
        "products.py": "rows of a weight times tokens, which all parts of a step call",
        "quantized.py": "weights in int8, which a reader copies",
        "sizes.py": "how a step cuts its weights",
        "steps.py": "a step of a decoder, which a reader calls",
        "tiles.py": "the parts of a step, which two kernels call",
    },
    "decoder": {
        "caches.py": "the caches that a reader copies in place of that of model.py",
        "compiling.py": "what is done to a finished model.py: joined and compiled layers, which a reader copies",
        "faults.py": "what is planted in loops of tokens, and the mends, which a reader copies",
        "graphs.py": "a decode step as a CUDA graph by hand, which a reader copies",
        "loops.py": "the rungs of the ladder over model.py, which a reader copies",
        "quantized.py": "layers of fewer bytes in place of those of model.py, which a reader copies",
    },
    "fused_mlp": {"kernelize.py": "how a model takes the package; beside the package, which it loads"},
    "matmul_add": {"record.py": "the profiler around the model, as a reader types it; a test runs it"},
    "several_gpus": {
        "blocks.py": "the model that sharded.py, tensor_parallel.py and pipeline.py divide, which a reader copies",
        "faults.py": "the faults of training on several GPUs, and the mends, which a reader copies",
        "parallel.py": "the ladder of data parallel, which a reader copies",
        "pipeline.py": "a pipeline over any blocks, which a reader copies",
        "sharded.py": "what is done to a finished model: sharded, which a reader copies",
        "tensor_parallel.py": "what is done to a finished model: split, which a reader copies",
    },
    "training_memory": {"allocator.py": "a part of experiments, which starts processes that import it by this name"},
    "training_step": {
        "data.py": "the batches in which a fault shows, which a reader copies",
        "faults": "what is planted in model.py, and the mends, which a reader copies",
        "probes.py": "a part of experiments, which starts processes that import it by this name",
        "record.py": "the lines of the page that profile a reader's own loop",
    },
    "your_trace": {
        "record.py": "the lines of the page that profile a reader's own loop",
        "reports.py": "the reports that publish.py writes and that the page links to",
    },
}
"""Chapter -> what else a reader copies or the page shows, and why it is in none of these parts."""


@pytest.mark.parametrize("chapter", sorted(path.name for path in (PROJECT / "snippets").iterdir() if path.is_dir()))
def test_a_chapter_is_at_most_these_parts(chapter: str) -> None:
    """And packages in the form that `kernels` loads, and what is in `MORE_FILES`."""
    if chapter in ("lab", "__pycache__"):
        return
    entries = [path for path in (PROJECT / "snippets" / chapter).iterdir() if path.name != "__pycache__"]
    others = {path.name for path in entries if path.stem not in PARTS and not is_package_of_kernels(path)}
    assert others == set(MORE_FILES.get(chapter, ()))
    both = [part for part in PARTS if sum(path.stem == part for path in entries) > 1]
    assert both == [], "a file and a package"


def is_package_of_kernels(path: Path) -> bool:
    return any((path / name).is_file() for name in ("build.toml", "metadata.json"))


def test_no_name_of_a_package_of_experiments_hides_a_file() -> None:
    """`experiments.probes` is either a file of the package or a name in its `__init__`."""
    hidden = [
        path.relative_to(PROJECT).as_posix()
        for init in PROJECT.glob("snippets/*/experiments/__init__.py")
        for path in init.parent.glob("*.py")
        if path.stem in parse_module(init.read_text("utf-8")).imports
    ]
    assert hidden == []
