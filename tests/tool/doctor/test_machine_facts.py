"""What `doctor` asks a machine: folders, environments, NVML and a child process that are made for each test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinetoscope.doctor.machine_facts import (
    NvmlGpu,
    TorchFacts,
    nvml_facts,
    read_facts,
    run_torch_probe,
    torch_facts,
)

NO_TORCH = TorchFacts(import_error="none")
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder)"


def root(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def nvml(**functions: Any) -> Any:
    known: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.124.06",
        "nvmlSystemGetCudaDriverVersion": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetMigMode": lambda handle: [handle, handle],
    }
    return SimpleNamespace(**{**known, **functions})


def fails(*arguments: Any) -> Any:
    raise RuntimeError("Not Supported")


def test_an_empty_machine(tmp_path: Path) -> None:
    facts = read_facts(tmp_path, {}, NO_TORCH)
    assert (facts.driver, facts.driver_cuda, facts.admin_only, facts.is_admin, facts.container) == (
        "",
        None,
        None,
        False,
        "",
    )
    assert (facts.environment, facts.profilers, facts.has_kfd, facts.can_open_kfd) == ({}, (), False, False)


def test_a_machine_with_a_driver(tmp_path: Path) -> None:
    files = {
        "proc/driver/nvidia/version": VERSION,
        "proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
        "proc/self/status": "Name:\tpython\nCapEff:\t00000000a80425fb\n",
        "proc/1/cgroup": "0::/\n",
        "proc/77/comm": "nv-hostengine\n",
        "proc/78/comm": "python\n",
        "dev/kfd": "",
        ".dockerenv": "",
    }
    environment = {"CUDA_INJECTION64_PATH": "/x", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "0"}
    facts = read_facts(root(tmp_path, files), environment, NO_TORCH, free_bytes=7)
    assert facts.driver == "570.124.06"
    assert (facts.admin_only, facts.is_admin, facts.container, facts.free_bytes) == (True, False, "docker", 7)
    assert facts.environment == {"CUDA_INJECTION64_PATH": "/x", "CUDA_VISIBLE_DEVICES": "0"}
    assert (facts.profilers, facts.has_kfd, facts.can_open_kfd) == (("nv-hostengine",), True, True)


def test_admins_and_containers(tmp_path: Path) -> None:
    files = {
        "proc/driver/nvidia/params": "RmProfilingAdminOnly: 0\n",
        "proc/self/status": "CapEff:\t000001ffffffffff\n",
        "proc/1/cgroup": "12:cpu:/kubepods/besteffort/pod1\n",
    }
    facts = read_facts(root(tmp_path, files), {}, NO_TORCH)
    assert (facts.admin_only, facts.is_admin, facts.container) == (False, True, "kubepods")
    assert read_facts(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, NO_TORCH).container == "Kubernetes"


def test_nvml() -> None:
    gpus = NvmlGpu("NVIDIA H200", False), NvmlGpu("NVIDIA H200", True)
    assert nvml_facts(nvml()) == ("570.124.06", (12, 8), gpus)
    assert nvml_facts(nvml(nvmlDeviceGetMigMode=fails))[2] == (gpus[0], gpus[0])
    assert nvml_facts(nvml(nvmlInit=fails)) == nvml_facts(None) == ("", None, ())
    assert nvml_facts(nvml(nvmlDeviceGetCount=fails, nvmlSystemGetCudaDriverVersion=fails))[1:] == (None, ())


def test_lines_of_the_probe() -> None:
    lines = [
        {"torch_probe": {"version": "2.13.0", "cuda": "12.8", "activities": ["CPU", "CUDA"]}},
        {"other": 1},
        {"torch_probe": {"gpus": ["NVIDIA H200"]}},
        {"torch_probe": {"stage": "profile"}},
    ]
    out = "\n".join(["[W] a library says", *map(json.dumps, lines), "{", "[1]"])
    err = "x CUPTI_ERROR_UNKNOWN y\nCUPTI_ERROR_INSUFFICIENT_PRIVILEGES\nCUPTI_ERROR_UNKNOWN"
    facts = torch_facts(out, err, "signal 11")
    assert (facts.version, facts.activities, facts.gpus) == ("2.13.0", ("CPU", "CUDA"), ("NVIDIA H200",))
    assert (facts.stage, facts.ended, facts.kernels) == ("profile", "signal 11", None)
    assert facts.cupti_errors == ("CUPTI_ERROR_UNKNOWN", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


@pytest.mark.slow
def test_a_probe_that_crashes_hangs_or_is_not_there() -> None:
    said = 'print(\'{"torch_probe": {"version": "1"}}\', flush=True)'
    crash = run_torch_probe((sys.executable, "-c", f"{said}; import os; os.kill(os.getpid(), 9)"))
    assert (crash.version, crash.ended) == ("1", "signal 9")
    bare = (sys.executable, "-I", "-S", "-c")  # starts in milliseconds
    hang = run_torch_probe((*bare, f"{said}; import time; time.sleep(60)"), timeout_s=2)
    assert (hang.version, hang.ended) == ("1", "no answer in 2 s")
    assert run_torch_probe((sys.executable, "-c", "raise SystemExit(3)")).ended == "exit code 3"
    assert run_torch_probe(("/no/such/python",)).ended == "did not start: No such file or directory"


def test_without_torch(tmp_path: Path) -> None:
    """A folder whose torch cannot be imported comes first on the path."""
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kinetoscope.doctor.torch_probe import main; main()"
    )
    facts = run_torch_probe((sys.executable, "-c", script))
    assert facts == TorchFacts(import_error="ImportError: libcudart.so.12: cannot open shared object file")


@pytest.mark.slow
def test_this_machine() -> None:
    torch = pytest.importorskip("torch")

    facts = run_torch_probe()
    assert facts.version == str(torch.__version__)
    assert facts.kineto
    assert "CPU" in facts.activities
    assert len(facts.gpus) == torch.cuda.device_count()
    assert (facts.kernels is None) == (not facts.gpus)
