"""The chapter's kernel package: how it loads without a network, and what `kernelize` makes of it.

Loading is tried in processes of their own: whether the Hub may be asked is decided at import, and what is loaded stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from snippets.mlp.model import GeGLU

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "snippets/fused_mlp/geglu_kernels"
VARIANT = PACKAGE / "build/torch-cuda"
METADATA = json.loads((VARIANT / "metadata.json").read_text(encoding="utf-8"))
NEEDS_A_GPU = "this call runs as plain PyTorch, without the fused kernels: they need an NVIDIA GPU"

NO_NETWORK = f"""\
import json, os, socket, sys, warnings
from pathlib import Path

def refuse(*arguments, **named):
    raise AssertionError("asked the network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
import torch
import torch._dynamo
import triton
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
"""Importing, also what the package imports, takes seconds and is done once: each piece of code is run in a process that
was forked off after it."""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    """A process without a network where warnings are errors."""
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_KERNELS"}
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", NO_NETWORK + SERVER],
        cwd=ROOT,
        env={**environment, "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def offline(server: subprocess.Popen[str], tmp_path: Path) -> Callable[..., Any]:
    """What a piece of code prints as JSON when it is run without a network, with variables in the environment."""

    def offline(code: str, **variables: str) -> Any:
        assert server.stdin is not None
        assert server.stdout is not None
        files = [tmp_path / "out", tmp_path / "err"]
        code = f"os.environ.update({variables!r})\n{code}"
        print(json.dumps({"code": code, "files": list(map(str, files))}), file=server.stdin, flush=True)
        assert server.stdout.readline() == "0\n", files[1].read_text(encoding="utf-8")
        return json.loads(files[0].read_text(encoding="utf-8"))

    return offline


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
    monkeypatch.setattr(tuning, "choose", lambda work, ways, *_: next(iter(ways)))
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
