"""NVIDIA's compute-sanitizer finds no access outside of a tensor and no wrong barrier."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.chapters.decode_kernels.few_steps import STEPS, watched
from tests.chapters.decode_kernels.test_gpu import KINDS


def sanitizer() -> str | None:
    """The tool on the path, or the tool of the package `nvidia-cuda-sanitizer-api`."""
    spec = find_spec("nvidia")
    folders = [Path(folder) / "cu13" / "bin" for folder in (spec.submodule_search_locations or () if spec else ())]
    return shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)]))


TOOL = sanitizer()
FOUND = 3
"""The exit status if the tool finds an error."""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(400, method="thread"),
    pytest.mark.skipif(TOOL is None, reason="no compute-sanitizer: pip install nvidia-cuda-sanitizer-api"),
]


def run(check: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program under the tool. Each tensor is an allocation of its own, so no access reaches another tensor."""
    command = [str(TOOL), "--tool", check, "--error-exitcode", str(FOUND), "--kernel-name", "kns=decode_"]
    program = [sys.executable, "-m", "tests.chapters.decode_kernels.few_steps", *arguments]
    env = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return subprocess.run([*command, *program], env=env, capture_output=True, text=True, timeout=390, check=False)


def test_the_tool_sees_an_error() -> None:
    found = run("memcheck", "outside")
    assert found.returncode == FOUND, found.stdout[-2000:] + found.stderr[-2000:]
    assert "decode_outside_kernel" in found.stdout


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", ["memcheck", "synccheck"])
def test_the_kernels_have_no_error(check: str, kind: str) -> None:
    found = run(check, kind)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    assert f"{STEPS * len(watched(kind))} steps" in found.stdout
