"""A recording's data about its machine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from snippets.lab.capture.cpu import cpu_circumstances
from snippets.lab.capture.environment import commit, environment, gpu_circumstances, host_names, link, nvidia_smi
from snippets.lab.capture.gpu import Gpu, open_gpu
from tests.lab.capture.nvml import Card, FakeNvml

NOTHING = {"driver": "", "power_limit_w": 0.0, "mig": "", "ecc": "", "persistence": "", "clocks": {}}


def test_the_commit_of_a_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMMIT", "0123456789abcdef")
    assert commit() == "0123456789ab"
    monkeypatch.delenv("COMMIT")
    assert commit(tmp_path) == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == "unknown", "a machine without git can record"


def test_the_environment_of_a_cpu() -> None:
    place = environment("cpu")
    assert place.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (place.driver, place.multiprocessors, place.clocks) == ("", 0, {})
    assert {name: getattr(place, name) for name in cpu_circumstances()} == cpu_circumstances()


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_nvml_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "echo '1, 2, 3, 4, 5'")
    gpu = open_gpu(FakeNvml(Card("GPU-abc")), "0", str)
    assert gpu_circumstances(gpu, "abc") == gpu.circumstances()
    assert gpu_circumstances(Gpu(), "") == NOTHING, "a CPU"


def test_without_nvml_nvidia_smi_is_asked_for_this_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, 'test "$1" = --id=GPU-abc && echo "580.1, 1980, 2619, 465.25, [N/A]"')
    clocks = {"sm_mhz": 1980.0, "memory_mhz": 2619.0, "power_w": 465.25}
    assert gpu_circumstances(Gpu(), "abc") == {**NOTHING, "driver": "580.1", "clocks": clocks}
    assert gpu_circumstances(Gpu(), "other") == NOTHING


@pytest.mark.parametrize("script", ["exit 6", "true", "echo '1, 2, 3'"])
def test_nvidia_smi_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    smi(tmp_path, monkeypatch, script)
    assert nvidia_smi("driver_version", "clocks.sm", uuid="abc") == {}
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert nvidia_smi("driver_version", "clocks.sm", uuid="abc") == {}


def test_odd_bytes_of_nvidia_smi_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "printf '580\\377, 1980\\n'")
    assert nvidia_smi("driver_version", "clocks.sm", uuid="abc") == {"driver_version": "580\ufffd", "clocks.sm": "1980"}


def test_the_environment_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that torch, NVML and Linux say goes into its field; neither UUID nor host name does."""
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        major=9,
        minor=0,
        multi_processor_count=132,
        total_memory=85_000_000_000,
        L2_cache_size=52_428_800,
        uuid="abc-1",
    )
    gpu = open_gpu(FakeNvml(Card("GPU-abc-1")), "0", str)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr("snippets.lab.capture.environment.open_gpu", lambda: gpu)
    place = environment("cuda")
    assert (place.device, place.compute_capability, place.multiprocessors) == ("NVIDIA H100 80GB HBM3", "9.0", 132)
    assert (place.memory_bytes, place.l2_bytes) == (85_000_000_000, 52_428_800)
    found = msgspec.to_builtins(place)
    assert {name: found[name] for name in gpu.circumstances()} == gpu.circumstances()
    assert {name: found[name] for name in cpu_circumstances()} == cpu_circumstances()
    assert not any(secret in str(found) for secret in ("abc-1", *host_names()))
    assert (place.gpus, place.link, "nccl" in place.versions) == (1, "", False)


@pytest.mark.parametrize(
    ("links", "count", "reaches", "expected"),
    [
        (18, 2, True, "NVLink 4.0, 18 links, peer access"),
        (0, 2, True, "PCIe, peer access"),
        (0, 2, False, "PCIe, no peer access"),
        (0, 1, True, "PCIe, no peer access"),
    ],
)
def test_the_link_of_several_gpus(
    monkeypatch: pytest.MonkeyPatch, links: int, count: int, reaches: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: count - 1)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda here, there: reaches and (here, there) == (1, 0))
    assert link(open_gpu(FakeNvml(Card("GPU-a", nvlinks=[1] * links)), "0", str)) == expected
