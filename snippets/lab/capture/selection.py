"""Which experiments need recording, and the GPU that can record them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from kinetoscope.trace.events import TraceError
from snippets.lab.experiment import Experiment, NeedsGpu, experiments, package_folder
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_devices, slug, this_device
from snippets.lab.recording.fingerprint import is_stale
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError


class NoGpu(NeedsGpu):
    """Recording was requested on a machine without a CUDA GPU."""


def require_gpu() -> str:
    """The slug of this machine's GPU. Raises `NoGpu`."""
    return usable_gpu(torch.cuda.get_device_name(0) if torch.cuda.is_available() else None, this_device())


def count_gpus() -> int:
    """The number of GPUs that torch can use."""
    return torch.cuda.device_count()


def usable_gpu(torch_name: str | None, installed: str | None) -> str:
    """The slug of torch's GPU. If torch has no GPU, `NoGpu` names the cure, for an installed or a missing GPU."""
    if torch_name is not None:
        return slug(torch_name)
    if installed is not None:
        raise NoGpu(
            f"this machine has a GPU ({installed}), but torch {torch.__version__} cannot use it: install a CUDA build "
            f"of torch that fits its driver, or show other recordings with DEVICE={DEFAULT_DEVICE} make docs"
        )
    raise NoGpu(
        "no CUDA GPU here, and recordings are only ever made on one. To see an experiment on this machine's CPU: "
        "python -m snippets.lab run CHAPTER/EXPERIMENT"
    )


def select_pending(
    root: Path, device: str, chosen: Iterable[Experiment], fresh: bool, package: str = "snippets"
) -> list[Experiment]:
    """Select missing, stale or unreadable experiments, or all if `fresh`.

    Experiments of one group are compared with each other, so one that needs recording takes its group along.
    """
    needed = [one for one in chosen if fresh or not _is_current(root, device, one, package_folder(package))]
    groups = {(experiment.chapter, experiment.group) for experiment in needed if experiment.group}
    mates = [mate for chapter in {chapter for chapter, _ in groups} for mate in experiments(chapter, package)]
    together = [mate for mate in mates if (mate.chapter, mate.group) in groups]
    return list({experiment.id: experiment for experiment in [*needed, *together]}.values())


def _is_current(root: Path, device: str, experiment: Experiment, sources: Path) -> bool:
    try:
        recording = load_recording(root, device, experiment.id)
        if experiment.is_traced:
            load_trace(root, device, experiment.id)
    except (RecordingError, TraceError):
        return False
    return not is_stale(recording, experiment, sources)


def recorded_cost_s(root: Path, device: str) -> Callable[[Experiment], float]:
    """Estimated seconds of an experiment's group: recorded on this device, else on another device, else its limit."""

    def cost_s(experiment: Experiment) -> float:
        for name in dict.fromkeys((device, *recorded_devices(root))):
            try:
                return load_recording(root, name, experiment.id).capture_s
            except RecordingError:
                continue
        return float(experiment.time_limit_s)

    return cost_s
