"""The CPU by Linux's files, in a folder of the test."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from snippets.lab.capture.cpu import cpu_circumstances

BARE = """\
processor	: 0
model name	: Intel(R) Xeon(R)  Platinum 8480C
flags		: fpu vme

processor	: 1
model name	: Another
"""
VIRTUAL = BARE.replace("fpu vme", "fpu hypervisor vme")
ARM = "processor\t: 0\nCPU implementer\t: 0x41\n"


def machine(root: Path, cpuinfo: str, governor: str = "", **dmi: str) -> Path:
    first = min(os.sched_getaffinity(0))
    files = {"proc/cpuinfo": cpuinfo, f"sys/devices/system/cpu/cpu{first}/cpufreq/scaling_governor": governor}
    files |= {f"sys/class/dmi/id/{name}": value for name, value in dmi.items()}
    for name, text in files.items():
        if text:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
    return root


def test_a_machine_that_says_everything(tmp_path: Path) -> None:
    assert cpu_circumstances(machine(tmp_path, BARE, "performance")) == {
        "cpu": "Intel(R) Xeon(R) Platinum 8480C",
        "cpu_cores": os.cpu_count(),
        "cpu_affinity": len(os.sched_getaffinity(0)),
        "cpu_governor": "performance",
        "virtualized": "no",
    }


def test_the_cores_that_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 6, 7}, raising=False)
    found = cpu_circumstances(machine(tmp_path, BARE, "powersave"))
    assert (found["cpu_affinity"], found["cpu_governor"]) == (3, "powersave"), "of the first core that may be used"


@pytest.mark.parametrize(
    ("cpuinfo", "dmi", "expected"),
    [
        (BARE, {}, "no"),
        (VIRTUAL, {}, "yes"),
        (BARE, {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge"}, "no"),
        (ARM, {}, ""),
        (ARM, {"sys_vendor": "QEMU"}, "yes"),
        (ARM, {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, "yes"),
        (ARM, {"sys_vendor": "NVIDIA", "product_name": "Grace"}, "no"),
        ("", {}, ""),
    ],
)
def test_virtual_or_not(tmp_path: Path, cpuinfo: str, dmi: dict[str, str], expected: str) -> None:
    assert cpu_circumstances(machine(tmp_path, cpuinfo, **dmi))["virtualized"] == expected


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    found = cpu_circumstances(tmp_path)
    assert found["cpu"] == (platform.processor() or platform.machine())
    assert (found["cpu_governor"], found["virtualized"]) == ("", "")
