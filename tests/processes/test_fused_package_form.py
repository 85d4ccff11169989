"""The form of the chapter's kernel package: that of `kernel-builder`, here and where it is exported."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from kernels._rust import Build, Digest, DigestAlgorithm, Metadata

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "snippets/fused_mlp"
SOURCES = CHAPTER / "geglu"
PACKAGE = CHAPTER / "geglu_kernels"
VARIANT = PACKAGE / "build/torch-cuda"
METADATA = json.loads((VARIANT / "metadata.json").read_text(encoding="utf-8"))


def test_metadata_has_what_the_loader_asks_for() -> None:
    assert METADATA == {
        "name": "geglu-kernels",
        "id": "_geglu_kernels_cuda_0000001",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda", "archs": ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"]},
    }


def test_build_file_and_metadata_agree() -> None:
    """The parser of `kernels`, which is `kernel-builder`'s, refuses a field that it does not know."""
    Build.open(PACKAGE)
    build = tomllib.loads((PACKAGE / "build.toml").read_text(encoding="utf-8"))
    general, noarch = build["general"], build["torch-noarch"]
    assert build.keys() == {"general", "torch-noarch"}
    assert {field: METADATA[field] for field in ("name", "version", "license")} == {
        field: general[field] for field in ("name", "version", "license")
    }
    assert METADATA["backend"] == {"type": "cuda", "archs": noarch["cuda_capabilities"]}
    assert general["backends"] == ["cuda"]
    assert {path.suffix.removeprefix(".") for path in SOURCES.iterdir() if path.suffix} <= set(noarch["pyext"])
    assert f"_{general['name'].replace('-', '_')}_" in METADATA["id"]


def own_files() -> set[str]:
    """Paths in the package, with its links followed."""
    folders = (PACKAGE, PACKAGE / "torch-ext/geglu_kernels", VARIANT)
    paths = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(PACKAGE).as_posix() for path in paths}
    return {name for name in names if "__pycache__" not in name}


def test_it_has_the_form_of_kernel_builder() -> None:
    """Its sources, and its build, are one folder of the chapter, which has the metadata that the build needs."""
    names = {path.name for path in SOURCES.iterdir()} - {"__pycache__"}
    others = {"CARD.md", "build.toml", "export.py", "flake.nix", "benchmarks/benchmark.py"}
    others |= {"tests/__init__.py", "tests/test_geglu_kernels.py"}
    linked = ("torch-ext/geglu_kernels", "build/torch-cuda")
    assert own_files() == others | {f"{folder}/{name}" for folder in linked for name in names}
    assert [(PACKAGE / folder).readlink() for folder in linked] == [Path("../../geglu")] * 2


def relative_imports(path: Path) -> tuple[set[str], set[str]]:
    """Modules of its package that a file imports, and the first names of all others."""
    own, others = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))):
        if isinstance(node, ast.Import):
            others |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "outside of the package"
            if not node.level:
                others.add((node.module or "").split(".")[0])
            else:
                own |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return own, others


def test_it_imports_torch_triton_the_standard_library_and_all_of_itself() -> None:
    """In the syntax of Python 3.9, to which a package on the Hub keeps."""
    found = {path.stem: relative_imports(path) for path in SOURCES.glob("*.py")}
    assert set().union(*(others for _, others in found.values())) <= {"torch", "triton", *sys.stdlib_module_names}
    assert {"__init__"}.union(*(own for own, _ in found.values())) == set(found)


def public_names() -> list[str]:
    tree = ast.parse((SOURCES / "__init__.py").read_text(encoding="utf-8"))
    (public,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    return public


def test_the_card_names_what_there_is() -> None:
    card = (PACKAGE / "CARD.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in card.splitlines() if line.startswith("| `")]
    assert sorted(row.split("(")[0].split(".")[0] for row in rows) == sorted(public_names())


def test_the_card_is_no_template_and_names_its_repository() -> None:
    """`kernel-builder` fills in what stands in braces, and uploads the card as README.md."""
    card = (PACKAGE / "CARD.md").read_text(encoding="utf-8")
    build = tomllib.loads((PACKAGE / "build.toml").read_text(encoding="utf-8"))
    assert [mark for mark in ("{{", "{%", "{#") if mark in card] == []
    assert set(re.findall(r"[\w-]+/geglu-kernels", card)) == {build["general"]["hub"]["repo-id"]}
    assert build["general"]["hub"]["repo-id"] in (PACKAGE / "tests/test_geglu_kernels.py").read_text(encoding="utf-8")


# ---- exported


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "geglu_kernels"
    subprocess.run([sys.executable, PACKAGE / "export.py", folder], check=True)
    return folder


def test_an_export_is_what_kernel_builder_makes(exported: Path) -> None:
    files = [path for path in exported.rglob("*") if not path.is_dir()]
    assert [path for path in files if path.is_symlink()] == []
    names = {path.relative_to(exported).as_posix() for path in files}
    left_out = {"export.py", "torch-ext/geglu_kernels/metadata.json"}
    assert names == own_files() - left_out | {"build/CARD.md", "build/torch-cuda/geglu_kernels/__init__.py"}
    Build.open(exported)
    variant = exported / "build/torch-cuda"
    metadata = Metadata.read_from_file(variant / "metadata.json")
    assert re.fullmatch(r"_geglu_kernels_cuda_[0-9a-f]{7}", metadata.id)
    assert metadata.backend.archs == METADATA["backend"]["archs"]
    assert metadata.digest is not None
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))


def test_the_identifier_of_an_export_is_that_of_its_content(exported: Path, tmp_path: Path) -> None:
    def identifier(folder: Path) -> str:
        return json.loads((folder / "build/torch-cuda/metadata.json").read_text(encoding="utf-8"))["id"]

    for name in ("same", "other"):
        shutil.copytree(CHAPTER, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "other/geglu/model.py").open("a", encoding="utf-8") as file:
        file.write("# another\n")
    for name in ("same", "other"):
        script = tmp_path / name / "geglu_kernels/export.py"
        subprocess.run([sys.executable, script, tmp_path / f"{name} export"], check=True)
    same, other = (identifier(tmp_path / f"{name} export") for name in ("same", "other"))
    assert same == identifier(exported) != other


def test_an_export_needs_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    command = [sys.executable, PACKAGE / "export.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "Write the package into a folder of its own: `python export.py FOLDER`.",
    )
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{tmp_path} exists: name a new folder, or delete it first\n")
    assert list(tmp_path.iterdir()) == []


ALONE = """\
import importlib.util, json, os, socket, sys
from pathlib import Path
from types import SimpleNamespace

def refuse(*arguments, **named):
    raise AssertionError("asked the network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
sys.modules["snippets"] = None  # importing it fails
import pytest
import torch
from kernels import get_kernel, get_local_kernel
from kernels.cli import benchmark as command

variant = Path("build/torch-cuda").resolve()
kernel = get_local_kernel(variant)
os.environ["LOCAL_KERNELS"] = f"profiling-pytorch/geglu-kernels={variant}"
named = get_kernel("profiling-pytorch/geglu-kernels", version=1)
x, gate, down = torch.randn(3, 8), torch.randn(16, 8), torch.randn(8, 16)
expected = torch.nn.functional.silu(x @ gate.T) * (x @ gate.T) @ down.T
same = torch.equal(kernel.gated_mlp(x, gate, gate, down, "silu"), expected)

command._backend = lambda: SimpleNamespace(name="cpu")
(benchmark,) = command.discover_benchmark_classes(Path("benchmarks/benchmark.py").resolve(), Path())
whole, sizes = benchmark.setup_mlp, []
def small(self, tokens, dim, hidden, activation):
    sizes.append([tokens, dim, hidden, activation])
    whole(self, min(tokens, 40), 64, 96, activation)
benchmark.setup_mlp = small
results, _ = command.run_benchmark_class(benchmark, 1, 0, str(variant), True, "local")

spec = importlib.util.spec_from_file_location("geglu_kernels", variant / "geglu_kernels/__init__.py")
old = importlib.util.module_from_spec(spec)
spec.loader.exec_module(old)
collected = pytest.main(["-qq", "--collect-only", "-p", "no:cacheprovider", "tests"])
print(json.dumps([
    kernel.__name__, named is kernel, same, sorted(old.__all__), old.layers.__name__,
    {name: timing.verified for name, timing in results.items()}, sizes, int(collected),
]))
"""


def test_an_export_needs_nothing_of_the_book(exported: Path) -> None:
    """Loaded by folder, by name, and as old versions of `kernels` did; its benchmark runs, its tests are found."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LOCAL_KERNELS", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALONE],
        cwd=exported,
        env={**environment, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, *same, old, layers, verified, sizes, collected = json.loads(done.stdout.splitlines()[-1])
    assert name == json.loads((exported / "build/torch-cuda/metadata.json").read_text(encoding="utf-8"))["id"]
    assert (same, old, layers) == ([True, True], sorted(public_names()), f"{name}.layers")
    assert verified == dict.fromkeys(("decode", "geglu", "prefill"), True)
    assert sorted(sizes) == [
        [1, 4096, 14336, "silu"],
        [2048, 4096, 14336, "silu"],
        [8192, 768, 3072, "gelu_tanh"],
    ]
    assert collected == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_the_gpu_its_own_tests_pass(exported: Path) -> None:
    """As its user runs them, with tuning; one of them, since each candidate is compiled."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", "500 and gelu_tanh"],
        cwd=exported,
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "GEGLU_KERNELS_CACHE": "off",
            "LOCAL_KERNELS": f"profiling-pytorch/geglu-kernels={exported}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "1 passed" in done.stdout
