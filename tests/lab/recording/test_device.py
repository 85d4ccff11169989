"""Devices by name: which are recorded, which one this machine has, and which one pages open with."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.recording.device import (
    AMD_ONLY,
    NO_SLICE,
    PROJECT,
    default_device,
    recorded_devices,
    recorded_names,
    recordings_root,
    short_name,
    slug,
    this_device,
    visible_gpu,
    why_no_device,
)
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import NotRecorded
from tests.lab.samples import sample, save_all


def test_what_is_recorded_where(tmp_path: Path) -> None:
    assert recorded_devices(tmp_path / "none") == ()
    for device in ("zeta", "alpha", "nvidia-h200"):
        save_all(tmp_path, sample(), sample("mlp/new", has_trace=False), device=device)
    (tmp_path / "empty" / "mlp").mkdir(parents=True)
    assert recorded_devices(tmp_path) == ("nvidia-h200", "alpha", "zeta")
    assert recorded_names(tmp_path, "zeta", "mlp") == ("eager", "new")
    assert recorded_names(tmp_path, "zeta", "linear") == ()
    assert [recording.id for recording in load_recordings(tmp_path, "zeta")] == ["mlp/eager", "mlp/new"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA H200", "nvidia-h200"),
        ("  NVIDIA  GeForce RTX™ 4090 ", "nvidia-geforce-rtx-4090"),
        ("../../etc", "etc"),
        ("", "unknown"),
        ("™", "unknown"),
    ],
)
def test_slug(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str | None]:
    """The result of `this_device` with this shell script as nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "bin").mkdir()

    def ask(script: str) -> str | None:
        if script:
            path = tmp_path / "bin" / "nvidia-smi"
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        this_device.cache_clear()
        return this_device()

    return ask


@pytest.fixture(autouse=True)
def _forget_the_device() -> Any:
    yield
    this_device.cache_clear()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", None),
        ("exit 9", None),
        ("echo 'NVIDIA-SMI has failed'; exit 1", None),
        ("true", None),
        ("test $1 = -L && echo 'GPU 0: NVIDIA H200 (UUID: GPU-a1)'", "nvidia-h200"),
    ],
)
def test_this_device(nvidia_smi: Callable[[str], str | None], script: str, expected: str | None) -> None:
    assert nvidia_smi(script) == expected


def test_this_device_is_the_one_that_cuda_would_use(
    nvidia_smi: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-a1)'; echo 'GPU 1: NVIDIA T4 (UUID: GPU-b2)'"
    assert nvidia_smi(script) == "nvidia-h200"
    for visible, expected in (("1", "nvidia-t4"), ("GPU-b2", "nvidia-t4"), ("", None), ("2", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert nvidia_smi(script) == expected


@pytest.mark.parametrize(
    ("script", "visible", "expected"),
    [
        ("", None, ""),
        ("echo 'No devices were found'; exit 6", None, ""),
        ("echo 'GPU 0: NVIDIA T4 (UUID: GPU-a1)'", None, ""),
        ("echo 'GPU 0: NVIDIA T4 (UUID: GPU-a1)'", "0", ""),
        ("echo 'GPU 0: NVIDIA T4 (UUID: GPU-a1)'", "", "CUDA_VISIBLE_DEVICES='' hides this machine's GPU: unset it, "),
        ("echo 'GPU 0: NVIDIA T4 (UUID: GPU-a1)'", "1", "CUDA_VISIBLE_DEVICES='1' hides this machine's GPU: unset "),
        ("echo 'NVIDIA-SMI has failed.'; exit 9", None, "nvidia-smi fails (NVIDIA-SMI has failed): repair or reload "),
        ("exit 9", "0", "nvidia-smi fails (exit code 9): repair or reload the NVIDIA driver"),
    ],
)
def test_an_unusable_gpu_is_not_a_missing_gpu(
    nvidia_smi: Callable[[str], str | None],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    visible: str | None,
    expected: str,
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvidia_smi(script)
    assert why_no_device().startswith(expected)
    assert bool(why_no_device()) == bool(expected)


def test_a_gpu_of_amd_is_named(
    nvidia_smi: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("snippets.lab.recording.device.AMD_GPU", tmp_path)
    nvidia_smi("")
    assert why_no_device() == AMD_ONLY
    nvidia_smi("echo 'GPU 0: NVIDIA T4 (UUID: GPU-a1)'")
    assert why_no_device() == ""


A100 = "echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a1)'"
SLICE = "echo '  MIG 7g.40gb     Device  0: (UUID: MIG-c3)'"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"test $1 = -L && {A100} || echo Enabled", NO_SLICE),
        (f"test $1 = -L && {{ {A100}; {SLICE}; }} || echo Enabled", ""),
        (f"test $1 = -L && {A100} || echo Disabled", ""),
        (f"test $1 = -L && {A100} || echo '[N/A]'", ""),
        (f"test $1 = -L && {A100} || exit 2", ""),
    ],
)
def test_a_card_in_mig_mode_without_a_slice(
    nvidia_smi: Callable[[str], str | None], script: str, expected: str
) -> None:
    nvidia_smi(script)
    assert why_no_device() == expected


LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a1)
  MIG 3g.20gb     Device  0: (UUID: MIG-c3)
  MIG 1g.5gb      Device  1: (UUID: MIG-d4)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b2)
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("1", "NVIDIA H100 80GB HBM3"),
        ("1,0", "NVIDIA H100 80GB HBM3"),
        (" 1 ", "NVIDIA H100 80GB HBM3"),
        ("GPU-b", "NVIDIA H100 80GB HBM3"),
        ("MIG-d4", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
        ("2", ""),
        ("-1", ""),
        ("", ""),
        ("GPU-x", ""),
    ],
)
def test_the_gpu_that_cuda_would_use(visible: str, expected: str) -> None:
    assert visible_gpu(LISTING, visible) == expected


def test_a_driver_that_hangs_is_no_device(
    nvidia_smi: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hanging(command: list[str], **options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", hanging)
    assert nvidia_smi("true") is None


def test_the_default_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEVICE", raising=False)
    here: list[str | None] = [None]
    monkeypatch.setattr("snippets.lab.recording.device.this_device", lambda: here[0])
    assert default_device(tmp_path) == "nvidia-h200"
    save_all(tmp_path, sample(), device="nvidia-t4")
    assert default_device(tmp_path) == "nvidia-h200"
    here[0] = "nvidia-t4"
    assert default_device(tmp_path) == "nvidia-t4"
    here[0] = "nvidia-unrecorded"
    assert default_device(tmp_path) == "nvidia-h200"
    monkeypatch.setenv("DEVICE", "nvidia-t4")
    assert default_device(tmp_path) == "nvidia-t4"


def test_a_device_asked_for_has_to_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "nvidia-x")
    with pytest.raises(NotRecorded, match=r"^DEVICE=nvidia-x is not recorded; recorded are none$"):
        default_device(tmp_path)
    save_all(tmp_path, sample(), device="nvidia-t4")
    with pytest.raises(NotRecorded, match=r"recorded are nvidia-t4$"):
        default_device(tmp_path)


def test_the_folder_of_all_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("", PROJECT / "docs" / "recordings"), (str(tmp_path), tmp_path)):
        monkeypatch.setenv("RECORDINGS", value)
        assert recordings_root() == expected
    monkeypatch.delenv("RECORDINGS")
    assert recordings_root() == PROJECT / "docs" / "recordings"


@pytest.mark.parametrize(
    ("device", "expected"),
    [("nvidia-h200", "H200"), ("nvidia-a100-sxm4-80gb", "A100 SXM4 80GB"), ("amd-mi300x", "AMD MI300X")],
)
def test_a_device_as_a_page_calls_it(device: str, expected: str) -> None:
    assert short_name(device) == expected
