"""The form of the package of decode kernels: that of `kernel-builder`, here and where it is exported.

Its form is that of the fused MLP's package, whose tests say what each part is for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kernels._rust import Build, Digest, DigestAlgorithm, Metadata

from tests.processes.test_fused_package_form import relative_imports

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "snippets/decode_kernels"
SOURCES = CHAPTER / "llama_decode"
PACKAGE = CHAPTER / "llama_decode_kernels"
NAME = "llama_decode_kernels"
VARIANT = PACKAGE / "build/torch-cuda"
METADATA = json.loads((VARIANT / "metadata.json").read_text(encoding="utf-8"))
CARD = (PACKAGE / "CARD.md").read_text(encoding="utf-8")
BUILD = tomllib.loads((PACKAGE / "build.toml").read_text(encoding="utf-8"))


def test_build_file_and_metadata_agree() -> None:
    Build.open(PACKAGE)
    general, noarch = BUILD["general"], BUILD["torch-noarch"]
    assert {
        "name": general["name"],
        "id": f"_{NAME}_cuda_0000001",
        "version": general["version"],
        "license": general["license"],
        "python-depends": [],
        "backend": {"type": "cuda", "archs": noarch["cuda_capabilities"]},
    } == METADATA
    assert general["backends"] == ["cuda"]
    assert {path.suffix.removeprefix(".") for path in SOURCES.iterdir() if path.suffix} <= set(noarch["pyext"])


def own_files() -> set[str]:
    """Paths in the package, with its links followed."""
    folders = (PACKAGE, PACKAGE / "torch-ext" / NAME, VARIANT)
    paths = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(PACKAGE).as_posix() for path in paths}
    return {name for name in names if "__pycache__" not in name}


def test_its_sources_and_its_build_are_one_folder() -> None:
    names = {path.name for path in SOURCES.iterdir()} - {"__pycache__"}
    others = {"CARD.md", "build.toml", "export.py", "flake.nix"}
    others |= {"tests/__init__.py", "tests/test_llama_decode_kernels.py"}
    linked = (f"torch-ext/{NAME}", "build/torch-cuda")
    assert own_files() == others | {f"{folder}/{name}" for folder in linked for name in names}
    assert [(PACKAGE / folder).readlink() for folder in linked] == [Path("../../llama_decode")] * 2


def test_kernels_of_the_chapter_are_links() -> None:
    """Nothing of the chapter is there twice."""
    links = {path.name: path.readlink().as_posix() for path in SOURCES.iterdir() if path.is_symlink()}
    names = ("attending", "kernels", "products", "sizes", "tiles")
    assert links == {f"{name}.py": f"../{name}.py" for name in names}


def test_it_imports_torch_triton_the_standard_library_and_all_of_itself() -> None:
    found = {path.stem: relative_imports(path) for path in SOURCES.glob("*.py")}
    assert set().union(*(others for _, others in found.values())) <= {"torch", "triton", *sys.stdlib_module_names}
    assert {"__init__"}.union(*(own for own, _ in found.values())) == set(found)


def test_the_card_names_what_there_is() -> None:
    rows = [line.split("`")[1] for line in CARD.splitlines() if line.startswith("| `")]
    assert rows == ["layers.DecodeLayer"]
    assert [mark for mark in ("{{", "{%", "{#") if mark in CARD] == []
    assert set(re.findall(r"[\w-]+/llama-decode-kernels", CARD)) == {BUILD["general"]["hub"]["repo-id"]}
    capabilities = re.findall(r"^\| (\d.*?) ", CARD.replace(",", ""), re.MULTILINE)
    assert capabilities == ["8.0", "9.0"]


# ---- exported


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / NAME
    subprocess.run([sys.executable, PACKAGE / "export.py", folder], check=True, timeout=60)
    return folder


def test_an_export_is_what_kernel_builder_makes(exported: Path) -> None:
    files = [path for path in exported.rglob("*") if not path.is_dir()]
    assert [path for path in files if path.is_symlink()] == []
    names = {path.relative_to(exported).as_posix() for path in files}
    left_out = {"export.py", f"torch-ext/{NAME}/metadata.json"}
    assert names == own_files() - left_out | {"build/CARD.md", f"build/torch-cuda/{NAME}/__init__.py"}
    Build.open(exported)
    variant = exported / "build/torch-cuda"
    metadata = Metadata.read_from_file(variant / "metadata.json")
    assert re.fullmatch(rf"_{NAME}_cuda_[0-9a-f]{{7}}", metadata.id)
    assert metadata.digest is not None
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))


ALONE = """\
import json, os, socket, sys
from pathlib import Path

def refuse(*arguments, **named):
    raise AssertionError("asked the network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
sys.modules["snippets"] = None  # importing it fails
WITHOUT_TRITON
import pytest
import torch
from kernels import get_kernel, get_local_kernel

variant = Path("build/torch-cuda").resolve()
kernel = get_local_kernel(variant)
os.environ["LOCAL_KERNELS"] = f"profiling-pytorch/llama-decode-kernels={variant}"
named = get_kernel("profiling-pytorch/llama-decode-kernels", version=1)
support = sys.modules[kernel.__name__ + ".support"]
torch.version.hip, torch.cuda.get_device_capability = None, lambda device: (9, 0)
collected = pytest.main(["-qq", "--collect-only", "-p", "no:cacheprovider", "tests"])
print(json.dumps([
    kernel.__name__, named is kernel, kernel.layers.DecodeLayer.__module__,
    support.unsupported_device(torch.device("cuda", 0)), int(collected),
]))
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("", ""),
        ("sys.modules['triton'] = None", "they need Triton 3.4 (import of triton halted; None in sys.modules)"),
        (
            "import triton; del triton.knobs",
            "they need Triton 3.4 (module 'triton' has no attribute 'knobs')",
        ),
    ],
)
def test_an_export_needs_nothing_of_the_book(exported: Path, change: str, reason: str) -> None:
    """Loaded by folder and by name; without a Triton that will do, too, which it says."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LOCAL_KERNELS", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALONE.replace("WITHOUT_TRITON", change)],
        cwd=exported,
        env={**environment, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    name, *same, layers, said, collected = json.loads(done.stdout.splitlines()[-1])
    assert name == json.loads((exported / "build/torch-cuda/metadata.json").read_text(encoding="utf-8"))["id"]
    assert (same, layers, said, collected) == ([True], f"{name}.layers", reason, 0)
