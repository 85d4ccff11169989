"""Facts of this machine for `doctor`: from torch in a separate process, NVML, the driver's files, environment and
processes."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kinetoscope.doctor.torch_probe import MARK

PACKAGES = Path(__file__).resolve().parents[2]
"""Where this package is: the probe's process imports it from here."""
TIMEOUT_S = 180
"""Timeout of the process that imports torch and profiles: a cold import takes most of a minute from a network disk."""
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Variables with which Nsight and other tools load themselves into a process that uses CUDA."""
PROFILERS = ("nv-hostengine", "dcgm-exporter", "nsys", "nsys-launcher", "ncu", "dynolog")
"""Programs that subscribe to CUPTI or hold the GPU's counters."""
_CAP_SYS_ADMIN = 21
_CONTAINER = re.compile(r"docker|kubepods|containerd|libpod|lxc|garden")


class TorchFacts(Struct, frozen=True):
    """The output of `torch_probe`. `stage` is where it ended: empty before a profile, `profile` in it, `done` after."""

    import_error: str = ""
    version: str = ""
    cuda: str = ""
    """The CUDA version of torch's build, empty without CUDA."""
    hip: str = ""
    kineto: bool = False
    activities: tuple[str, ...] = ()
    cupti_package: str = ""
    """Version of the pip package that holds CUPTI, empty without one."""
    gpus: tuple[str, ...] = ()
    gpu_error: str = ""
    kernels: int | None = None
    """Number of kernels in the tiny profile; None without a profile."""
    tries: int = 0
    profile_error: str = ""
    cupti_loaded: tuple[str, ...] = ()
    stage: str = ""
    ended: str = ""
    """How the process ended, if not well: `signal 11`, `no answer in 180 s`."""
    cupti_errors: tuple[str, ...] = ()
    """CUPTI's errors in the output of the process: `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`."""


class NvmlGpu(Struct, frozen=True):
    """A GPU as NVML sees it."""

    name: str
    is_mig: bool = False


class MachineFacts(Struct, frozen=True):
    """A machine as data, all that the checks need."""

    torch: TorchFacts
    nvml_gpus: tuple[NvmlGpu, ...] = ()
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA version that the driver supports."""
    admin_only: bool | None = None
    """`RmProfilingAdminOnly` of the NVIDIA driver; None without such a driver."""
    is_admin: bool = False
    """Whether this process has CAP_SYS_ADMIN."""
    container: str = ""
    """`docker`, `kubepods`, ...; empty outside a container."""
    environment: Mapping[str, str] = {}
    """The relevant variables that are set."""
    profilers: tuple[str, ...] = ()
    has_kfd: bool = False
    """Whether there is an AMD GPU's device file, and whether this user may open it."""
    can_open_kfd: bool = False
    free_bytes: int = 0
    """Free bytes of the working folder's disk."""


def probe_machine() -> MachineFacts:
    """Collect the facts of this machine."""
    return read_facts(Path("/"), os.environ, run_torch_probe(), _nvml(), shutil.disk_usage(Path.cwd()).free)


def read_facts(
    root: Path, environment: Mapping[str, str], torch: TorchFacts, nvml: Any = None, free_bytes: int = 0
) -> MachineFacts:
    """The facts of a machine with this root folder, environment, torch and NVML."""
    driver, driver_cuda, gpus = nvml_facts(nvml)
    version = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", _read(root / "proc/driver/nvidia/version"))
    admin_only = re.search(r"RmProfilingAdminOnly:\s*(\d+)", _read(root / "proc/driver/nvidia/params"))
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(root / "proc/self/status"), re.MULTILINE)
    kfd = root / "dev/kfd"
    names = (*INJECTIONS, "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING")
    return MachineFacts(
        torch=torch,
        nvml_gpus=gpus,
        driver=driver or (version[1] if version else ""),
        driver_cuda=driver_cuda,
        admin_only=None if admin_only is None else admin_only[1] != "0",
        is_admin=capabilities is not None and bool(int(capabilities[1], 16) >> _CAP_SYS_ADMIN & 1),
        container=_container(root, environment),
        environment={name: environment[name] for name in names if name in environment},
        profilers=_running(root),
        has_kfd=kfd.exists(),
        can_open_kfd=os.access(kfd, os.R_OK | os.W_OK),
        free_bytes=free_bytes,
    )


def run_torch_probe(command: tuple[str, ...] = (), timeout_s: float = TIMEOUT_S) -> TorchFacts:
    """Run `torch_probe` with this Python. A crash, a hang or an error becomes part of the facts."""
    command = command or (sys.executable, "-m", "kinetoscope.doctor.torch_probe")
    path = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=timeout_s, check=False, env={**os.environ, "PYTHONPATH": path}
        )
        out, err, ended = done.stdout, done.stderr, _ending(done.returncode)
    except subprocess.TimeoutExpired as expired:
        out, err, ended = expired.stdout or b"", expired.stderr or b"", f"no answer in {timeout_s:g} s"
    except OSError as error:
        out, err, ended = b"", b"", f"did not start: {error.strerror}"
    return torch_facts(out.decode(errors="replace"), err.decode(errors="replace"), ended)


def torch_facts(out: str, err: str, ended: str) -> TorchFacts:
    """The facts in the lines that the probe printed, ignoring all other lines."""
    found: dict[str, Any] = {}
    for line in out.splitlines():
        try:
            found |= msgspec.json.decode(line, type=dict[str, dict[str, Any]])[MARK]
        except (msgspec.DecodeError, KeyError):
            continue
    errors = tuple(dict.fromkeys(re.findall(r"CUPTI_ERROR_[A-Z_]{3,60}", err)))
    return msgspec.convert({**found, "ended": ended, "cupti_errors": errors}, TorchFacts)


def nvml_facts(nvml: Any) -> tuple[str, tuple[int, int] | None, tuple[NvmlGpu, ...]]:
    """Driver, its CUDA version, and the GPUs; empty if NVML does not answer."""
    if nvml is None or not _ask(nvml, "nvmlInit", is_call_only=True):
        return "", None, ()
    driver, cuda = _ask(nvml, "nvmlSystemGetDriverVersion"), _ask(nvml, "nvmlSystemGetCudaDriverVersion")
    gpus = []
    for index in range(_ask(nvml, "nvmlDeviceGetCount") or 0):
        handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
        mode = _ask(nvml, "nvmlDeviceGetMigMode", handle)
        gpus.append(NvmlGpu(str(_ask(nvml, "nvmlDeviceGetName", handle) or "unknown"), bool(mode and mode[0])))
    return str(driver or ""), (cuda // 1000, cuda % 1000 // 10) if cuda else None, tuple(gpus)


def _ask(nvml: Any, name: str, *arguments: Any, is_call_only: bool = False) -> Any:
    try:
        answer = getattr(nvml, name)(*arguments)
    except Exception:  # no driver, not supported, no permission
        return None
    return True if is_call_only else answer


def _nvml() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _ending(code: int) -> str:
    return "" if code == 0 else f"signal {-code}" if code < 0 else f"exit code {code}"


def _container(root: Path, environment: Mapping[str, str]) -> str:
    match = _CONTAINER.search(_read(root / "proc/1/cgroup"))
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes"
    if match:
        return match[0]
    if (root / ".dockerenv").exists():
        return "docker"
    return "podman" if (root / "run/.containerenv").exists() else ""


def _running(root: Path) -> tuple[str, ...]:
    """Names of other running profilers."""
    names = {_read(path) for path in (root / "proc").glob("[0-9]*/comm")}
    return tuple(name for name in PROFILERS if name[:15] in names)  # the kernel keeps 15 characters


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""
