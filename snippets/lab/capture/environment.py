"""Place and time of a measurement: CPU, GPU, versions, clocks, commit."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

import torch

from snippets.lab.capture.cpu import cpu_circumstances
from snippets.lab.capture.gpu import Gpu, open_gpu
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.schema import Environment


def host_names() -> tuple[str, ...]:
    """This machine's names, which no recording keeps."""
    return tuple(name for name in {socket.gethostname(), platform.node()} if len(name) > 2)


def now() -> str:
    """UTC to the second, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def environment(device: str, gpus: int = 1) -> Environment:
    """Machine, versions and clocks of this process; of an experiment on several GPUs, also their link and NCCL."""
    cuda = device == "cuda"
    properties = torch.cuda.get_device_properties(0) if cuda else None  # rank 0 has it, too
    gpu = open_gpu() if cuda else Gpu()
    return Environment(
        date=now(),
        commit=commit(),
        device=properties.name if properties else platform.processor() or "cpu",
        compute_capability=f"{properties.major}.{properties.minor}" if properties else "",
        multiprocessors=properties.multi_processor_count if properties else 0,
        memory_bytes=properties.total_memory if properties else 0,
        l2_bytes=properties.L2_cache_size if properties else 0,
        cuda=torch.version.cuda or "",
        versions=versions() | (nccl_version() if gpus > 1 else {}),
        gpus=gpus,
        link=link(gpu) if gpus > 1 and cuda else "",
        **cpu_circumstances(),
        **gpu_circumstances(gpu, str(properties.uuid) if properties else ""),
    )


def link(gpu: Gpu) -> str:
    """How this process's GPU reaches the next: `NVLink 4.0, 18 links, peer access`, or `PCIe, no peer access`."""
    count = torch.cuda.device_count()
    here = torch.cuda.current_device()
    reaches = count > 1 and torch.cuda.can_device_access_peer(here, (here + 1) % count)
    return f"{gpu.nvlink() or 'PCIe'}, {'' if reaches else 'no '}peer access"


def nccl_version() -> dict[str, str]:
    """The version of NCCL that torch uses; empty for a torch without NCCL."""
    if not torch.distributed.is_nccl_available():
        return {}
    return {"nccl": ".".join(map(str, torch.cuda.nccl.version()))}


def versions() -> dict[str, str]:
    """Versions of Python, torch, Triton and the kernel libraries."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("triton", "kernels", "liger-kernel"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def gpu_circumstances(gpu: Gpu, uuid: str) -> dict[str, Any]:
    """NVML's fields of `Environment`; without NVML, driver and clocks of the card with this UUID, from nvidia-smi."""
    found = gpu.circumstances()
    if gpu or not uuid:
        return found
    smi = nvidia_smi("driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", uuid=uuid)
    names = {"clocks.sm": "sm_mhz", "clocks.mem": "memory_mhz"}
    names |= {"power.draw": "power_w", "temperature.gpu": "temperature_c"}
    clocks = {short: float(smi[name]) for name, short in names.items() if _is_number(smi.get(name, ""))}
    return {**found, "driver": smi.get("driver_version", ""), "clocks": clocks}


def nvidia_smi(*fields: str, uuid: str) -> dict[str, str]:
    """Fields of `nvidia-smi --query-gpu` for one GPU; empty if it does not answer."""
    command = ["nvidia-smi", f"--id=GPU-{uuid}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        reply = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = next(iter(reply.stdout.splitlines()), "").split(", ")
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def commit(project: Path = PROJECT) -> str:
    """Short hash of the checkout, with `+` if files of `snippets` differ from it; `COMMIT` without git."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"][:12]
    git = ["git", "-C", str(project)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain", "snippets"], capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
