"""Check whether a machine can record: the checks of `doctor`, each a function of `MachineFacts`.

Most questions are about missing GPU events (pytorch#192021, #124547; kineto#996, #859, #762; permissions:
tensorflow#35860, openxla/xprof#63). Only the tiny profile is a proof; the other checks explain its failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kinetoscope.doctor.checks import MISSING_EVENTS, Check, Status
from kinetoscope.doctor.machine_facts import INJECTIONS, MachineFacts

FEW_BYTES, LITTLE_BYTES = 100_000_000, 2_000_000_000
"""Free disk space below which no trace fits, and below which a large one does not (kineto#622: 10 GB)."""
_PERMISSIONS = ("tensorflow#35860", "xprof#63", "KernelBench#105")
_INSTALL = "install a build for this GPU from https://pytorch.org/get-started"
_UNRESTRICTED = (
    "load the driver with the option NVreg_RestrictProfilingToAdminUsers=0 (a line `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d, then a restart)"
)


def check_machine(facts: MachineFacts) -> list[Check]:
    """All checks that this machine allows."""
    found = (check(facts) for check in CHECKS)
    return [check for check in found if check is not None]


def machine_verdict(checks: list[Check], facts: MachineFacts) -> str:
    """What this machine can record, in a sentence."""
    failed = [check.name for check in checks if check.status == "failed"]
    if failed:
        return f"not able to record: {', '.join(failed)} failed"
    return "able to record CPU and GPU" if facts.torch.kernels else "able to record the CPU; no GPU, no GPU traces"


def check_torch(facts: MachineFacts) -> Check:
    """Whether torch can be imported, and the GPU platform of its build."""
    torch = facts.torch
    if torch.import_error:
        return Check(
            "torch", "failed", f"cannot be imported: {torch.import_error}", "pip install torch, in this Python"
        )
    if not torch.version:
        cure = "run python -c 'import torch' to see why"
        return Check("torch", "failed", f"its process ended early: {torch.ended or 'without a word'}", cure)
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "the CPU only"
    return Check("torch", "ok", f"{torch.version}, built for {built}")


def check_kineto(facts: MachineFacts) -> Check | None:
    """Whether the profiler's library is part of torch: without it, there are no traces at all (pytorch#124547)."""
    if not facts.torch.version:
        return None
    if facts.torch.kineto:
        return Check("Kineto", "ok", "built in", sources=MISSING_EVENTS)
    cure = "build torch with USE_KINETO=1, or install an official build"
    return Check("Kineto", "failed", "not built in: torch.autograd.kineto_available() is False", cure, MISSING_EVENTS)


def check_gpu(facts: MachineFacts) -> Check | None:
    """Whether torch sees a GPU; if not, whether there is one. A machine without a GPU records its CPU."""
    torch = facts.torch
    if torch.gpus:
        return Check("GPU", "ok", f"{len(torch.gpus)}: {', '.join(dict.fromkeys(torch.gpus))}")
    if not torch.version:
        return None
    has_nvidia = bool(facts.nvml_gpus or facts.driver)
    if not has_nvidia and not facts.has_kfd:
        cure = "none is needed for CPU traces; in a container, start it with --gpus all (AMD: --device /dev/kfd)"
        return Check("GPU", "warning", "none in this machine", cure if facts.container else "")
    there = facts.nvml_gpus[0].name if facts.nvml_gpus else "an NVIDIA driver" if has_nvidia else "an AMD GPU"
    hidden = [f"{name}={value!r}" for name, value in facts.environment.items() if name.endswith("VISIBLE_DEVICES")]
    seen, cure = f"{there} is here, torch sees no GPU ({torch.gpu_error or 'no error'})", "read torch's error"
    if not torch.cuda and not torch.hip:
        cure = f"this torch is built for the CPU only: {_INSTALL}"
    elif facts.has_kfd and torch.hip and not facts.can_open_kfd:
        cure = "this user may not open /dev/kfd: add it to the groups render and video"
    elif hidden:
        cure = f"{' '.join(hidden)} hides GPUs: unset it, or name one that is there"
    return Check("GPU", "failed", seen, cure)


def check_driver(facts: MachineFacts) -> Check | None:
    """Whether the driver supports the CUDA version of torch, which its CUPTI also needs."""
    needed = _version(facts.torch.cuda)
    if needed is None or not facts.driver:
        return None
    if facts.driver_cuda is None:
        cure = "install nvidia-ml-py to compare them"
        return Check("driver", "warning", f"{facts.driver}; the newest CUDA that it runs is unknown", cure)
    seen = f"{facts.driver}, runs CUDA up to {_dotted(facts.driver_cuda)}; torch was built for {facts.torch.cuda}"
    if facts.driver_cuda >= needed:
        return Check("driver", "ok", seen)
    cure = f"update the driver, or install a torch for CUDA {_dotted(facts.driver_cuda)} or older"
    return Check("driver", "failed" if facts.driver_cuda[0] < needed[0] else "warning", seen, cure)


def check_permission(facts: MachineFacts) -> Check | None:
    """Whether the driver lets this user profile. Without permission some drivers hide all GPU events."""
    if facts.admin_only is None:
        return None
    if not facts.admin_only:
        return Check("permission", "ok", "the driver lets every user profile", sources=_PERMISSIONS)
    if facts.is_admin:
        return Check("permission", "ok", "for admins only; this process has CAP_SYS_ADMIN", sources=_PERMISSIONS)
    seen = "the driver lets only admins profile (RmProfilingAdminOnly: 1), and this process lacks CAP_SYS_ADMIN"
    container = "start the container with --cap-add=SYS_ADMIN, or on its host " if facts.container else ""
    if facts.torch.kernels:
        seen += "; kernels are recorded all the same, hardware counters (Nsight Compute) are not"
    failed = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in facts.torch.cupti_errors
    return Check("permission", "failed" if failed else "warning", seen, container + _UNRESTRICTED, _PERMISSIONS)


def check_container(facts: MachineFacts) -> Check | None:
    """Whether this is a container, which may hide GPUs and drop capabilities; other checks find out."""
    return Check("container", "ok", f"inside one ({facts.container})") if facts.container else None


def check_mig(facts: MachineFacts) -> Check | None:
    """Whether the GPU is a slice of a card: times are those of the slice, but clock and power those of the whole
    card."""
    if not any(gpu.is_mig for gpu in facts.nvml_gpus):
        return None
    seen = "enabled: a process sees a slice of the GPU, whose neighbors share its clock, power and copy engines"
    cure = "compare times only with those of the same slice; for the whole GPU ask its owner to disable MIG"
    return Check("MIG", "warning", seen, cure)


def check_subscribers(facts: MachineFacts) -> Check | None:
    """Whether another program uses CUPTI, which serves one subscriber: the profiler may record nothing (kineto#859)."""
    variables = [name for name in INJECTIONS if name in facts.environment]
    if not variables and not facts.profilers:
        return Check("other profilers", "ok", "none", sources=MISSING_EVENTS) if facts.torch.gpus else None
    cures = [f"unset {' '.join(variables)}"] if variables else []
    if {"nv-hostengine", "dcgm-exporter"} & set(facts.profilers):
        cures.append("pause DCGM's counters with dcgmi profile --pause")
    if rest := [name for name in facts.profilers if name not in ("nv-hostengine", "dcgm-exporter")]:
        cures.append(f"end {', '.join(rest)}")
    seen = ", ".join([*(f"{name} is set" for name in variables), *(f"{name} runs" for name in facts.profilers)])
    taken = any("MULTIPLE_SUBSCRIBERS" in error for error in facts.torch.cupti_errors)
    status: Status = "failed" if taken or (facts.torch.kernels == 0 and variables) else "warning"
    return Check("other profilers", status, seen, "; ".join(cures), MISSING_EVENTS)


def check_activities(facts: MachineFacts) -> Check | None:
    """Whether this build of torch can record this machine's accelerator (`supported_activities`)."""
    torch = facts.torch
    if not torch.version:
        return None
    seen = ", ".join(torch.activities) or "none"
    if torch.gpus and not {"CUDA", "XPU", "HPU", "MTIA", "PrivateUse1"} & set(torch.activities):
        cure = f"this build of torch cannot record GPUs (no CUPTI or ROCTracer): {_INSTALL}"
        return Check("activities", "failed", f"{seen}; none of a GPU", cure, MISSING_EVENTS)
    return Check("activities", "ok", seen, sources=MISSING_EVENTS)


def check_cupti(facts: MachineFacts) -> Check | None:
    """Whether the loaded CUPTI belongs to torch's CUDA; another CUPTI, from LD_LIBRARY_PATH, records nothing."""
    torch = facts.torch
    needed = _version(torch.cuda)
    if needed is None or torch.stage != "done" or "CUDA" not in torch.activities:
        return None
    if not torch.cupti_loaded:
        return Check("CUPTI", "ok", "no shared library: linked into torch", sources=MISSING_EVENTS)
    majors = {match[1] for path in torch.cupti_loaded if (match := re.search(r"libcupti\.so\.(\d+)(?:\.|$)", path))}
    seen = f"{', '.join(torch.cupti_loaded)}; torch was built for CUDA {torch.cuda}"
    cure = "unset LD_LIBRARY_PATH, or take other CUDA toolkits out of it"
    if len(torch.cupti_loaded) > 1:
        return Check("CUPTI", "warning", f"more than one is loaded: {seen}", cure, MISSING_EVENTS)
    toolkit = {major for major in majors if len(major) < 4}  # libcupti.so.12 is CUDA's, libcupti.so.2025.1.0 is a year
    if toolkit and str(needed[0]) not in toolkit:
        return Check("CUPTI", "failed" if torch.kernels == 0 else "warning", seen, cure, MISSING_EVENTS)
    package = _version(torch.cupti_package)
    if package is not None and package != needed and package[0] < 100:
        cure = f"reinstall torch with its own dependencies (CUPTI {torch.cupti_package} is installed)"
        return Check("CUPTI", "warning", seen, cure, MISSING_EVENTS)
    return Check("CUPTI", "ok", seen, sources=MISSING_EVENTS)


def check_profile(facts: MachineFacts) -> Check | None:
    """The proof: whether a profile of one matrix product has a kernel."""
    torch = facts.torch
    if not torch.stage:
        return None
    if torch.stage != "done":
        cure = "profile with nothing else on the GPU; if it happens again, report it to pytorch/kineto with this line"
        return Check("tiny profile", "failed", f"the process that profiled ended: {torch.ended}", cure, MISSING_EVENTS)
    if torch.profile_error:
        return Check(
            "tiny profile", "failed", torch.profile_error, "run this work without the profiler first", MISSING_EVENTS
        )
    errors = f" ({', '.join(torch.cupti_errors)})" if torch.cupti_errors else ""
    if not torch.kernels:
        cure = "cure what the other lines name: permission, other profilers, CUPTI, driver; then call doctor again"
        return Check("tiny profile", "failed", f"no kernel in {torch.tries} profiles{errors}", cure, MISSING_EVENTS)
    seen = f"{torch.kernels} kernel{'s' * (torch.kernels != 1)} in a profile of one matmul and one sum{errors}"
    if torch.tries > 1:
        cure = "let a profile warm up: schedule(wait=1, warmup=1, active=3)"
        return Check("tiny profile", "warning", f"{seen}, none before profile {torch.tries}", cure, MISSING_EVENTS)
    return Check("tiny profile", "ok", seen, sources=MISSING_EVENTS)


def check_blocking(facts: MachineFacts) -> Check | None:
    """Whether CUDA_LAUNCH_BLOCKING makes every launch wait, so that traces cannot show how CPU and GPU overlap."""
    if facts.environment.get("CUDA_LAUNCH_BLOCKING", "0") in ("", "0"):
        return None
    cure = "unset CUDA_LAUNCH_BLOCKING"
    sources = ("discuss.pytorch.org/t/117133",)
    return Check("launch blocking", "warning", "CUDA_LAUNCH_BLOCKING is set: every launch waits", cure, sources)


def check_disk(facts: MachineFacts) -> Check:
    """Whether there is space for traces: a long run needs gigabytes (kineto#622, pytorch#130622)."""
    free = facts.free_bytes
    seen = f"{free / 1e9:,.1f} GB free in this folder"
    status: Status = "failed" if free < FEW_BYTES else "warning" if free < LITTLE_BYTES else "ok"
    cure = "" if status == "ok" else "free some, or write traces elsewhere; record few steps, and end the name in .gz"
    return Check("disk", status, seen, cure, ("kineto#622", "kineto#595", "pytorch#130622"))


CHECKS: tuple[Callable[[MachineFacts], Check | None], ...] = (
    check_torch,
    check_kineto,
    check_activities,
    check_gpu,
    check_driver,
    check_permission,
    check_container,
    check_mig,
    check_subscribers,
    check_cupti,
    check_blocking,
    check_profile,
    check_disk,
)


def _version(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
