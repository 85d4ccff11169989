"""The CPU by Linux's files: model, cores, frequency governor, virtual or not."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

ROOT = Path("/")
VIRTUAL = ("kvm", "qemu", "vmware", "virtualbox", "virtual machine", "xen", "hvm", "bochs", "google", "amazon ec2")
"""Parts of the names that virtual machines give themselves in /sys/class/dmi."""


def cpu_circumstances(root: Path = ROOT) -> dict[str, Any]:
    """Fields of `Environment`: cpu, cpu_cores, cpu_affinity, cpu_governor and virtualized."""
    cpuinfo = _read(root / "proc/cpuinfo")
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 0))
    governor = root / f"sys/devices/system/cpu/cpu{next(iter(allowed), 0)}/cpufreq/scaling_governor"
    return {
        "cpu": " ".join(_field(cpuinfo, "model name").split()) or platform.processor() or platform.machine(),
        "cpu_cores": os.cpu_count() or 0,
        "cpu_affinity": len(allowed),
        "cpu_governor": _read(governor),
        "virtualized": _virtualized(cpuinfo, root / "sys/class/dmi/id"),
    }


def _virtualized(cpuinfo: str, dmi: Path) -> str:
    """`yes` or `no`; empty if neither the CPU nor the firmware tells. A container is not a virtual machine."""
    flags = _field(cpuinfo, "flags").split()
    if "hypervisor" in flags:
        return "yes"
    firmware = " ".join(_read(dmi / name) for name in ("sys_vendor", "product_name")).lower()
    if any(name in firmware for name in VIRTUAL):
        return "yes"
    return "no" if flags or firmware.strip() else ""


def _field(cpuinfo: str, name: str) -> str:
    """The first value of a field of /proc/cpuinfo."""
    match = re.search(rf"^{name}[ \t]*:[ \t]*(.*)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else ""


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""
