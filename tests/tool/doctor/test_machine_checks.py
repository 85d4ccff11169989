"""`doctor`: machines as data, each with one fault; what they are told, and the exit code."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kinetoscope.doctor.checks import Check, checks_text, is_ok
from kinetoscope.doctor.command import print_machine
from kinetoscope.doctor.machine_checks import CHECKS, check_machine, machine_verdict
from kinetoscope.doctor.machine_facts import MachineFacts, NvmlGpu, TorchFacts

CUPTI = "/venv/nvidia/cuda_cupti/lib/libcupti.so.12"
GPU_TORCH = TorchFacts(
    version="2.13.0+cu128",
    cuda="12.8",
    kineto=True,
    activities=("CPU", "CUDA"),
    cupti_package="12.8.90",
    gpus=("NVIDIA H200",),
    kernels=2,
    tries=1,
    cupti_loaded=(CUPTI,),
    stage="done",
)
CPU_TORCH = TorchFacts(version="2.13.0+cpu", kineto=True, activities=("CPU",), gpu_error="not compiled with CUDA")
SOUND = MachineFacts(
    torch=GPU_TORCH,
    nvml_gpus=(NvmlGpu("NVIDIA H200"),),
    driver="570.124.06",
    driver_cuda=(12, 8),
    admin_only=False,
    free_bytes=50_000_000_000,
)
CPU_ONLY = MachineFacts(torch=CPU_TORCH, free_bytes=50_000_000_000)


def machine(facts: MachineFacts = SOUND, **fields: Any) -> MachineFacts:
    """These facts with other values; `torch_kernels=0` is one of torch's."""
    torch = {name.removeprefix("torch_"): fields.pop(name) for name in [*fields] if name.startswith("torch_")}
    return msgspec.structs.replace(facts, torch=msgspec.structs.replace(facts.torch, **torch), **fields)


def of(name: str, facts: MachineFacts) -> Check:
    (found,) = [check for check in check_machine(facts) if check.name == name]
    return found


def test_a_sound_machine() -> None:
    checks = check_machine(SOUND)
    assert {check.status for check in checks} == {"ok"}
    assert not any(check.cure for check in checks)
    assert [check.name for check in checks] == [
        "torch", "Kineto", "activities", "GPU", "driver", "permission", "other profilers", "CUPTI", "tiny profile",
        "disk",
    ]  # fmt: skip
    assert machine_verdict(checks, SOUND) == "able to record CPU and GPU"
    assert of("driver", SOUND).seen == "570.124.06, runs CUDA up to 12.8; torch was built for 12.8"


def test_a_machine_without_a_gpu_records_its_cpu() -> None:
    checks = check_machine(CPU_ONLY)
    assert [check.name for check in checks if check.status != "ok"] == ["GPU"]
    assert is_ok(checks)
    assert machine_verdict(checks, CPU_ONLY) == "able to record the CPU; no GPU, no GPU traces"
    assert "--gpus all" in of("GPU", machine(CPU_ONLY, container="docker")).cure


def test_a_machine_without_torch() -> None:
    facts = MachineFacts(
        torch=TorchFacts(import_error="ModuleNotFoundError: No module named 'torch'"), free_bytes=10**11
    )
    checks = check_machine(facts)
    assert [(check.name, check.status) for check in checks] == [("torch", "failed"), ("disk", "ok")]
    assert "No module named 'torch'" in checks[0].seen
    assert machine_verdict(checks, facts) == "not able to record: torch failed"


@pytest.mark.parametrize(
    ("name", "facts", "status", "seen", "cure"),
    [
        ("torch", machine(torch_version="", torch_ended="signal 11"), "failed", "signal 11", "import torch"),
        ("Kineto", machine(torch_kineto=False), "failed", "not built in", "USE_KINETO=1"),
        ("activities", machine(torch_activities=("CPU",)), "failed", "CPU; none of a GPU", "pytorch.org"),
        ("GPU", machine(CPU_ONLY, nvml_gpus=(NvmlGpu("NVIDIA H200"),)), "failed", "NVIDIA H200 is here", "CPU only"),
        (
            "GPU",
            machine(torch_gpus=(), environment={"CUDA_VISIBLE_DEVICES": ""}),
            "failed",
            "torch sees no GPU",
            "CUDA_VISIBLE_DEVICES='' hides GPUs",
        ),
        (
            "GPU",
            machine(CPU_ONLY, has_kfd=True, torch_hip="6.4"),
            "failed",
            "an AMD GPU is here",
            "groups render and video",
        ),
        ("driver", machine(driver_cuda=(11, 8)), "failed", "up to 11.8", "a torch for CUDA 11.8 or older"),
        ("driver", machine(driver_cuda=(12, 4)), "warning", "up to 12.4", "update the driver"),
        ("driver", machine(driver_cuda=None), "warning", "unknown", "nvidia-ml-py"),
        ("permission", machine(admin_only=True), "warning", "kernels are recorded all the same", "NVreg_Restrict"),
        (
            "permission",
            machine(admin_only=True, torch_cupti_errors=("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",), torch_kernels=0),
            "failed",
            "RmProfilingAdminOnly: 1",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("permission", machine(admin_only=True, container="docker"), "warning", "CAP_SYS_ADMIN", "--cap-add=SYS_ADMIN"),
        ("permission", machine(admin_only=True, is_admin=True), "ok", "this process has CAP_SYS_ADMIN", ""),
        ("container", machine(container="kubepods"), "ok", "inside one (kubepods)", ""),
        ("MIG", machine(nvml_gpus=(NvmlGpu("NVIDIA H100", True),)), "warning", "a slice of the GPU", "disable MIG"),
        (
            "other profilers",
            machine(environment={"CUDA_INJECTION64_PATH": "/opt/nsys.so"}),
            "warning",
            "CUDA_INJECTION64_PATH is set",
            "unset CUDA_INJECTION64_PATH",
        ),
        (
            "other profilers",
            machine(environment={"CUDA_INJECTION64_PATH": "/opt/nsys.so"}, torch_kernels=0),
            "failed",
            "CUDA_INJECTION64_PATH is set",
            "unset CUDA_INJECTION64_PATH",
        ),
        ("other profilers", machine(profilers=("nv-hostengine",)), "warning", "runs", "dcgmi profile --pause"),
        (
            "other profilers",
            machine(profilers=("nsys",), torch_cupti_errors=("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",)),
            "failed",
            "nsys runs",
            "end nsys",
        ),
        ("CUPTI", machine(torch_cupti_loaded=()), "ok", "linked into torch", ""),
        ("CUPTI", machine(torch_cupti_loaded=(CUPTI, "/a/libcupti.so.13")), "warning", "more than one", "LD_LIBRARY"),
        ("CUPTI", machine(torch_cupti_loaded=("/a/libcupti.so.11.8",)), "warning", "/a/libcupti.so.11.8", "LD_LIBRARY"),
        (
            "CUPTI",
            machine(torch_cupti_loaded=("/a/libcupti.so.11.8",), torch_kernels=0),
            "failed",
            "built for CUDA 12.8",
            "unset LD_LIBRARY_PATH",
        ),
        ("CUPTI", machine(torch_cupti_loaded=("/a/libcupti.so.2025.1.0",)), "ok", "2025.1.0", ""),
        ("CUPTI", machine(torch_cupti_package="12.4.127"), "warning", CUPTI, "CUPTI 12.4.127 is installed"),
        (
            "launch blocking",
            machine(environment={"CUDA_LAUNCH_BLOCKING": "1"}),
            "warning",
            "every launch waits",
            "unset CUDA_LAUNCH_BLOCKING",
        ),
        (
            "tiny profile",
            machine(torch_kernels=0, torch_tries=3, torch_cupti_errors=("CUPTI_ERROR_UNKNOWN",)),
            "failed",
            "no kernel in 3 profiles (CUPTI_ERROR_UNKNOWN)",
            "the other lines",
        ),
        ("tiny profile", machine(torch_tries=2), "warning", "none before profile 2", "warmup=1"),
        ("tiny profile", machine(torch_stage="profile", torch_ended="signal 11"), "failed", "signal 11", "report it"),
        ("tiny profile", machine(torch_profile_error="RuntimeError: x"), "failed", "RuntimeError: x", "without"),
        ("disk", machine(free_bytes=1_000_000_000), "warning", "1.0 GB free", "few steps"),
        ("disk", machine(free_bytes=10_000_000), "failed", "0.0 GB free", "few steps"),
    ],
)
def test_a_fault(name: str, facts: MachineFacts, status: str, seen: str, cure: str) -> None:
    check = of(name, facts)
    assert check.status == status
    assert seen in check.seen
    assert cure in check.cure
    assert bool(check.cure) == (status != "ok")


def test_launch_blocking_that_is_off() -> None:
    checks = check_machine(machine(environment={"CUDA_LAUNCH_BLOCKING": "0"}))
    assert "launch blocking" not in [check.name for check in checks]


def test_each_check_has_a_name_of_its_own() -> None:
    assert len({check.name for check in check_machine(SOUND)}) == len(check_machine(SOUND)) <= len(CHECKS)


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_machine(CPU_ONLY) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok       torch               2.13.0+cpu, built for the CPU only"
    assert lines[3] == "warning  GPU                 none in this machine"
    assert lines[-1] == "able to record the CPU; no GPU, no GPU traces"
    assert print_machine(machine(torch_kernels=0), as_json=True) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["ok"], printed["subject"]) == (False, "machine")
    assert printed["verdict"] == "not able to record: tiny profile failed"
    failed = [check for check in printed["checks"] if check["status"] == "failed"]
    assert [check["name"] for check in failed] == ["tiny profile"]
    assert failed[0].keys() == {"name", "status", "seen", "cure", "sources"}


def test_lines_are_short_and_printable() -> None:
    text = checks_text([Check("torch", "failed", "bad \x1b[31m " + "word " * 60, "cure " * 30)], "x" * 3)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("cure cure\n\nxxx")
