"""The chapter's kernel package: its form, how it loads without a network, and what `kernelize` makes of it.

Loading is tried in processes of their own: whether the Hub may be asked is decided at import, and what is loaded stays.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from snippets.mlp.model import GeGLU

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "snippets/fused_mlp"
PACKAGE = CHAPTER / "geglu_kernels"
VARIANT = PACKAGE / "build/torch-cuda"
METADATA = json.loads((VARIANT / "metadata.json").read_text(encoding="utf-8"))
SOURCES = ("hopper_kernels.py", "kernels.py", "model.py")
FILES = {"__init__.py", "layers.py", "metadata.json", *SOURCES}
NEEDS_A_GPU = "FusedGeGLU runs as plain PyTorch: they need an NVIDIA GPU"

NO_NETWORK = f"""\
import json, os, socket, sys, warnings
from pathlib import Path

def refuse(*arguments, **named):
    raise AssertionError("asked the network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
import torch
from kernels import (
    LayerRepository, LocalLayerRepository, Mode, get_kernel, get_local_kernel, kernelize,
    use_kernel_forward_from_hub, use_kernel_mapping,
)
from snippets.mlp.model import GeGLU

PACKAGE, VARIANT = Path({str(PACKAGE)!r}), Path({str(VARIANT)!r})
LOCAL = LocalLayerRepository(VARIANT, layer_name="FusedGeGLU")

@use_kernel_forward_from_hub("GeGLU")
class Swappable(GeGLU):
    pass

def swapped(dim, hidden, dtype, repository=LOCAL, mode=Mode.INFERENCE):
    torch.manual_seed(0)
    model = torch.nn.Sequential(Swappable(dim, hidden).to(dtype))
    with use_kernel_mapping({{"GeGLU": {{"cpu": repository}}}}, inherit_mapping=False):
        return kernelize(model, mode=mode, device="cpu", use_fallback=False)

def eager(dim, hidden, dtype):
    torch.manual_seed(0)
    return torch.nn.Sequential(GeGLU(dim, hidden).to(dtype))

"""


SERVER = """
import os, sys
for line in sys.stdin:
    out, err = json.loads(line)["files"]
    child = os.fork()
    if not child:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        exec(json.loads(line)["code"], globals())
        sys.stdout.flush()
        os._exit(0)  # whatever is raised ends the child with its traceback, and with 1
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Importing takes seconds, and is done once: each piece of code is run in a process that was forked off after it."""


def started(code: str, **variables: str) -> subprocess.Popen[str]:
    """A process without a network where warnings are errors."""
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_KERNELS"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", NO_NETWORK + code],
        cwd=ROOT,
        env={**environment, "HF_HUB_OFFLINE": "1", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    with started(SERVER) as process:
        yield process
        process.kill()


@pytest.fixture
def offline(server: subprocess.Popen[str], tmp_path: Path) -> Callable[..., Any]:
    """What a piece of code prints as JSON when it is run without a network; with variables, in a process of its own."""

    def offline(code: str, **variables: str) -> Any:
        if variables:
            with started(code, **variables) as process:
                printed, told = process.communicate()
            assert process.returncode == 0, told
            return json.loads(printed)
        assert server.stdin is not None
        assert server.stdout is not None
        files = [tmp_path / "out", tmp_path / "err"]
        print(json.dumps({"code": code, "files": list(map(str, files))}), file=server.stdin, flush=True)
        assert server.stdout.readline() == "0\n", files[1].read_text(encoding="utf-8")
        return json.loads(files[0].read_text(encoding="utf-8"))

    return offline


# ---- its form


def test_metadata_has_what_the_loader_asks_for() -> None:
    assert METADATA == {
        "name": "geglu-kernels",
        "id": "_geglu_kernels_cuda_0000001",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }


def test_build_file_and_metadata_agree() -> None:
    build = tomllib.loads((PACKAGE / "build.toml").read_text(encoding="utf-8"))
    general = build["general"]
    assert build.keys() == {"general", "torch-noarch"}
    assert {field: METADATA[field] for field in ("name", "version", "license")} == {
        field: general[field] for field in ("name", "version", "license")
    }
    assert general["backends"] == [METADATA["backend"]["type"]]
    assert f"_{general['name'].replace('-', '_')}_" in METADATA["id"]


def own_files() -> list[Path]:
    return [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_it_holds_these_files() -> None:
    expected = {"build.toml", "CARD.md"} | {f"build/torch-cuda/{name}" for name in FILES}
    assert {path.relative_to(PACKAGE).as_posix() for path in own_files()} == expected


@pytest.mark.parametrize("name", SOURCES)
def test_its_sources_are_those_of_the_chapter(name: str) -> None:
    link = VARIANT / name
    assert link.readlink() == Path("../../..") / name
    assert link.samefile(CHAPTER / name)


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".py")))
def test_it_imports_torch_triton_the_standard_library_and_itself(name: str) -> None:
    imported = set()
    for node in ast.walk(ast.parse((VARIANT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "outside of the package"
            imported.add("." if node.level else (node.module or "").split(".")[0])
    assert imported - {".", "torch", "triton", *sys.stdlib_module_names} == set()


def test_the_card_names_what_there_is() -> None:
    card = (PACKAGE / "CARD.md").read_text(encoding="utf-8")
    tree = ast.parse((VARIANT / "__init__.py").read_text(encoding="utf-8"))
    (public,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    rows = [line.split("`")[1] for line in card.splitlines() if line.startswith("| `")]
    assert sorted(row.split("(")[0].split(".")[0] for row in rows) == sorted(public)


def test_an_installation_carries_it_with_its_links_followed(tmp_path: Path) -> None:
    """What `pip install .` puts into a wheel; a link would lead out of it."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("needs setuptools")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        CHAPTER, tmp_path / "snippets/fused_mlp", symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    command = [sys.executable, "-c", "import setuptools; setuptools.setup()", "build_py", "--build-lib", "installed"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "installed/snippets/fused_mlp/geglu_kernels"
    files = [path for path in installed.rglob("*") if not path.is_dir()]
    assert [path for path in files if path.is_symlink()] == []
    assert {path.relative_to(installed).as_posix() for path in files} == {
        path.relative_to(PACKAGE).as_posix() for path in own_files()
    }
    for name in SOURCES:
        assert (installed / "build/torch-cuda" / name).read_bytes() == (
            tmp_path / CHAPTER.relative_to(ROOT) / name
        ).read_bytes()


# ---- loading


def test_it_loads_from_a_folder(offline: Callable[..., Any]) -> None:
    """The folder of the package where PyTorch is a CUDA build; that of its only variant everywhere."""
    found = offline(
        "try:\n"
        "    from_root = get_local_kernel(PACKAGE).__name__\n"
        "except FileNotFoundError as error:\n"
        "    from_root = str(error).splitlines()[-1].split(':')[0]\n"
        "kernel = get_local_kernel(VARIANT)\n"
        "print(json.dumps([from_root, kernel.__name__, kernel.__file__, sorted(kernel.__all__)]))\n"
    )
    from_root = METADATA["id"] if torch.version.cuda else "torch-cuda"
    public = ["gate_up", "gated_activation", "gated_mlp", "layers", "linear"]
    assert found == [from_root, METADATA["id"], str(VARIANT / "__init__.py"), public]


def test_it_loads_by_name(offline: Callable[..., Any]) -> None:
    """With `get_kernel` and as a layer, both told by LOCAL_KERNELS where to look."""
    found = offline(
        "layer = LayerRepository('ours/geglu-kernels', revision='main', layer_name='FusedGeGLU').load()\n"
        "kernel = get_kernel('ours/geglu-kernels', version=1)\n"
        "print(json.dumps([kernel.__file__, kernel.layers.FusedGeGLU is layer]))\n",
        LOCAL_KERNELS=f"ours/geglu-kernels={VARIANT}",
    )
    assert found == [str(VARIANT / "__init__.py"), True]


def test_beside_the_chapter_each_has_its_own_operators(offline: Callable[..., Any]) -> None:
    """PyTorch lets a second operator of one name take the place of the first without a word."""
    found = offline(
        "import snippets.fused_mlp.geglu.model as chapter\n"
        "get_local_kernel(VARIANT)\n"
        f"package = sys.modules[{METADATA['id'] + '.model'!r}]\n"
        "ran = []\n"
        "def noting(name, matrix):\n"
        "    return lambda tensor: ran.append(name) or matrix(tensor)\n"
        "chapter.matrix = noting('chapter', chapter.matrix)\n"
        "package.matrix = noting('package', package.matrix)\n"
        "x, weight = torch.empty(0, 8), torch.empty(16, 8)\n"
        "counts = []\n"
        "for module in (chapter, package, chapter):\n"
        "    ran.clear()\n"
        "    shapes = module.gate_up(x, weight, weight, 'silu').shape, module.linear(x, weight, None, 'silu').shape\n"
        "    assert shapes == ((0, 16), (0, 16))\n"
        "    counts.append(sorted(set(ran)))\n"
        "print(json.dumps(counts))\n"
    )
    assert found == [["chapter"], ["package"], ["chapter"]]


# ---- as a layer

COMPARED = """\
told, compared = [], 0
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for repository in (LOCAL, LayerRepository("ours/geglu-kernels", revision="main", layer_name="FusedGeGLU")):
        for mode in (Mode.INFERENCE, Mode.TRAINING, Mode.TRAINING | Mode.TORCH_COMPILE):
            for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
                for *batch, dim, hidden in ((3, 5, 7, 11), (7, 11), (1, 8, 16), (0, 8, 16), (2, 9, 64, 96)):
                    plain, ours = eager(dim, hidden, dtype), swapped(dim, hidden, dtype, repository, mode)
                    assert ours[0].forward.__func__.__module__ == ID + ".layers"
                    assert ours.state_dict().keys() == plain.state_dict().keys()
                    x = torch.randn(*batch, dim, dtype=dtype, requires_grad=True)
                    expected, found = plain(x), ours(x)
                    assert torch.equal(found, expected), (dtype, batch, dim, hidden)
                    d_out = torch.randn_like(expected)
                    wanted = torch.autograd.grad(expected, (x, *plain.parameters()), d_out)
                    got = torch.autograd.grad(found, (x, *ours.parameters()), d_out)
                    assert all(map(torch.equal, got, wanted)), (dtype, batch, dim, hidden)
                    compared += 1
print(json.dumps([compared, [str(warning.message) for warning in caught]]))
"""


def test_kernelized_the_block_is_itself_on_the_cpu(offline: Callable[..., Any]) -> None:
    """Forward and gradients, bit by bit: plain PyTorch does the work, and says so once."""
    code = f"ID = {METADATA['id']!r}\n{COMPARED}"
    assert offline(code, LOCAL_KERNELS=f"ours/geglu-kernels={VARIANT}") == [2 * 3 * 4 * 5, [NEEDS_A_GPU]]


def test_projections_that_are_more_than_a_weight_keep_their_meaning(offline: Callable[..., Any]) -> None:
    """A bias, and a projection of another class: the answers differ from those of the weights alone."""
    found = offline(
        "class Doubled(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return 2 * super().forward(x)\n"
        "answers = []\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    for name in ('gate_proj', 'up_proj', 'down_proj'):\n"
        "        for make in (torch.nn.Linear, lambda *sizes: Doubled(*sizes, bias=False)):\n"
        "            plain, ours = eager(7, 11, torch.float32), swapped(7, 11, torch.float32)\n"
        "            x, alone = torch.randn(3, 7), getattr(plain[0], name)\n"
        "            before = plain(x)\n"
        "            other = make(alone.in_features, alone.out_features)\n"
        "            for model in (plain, ours):\n"
        "                setattr(model[0], name, other)\n"
        "            expected = plain(x)\n"
        "            answers.append([torch.equal(ours(x), expected), torch.equal(expected, before)])\n"
        "print(json.dumps([answers, [str(warning.message) for warning in caught]]))\n"
    )
    said = "FusedGeGLU runs as plain PyTorch: the projections must be nn.Linear without a bias"
    assert found == [[[True, False]] * 6, [said]]


def test_the_layer_is_stateless_as_kernels_wants_it(offline: Callable[..., Any]) -> None:
    found = offline(
        "layer = get_local_kernel(VARIANT).layers.FusedGeGLU\n"
        "own = sorted(set(dir(layer)) - set(dir(torch.nn.Module)) - {'__annotations__'})\n"
        "print(json.dumps([own, layer.has_backward, layer.can_torch_compile,\n"
        "    layer.__init__ is torch.nn.Module.__init__, list(layer.__annotations__)]))\n"
    )
    projections = ["gate_proj", "up_proj", "down_proj"]
    assert found == [["can_torch_compile", "has_backward"], True, True, True, projections]


def test_it_compiles_without_a_break(offline: Callable[..., Any]) -> None:
    found = offline(
        "plain, ours = eager(7, 11, torch.float32), swapped(7, 11, torch.float32)\n"
        "x = torch.randn(3, 7)\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    compiled = torch.compile(ours, backend='eager', fullgraph=True)\n"
        "    print(json.dumps(torch.equal(compiled(x), plain(x))))\n"
    )
    assert found is True


hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
    reason="needs a GPU of compute capability 9.0",
)


@pytest.mark.gpu
@hopper
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_the_gpu_its_kernels_do_the_work(dtype: torch.dtype) -> None:
    """No warning, hence no fallback; both kernels in the profile; an error not above eager's."""
    from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_forward_from_hub, use_kernel_mapping

    @use_kernel_forward_from_hub("GeGLU")
    class Swappable(GeGLU):
        """A class of its own, which `kernelize` may change."""

    torch.manual_seed(0)
    plain = GeGLU(768, 3072).to("cuda", dtype)
    ours = Swappable(768, 3072).to("cuda", dtype)
    ours.load_state_dict(plain.state_dict())
    package = LocalLayerRepository(PACKAGE, layer_name="FusedGeGLU")
    with use_kernel_mapping({"GeGLU": {"cuda": package}}, inherit_mapping=False):
        ours = kernelize(ours, mode=Mode.INFERENCE, device="cuda", use_fallback=False)
    x = torch.randn(64, 128, 768, device="cuda", dtype=dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        ours(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            found, expected = ours(x), plain(x)
            torch.cuda.synchronize()
        exact = plain.double()(x.double())
    names = [event.name for event in profile.events()]
    assert any("pingpong" in name for name in names), names
    error, error_of_eager = ((one.double() - exact).norm().item() for one in (found, expected))
    assert 0 < error <= error_of_eager
