"""The experiments that need recording, and the GPU for them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from snippets.lab.capture.selection import NoGpu, recorded_cost_s, select_pending, usable_gpu
from snippets.lab.experiment import Experiment
from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.loading import trace_path
from tests.lab import samples
from tests.lab.capture.faults import FAULTS, PACKAGE, RIGHT, current
from tests.lab.samples import DEVICE, save_all

EVERYTHING = [one.name for one in FAULTS]


def pending(
    root: Path, chosen: Iterable[Experiment] = FAULTS, *, device: str = DEVICE, fresh: bool = False
) -> list[str]:
    return [one.name for one in select_pending(root, device, chosen, fresh, PACKAGE)]


def test_what_needs_recording(tmp_path: Path) -> None:
    assert pending(tmp_path) == EVERYTHING
    save_all(tmp_path, *(current(one.id) for one in FAULTS))
    assert pending(tmp_path) == []
    assert pending(tmp_path, fresh=True) == EVERYTHING
    assert pending(tmp_path, device="nvidia-other") == EVERYTHING
    assert pending(tmp_path, [*RIGHT, *RIGHT], fresh=True) == ["right", "wrong"]


@pytest.mark.parametrize(
    ("name", "fault", "needed"),
    [
        ("raises", "stale", ["raises"]),
        ("raises", "missing", ["raises"]),
        ("raises", "damaged", ["raises"]),
        ("raises", "no trace", ["raises"]),
        ("raises", "damaged trace", ["raises"]),
        ("raises", "untraced", ["raises"]),
        ("right", "stale", ["right", "wrong"]),
        ("wrong", "damaged trace", ["wrong", "right"]),
    ],
)
def test_one_that_needs_recording_takes_its_group_along(
    tmp_path: Path, name: str, fault: str, needed: list[str]
) -> None:
    save_all(tmp_path, *(current(one.id) for one in FAULTS))
    recording = current(f"faults/{name}", has_trace=fault != "untraced")
    save_all(tmp_path, msgspec.structs.replace(recording, fingerprint="0" * 16) if fault == "stale" else recording)
    json_file = chapter_folder(tmp_path, DEVICE, "faults") / f"{name}.json"
    trace_file = trace_path(tmp_path, DEVICE, recording)
    if fault == "missing":
        json_file.unlink()
    elif fault == "damaged":
        json_file.write_text("{")
    elif fault == "no trace":
        trace_file.unlink()
    elif fault == "damaged trace":
        samples.damage(trace_file, lambda content: content[:30])
    assert pending(tmp_path) == needed


def test_the_gpu_of_torch_is_recorded() -> None:
    assert usable_gpu("NVIDIA H200", "nvidia-h200") == "nvidia-h200"
    assert usable_gpu("NVIDIA A100-SXM4-80GB", None) == "nvidia-a100-sxm4-80gb"


def test_without_a_gpu_nothing_is_recorded() -> None:
    with pytest.raises(NoGpu, match=r"^no CUDA GPU here, .*python -m snippets\.lab run CHAPTER/EXPERIMENT$"):
        usable_gpu(None, None)
    with pytest.raises(NoGpu, match=r"^this machine has a GPU \(nvidia-t4\), but torch .* cannot use it"):
        usable_gpu(None, "nvidia-t4")


def test_what_an_experiment_costs_is_known_from_this_gpu_else_another_else_its_limit(tmp_path: Path) -> None:
    (right,) = RIGHT
    assert recorded_cost_s(tmp_path, DEVICE)(right) == right.time_limit_s
    save_all(tmp_path, current("faults/right", capture_s=40.0), device="nvidia-other")
    assert recorded_cost_s(tmp_path, DEVICE)(right) == 40
    save_all(tmp_path, current("faults/right", capture_s=12.5))
    assert recorded_cost_s(tmp_path, DEVICE)(right) == 12.5
    assert recorded_cost_s(tmp_path, "nvidia-other")(right) == 40
