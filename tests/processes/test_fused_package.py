"""The chapter's kernel package: its form, how it loads without a network, and what `kernelize` makes of it.

Loading is tried in processes of their own: whether the Hub may be asked is decided at import, and what is loaded stays.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
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
from kernels._rust import Build, Digest, DigestAlgorithm, Metadata

from snippets.mlp.model import GeGLU

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = ROOT / "snippets/fused_mlp"
PACKAGE = CHAPTER / "geglu_kernels"
SOURCES = CHAPTER / "geglu"
VARIANT = PACKAGE / "build/torch-cuda"
METADATA = json.loads((VARIANT / "metadata.json").read_text(encoding="utf-8"))
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
    paths = [*PACKAGE.rglob("*"), *(PACKAGE / "torch-ext/geglu_kernels").iterdir()]
    names = {path.relative_to(PACKAGE).as_posix() for path in paths if path.is_file()}
    return {name for name in names if "__pycache__" not in name}


def test_it_has_the_form_of_kernel_builder() -> None:
    """torch-ext, and a build with its files, each a link to the chapter's: a new one takes an `ln -s`."""
    names = {path.name for path in SOURCES.iterdir()} - {"__pycache__"}
    others = {"CARD.md", "build.toml", "export.py", "flake.nix", "benchmarks/benchmark.py"}
    others |= {"tests/__init__.py", "tests/test_geglu_kernels.py", "build/torch-cuda/metadata.json"}
    built = {f"build/torch-cuda/{name}" for name in names}
    assert own_files() == others | built | {f"torch-ext/geglu_kernels/{name}" for name in names}
    assert (PACKAGE / "torch-ext/geglu_kernels").readlink() == Path("../../geglu")
    assert {name: (VARIANT / name).readlink() for name in names} == {
        name: Path("../../../geglu") / name for name in names
    }


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
    assert {path.relative_to(installed).as_posix() for path in files} == own_files()
    for path in SOURCES.glob("*.*"):
        assert (installed / "build/torch-cuda" / path.name).read_bytes() == path.read_bytes()


# ---- exported


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "geglu_kernels"
    subprocess.run([sys.executable, PACKAGE / "export.py", folder], check=True, timeout=60)
    return folder


def test_an_export_is_what_kernel_builder_makes(exported: Path) -> None:
    files = [path for path in exported.rglob("*") if not path.is_dir()]
    assert [path for path in files if path.is_symlink()] == []
    names = {path.relative_to(exported).as_posix() for path in files}
    assert names == own_files() - {"export.py"} | {"build/CARD.md", "build/torch-cuda/geglu_kernels/__init__.py"}
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
        subprocess.run([sys.executable, script, tmp_path / f"{name} export"], check=True, timeout=60)
    same, other = (identifier(tmp_path / f"{name} export") for name in ("same", "other"))
    assert same == identifier(exported) != other


def test_an_export_needs_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    command = [sys.executable, PACKAGE / "export.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "Write the package into a folder of its own: `python export.py FOLDER`.",
    )
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "FileExistsError" in done.stderr


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
        timeout=200,
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
    """In the namespace of the package, its identifier, as the Hub asks; the chapter's in `geglu`."""
    found = offline(
        "import snippets.fused_mlp.geglu.operators as chapter\n"
        "get_local_kernel(VARIANT)\n"
        f"ID = {METADATA['id']!r}\n"
        "package = sys.modules[ID + '.operators']\n"
        "ran = []\n"
        "def noting(name, planned):\n"
        "    return lambda *arguments: ran.append(name) or planned(*arguments)\n"
        "chapter.planned = noting('chapter', chapter.planned)\n"
        "package.planned = noting('package', package.planned)\n"
        "x, weight = torch.empty(0, 8), torch.empty(16, 8)\n"
        "counts = []\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    for module in (torch.ops.geglu, getattr(torch.ops, ID), torch.ops.geglu):\n"
        "        ran.clear()\n"
        "        both = module.gate_up(x, weight, weight, 'silu'), module.linear(x, weight, None, 'silu')\n"
        "        assert [out.shape for out in both] == [(0, 16), (0, 16)]\n"
        "        counts.append(sorted(set(ran)))\n"
        "print(json.dumps(counts))\n"
    )
    assert found == [["chapter"], ["package"], ["chapter"]]


WITHOUT = {
    "missing": ("sys.modules['triton'] = None", "they need Triton (import of triton halted; None in sys.modules)"),
    "old": (
        "import triton; del triton.knobs; triton.__version__ = '3.3.1'",
        "they need Triton 3.4, and this is 3.3.1",
    ),
}


@pytest.mark.parametrize("how", WITHOUT)
def test_without_a_triton_that_will_do_it_loads_and_falls_back(how: str, offline: Callable[..., Any]) -> None:
    change, reason = WITHOUT[how]
    found = offline(
        f"for name in [name for name in sys.modules if name.split('.')[0] == 'triton']:\n"
        f"    {'del sys.modules[name]' if how == 'missing' else 'break'}\n"
        f"{change}\n"
        "kernel = get_local_kernel(VARIANT)\n"
        "support = sys.modules[kernel.__name__ + '.support']\n"
        "torch.version.hip, torch.cuda.get_device_capability = None, lambda device: (9, 0)\n"
        "gpu = support.unsupported_device(torch.device('cuda', 0))\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    out = kernel.gated_mlp(torch.ones(2, 8), torch.ones(3, 8), torch.ones(3, 8), torch.ones(8, 3), 'relu')\n"
        "print(json.dumps([gpu, out.tolist()]))\n"
    )
    assert found == [reason, [[3 * 64.0] * 8] * 2]


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


# ---- on the GPU

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_the_gpu_its_kernels_do_the_work(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning, hence no fallback; our kernel in the profile; an error not above eager's."""
    from kernels import LocalLayerRepository, Mode, get_local_kernel, kernelize, use_kernel_mapping

    class Swappable(GeGLU):
        """A class of its own, with the attribute by which `kernelize` knows it."""

        kernel_layer_name = "GeGLU"

    tuning = sys.modules[f"{get_local_kernel(PACKAGE).__name__}.tuning"]
    monkeypatch.setattr(tuning, "choose", lambda work, ways: next(iter(ways)))
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
    of_hopper = torch.cuda.get_device_capability()[0] == 9
    assert any("pingpong" in name if of_hopper else "gate_up" in name for name in names), names
    error, error_of_eager = ((one.double() - exact).norm().item() for one in (found, expected))
    assert 0 < error <= error_of_eager


@pytest.mark.gpu
@on_a_gpu
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
