"""A recording is stale when the code that it measured has changed, wherever that code stands, and only then."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snippets.lab.experiment import chapters
from snippets.lab.recording import digest
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.digest import PROTOCOL, SOURCES, code_digest, is_stale, measured_files, source_digest
from tests.lab.samples import sample

SOURCE = '''\
"""A chapter."""
import torch

SCALE = 0.5  # half


def step(x, *, flag=None):
    """One step."""
    if flag:
        return x * SCALE + 1e-3
    return [x, ("a", b"b", ...), {**x}, f"{x:.2f} {x!r}", lambda y: -y]
'''


def digest_of(text: str) -> str:
    return code_digest("", {"model.py": text})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # half", "  # a half,\n# or so"),
        ('"""One step."""', '"""Another word."""\n    "and a bare note"'),
        ('"""A chapter."""', ""),
        ("x * SCALE + 1e-3", "(\n            x*SCALE  +  0.001\n        )"),
        ('("a", b"b", ...)', "(\n        'a', b'b', ...,)"),
        ("\n\n\n", "\n\n"),
        ('"a"', 'u"a"'),
        ("import torch\n", "import torch\nimport snippets.lab.capture.timing\n"),
        ("import torch\n", "import torch\nfrom snippets.lab import timing\n"),
        ("import torch\n", "import torch\nfrom snippets import lab\n"),
        ("import torch\n", "import torch\nfrom snippets.lab.experiment import Subject, Work\n"),
        ("    if flag:\n", "    from snippets.lab.experiment import Subject\n    if flag:\n"),
    ],
)
def test_a_digest_does_not_see_comments_formatting_and_imports_of_the_lab(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(SOURCE.replace(old, new)) == digest_of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5", "0.25"),
        ("1e-3", "1e-4"),
        ("1e-3", "1"),
        ("flag=None", "flag=False"),
        ("flag=None", "flag=0"),
        ("*, flag", "flag"),
        ("if flag", "if not flag"),
        ("-y", "+y"),
        ("-y", "y"),
        ('"a"', '"A"'),
        ('"a"', 'b"a"'),
        (":.2f", ":.3f"),
        ("!r", ""),
        ("...", "None"),
        ("{**x}", "{}"),
        ("import torch\n", ""),
        ("import torch\n", "import torch\nfrom snippets.labels import x\n"),
        ("import torch\n", "import torch\nfrom snippets.mlp.model import GeGLU\n"),
        ("lambda y", "lambda z"),
    ],
)
def test_a_digest_sees_a_change_of_code(old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(SOURCE.replace(old, new)) != digest_of(SOURCE)


def chapter(sources: Path, name: str, **texts: str) -> None:
    (sources / name).mkdir(parents=True, exist_ok=True)
    for module, text in texts.items():
        (sources / name / f"{module}.py").write_text(text)


def test_a_digest_covers_three_files_and_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for number, modules in enumerate(
        [(), ("model",), ("kernels",), ("experiments",), ("model", "experiments"), ("model", "findings")]
    ):
        sources = tmp_path / str(number) / "snippets"
        chapter(sources, "c", **dict.fromkeys(modules, SOURCE))
        digests.append(source_digest("c", sources))
    assert digests.pop() == digests[1]
    monkeypatch.setattr(digest, "PROTOCOL", PROTOCOL + 1)
    digests.append(source_digest("c", tmp_path / "1" / "snippets"))
    assert len(set(digests)) == len(digests)
    assert all(len(one) == 16 for one in digests)


IMPORTS = {
    "a module": "from snippets.other import model",
    "a name of it": "from snippets.other.model import X",
    "the module's name": "import snippets.other.model as m",
    "relative": "from ..other.model import X",
    "relative to the package": "from .. import other\nfrom ..other import model",
    "in a function": "def f():\n    from snippets.other.model import X",
    "in a condition": "if TYPE_CHECKING:\n    from snippets.other.model import X",
    "through its own kernels": "from .kernels import K",
    "through a third": "from snippets.third.experiments import make",
    "through a third's package": "from snippets.third import make",
}


@pytest.mark.parametrize("text", IMPORTS.values(), ids=IMPORTS)
def test_what_a_chapter_imports_counts(tmp_path: Path, text: str) -> None:
    sources = tmp_path / "snippets"
    chapter(sources, "other", model="X = 1\n", findings="x = 1\n")
    chapter(
        sources, "third", experiments="from snippets.other.model import X\n", __init__="from .experiments import make"
    )
    chapter(sources, "c", experiments=text, kernels="from snippets.other.model import X as K\n")
    if text != IMPORTS["through its own kernels"]:
        (sources / "c" / "kernels.py").unlink()
    before = source_digest("c", sources)
    chapter(sources, "other", model="X = 1  # a comment\n", findings="x = 2\n")
    assert source_digest("c", sources) == before
    chapter(sources, "other", model="X = 2\n")
    assert source_digest("c", sources) != before


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    chapter(tmp_path / "snippets", "a", model="from snippets.b.model import X")
    chapter(tmp_path / "snippets", "b", model="from snippets.a.model import X")
    files = measured_files("a", tmp_path / "snippets")
    assert [path.relative_to(tmp_path).as_posix() for path in files] == ["snippets/a/model.py", "snippets/b/model.py"]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The measured files of the book's chapters, and a file of the lab, to be changed."""
    sources = tmp_path_factory.mktemp("book") / "snippets"
    for name in chapters():
        for path in measured_files(name):
            copy = sources / path.relative_to(SOURCES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    (sources / "lab").mkdir()
    shutil.copy(SOURCES / "lab" / "experiment.py", sources / "lab" / "experiment.py")
    return sources


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("mlp/model.py", ["attention", "fused_mlp", "index", "mlp", "regimes"]),
        ("mlp/experiments.py", ["attention", "fused_mlp", "index", "mlp"]),
        ("fused_mlp/geglu/kernels.py", ["fact_check", "fused_mlp"]),
        ("fused_mlp/geglu/hopper_kernels.py", ["fact_check", "fused_mlp"]),
        ("linear/model.py", ["linear"]),
        ("devices/experiments.py", ["devices"]),
        ("lab/experiment.py", []),
    ],
)
def test_what_a_change_makes_stale(book: Path, changed: str, stale: list[str]) -> None:
    """attention asks mlp's experiments whether the Hub answers; home, regimes and fact_check time others' code."""
    path = book / changed
    text = path.read_text("utf-8")
    try:
        path.write_text(f"{text}\nCHANGED = True\n", "utf-8")
        assert [name for name in chapters() if source_digest(name, book) != source_digest(name)] == stale
        path.write_text(f"# A comment.\nfrom snippets.lab.experiment import NeedsGpu\n{text}", "utf-8")
        assert [name for name in chapters() if source_digest(name, book) != source_digest(name)] == []
    finally:
        path.write_text(text, "utf-8")


def other_pythons() -> list[str]:
    """Other interpreters of 3.11 or newer on this machine, one of each version."""
    places = [Path(path) for minor in range(11, 17) if (path := shutil.which(f"python3.{minor}"))]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    by_version: dict[str, str] = {}
    for place in places:
        reply = subprocess.run(
            [place, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            check=False,
        )
        version = reply.stdout.strip()
        if reply.returncode == 0 and (3, 11) <= tuple(map(int, version.split("."))) != sys.version_info[:2]:
            by_version[version] = str(place)
    return list(by_version.values())


def test_a_digest_is_the_same_under_every_python(tmp_path: Path) -> None:
    """Of the chapters as they are and of `SOURCE`; the module needs no package."""
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python of 3.11 or newer on this machine")
    program = (
        "import runpy, sys\nfrom pathlib import Path\n"
        "digest = runpy.run_path(sys.argv[1])['source_digest']\n"
        "print(*(digest(name, Path(sources)) for sources, _, name in (one.partition(':') for one in sys.argv[2:])))\n"
    )
    chapter(tmp_path / "snippets", "c", model=SOURCE)
    asked = [(tmp_path / "snippets", "c"), *((SOURCES, name) for name in chapters())]
    expected = [source_digest(name, sources) for sources, name in asked]
    for python in pythons:
        done = subprocess.run(
            [python, "-I", "-c", program, str(digest.__file__), *(f"{sources}:{name}" for sources, name in asked)],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected, python


def test_a_recording_is_stale_when_its_digest_differs() -> None:
    assert not is_stale(sample())
    assert is_stale(sample(digest="0" * 16))
