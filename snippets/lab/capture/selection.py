"""TODO."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from snippets.lab.experiment import Experiment, NeedsGpu, experiments
from snippets.lab.recording.device import DEFAULT_DEVICE, RECORDINGS, slug, this_device
from snippets.lab.recording.digest import is_stale
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError
from snippets.lab.trace.events import TraceError


class NoGpu(NeedsGpu):
    """Recording was asked for where there is no CUDA GPU."""


def require_gpu() -> str:
    """The slug of the GPU that will be recorded. Raises `NoGpu`."""
    seen = this_device()
    if not torch.cuda.is_available() and seen is not None:
        raise NoGpu(
            f"this machine has a GPU ({seen}), but torch {torch.__version__} cannot use it: install a CUDA build of "
            f"torch that fits its driver, or show other recordings with DEVICE={DEFAULT_DEVICE} make docs"
        )
    if not torch.cuda.is_available():
        raise NoGpu(
            "no CUDA GPU here, and recordings are only ever made on one. To see an experiment on this machine's CPU: "
            "python -m snippets.lab run CHAPTER/EXPERIMENT"
        )
    return slug(torch.cuda.get_device_name(0))


def select_pending(chosen: Iterable[Experiment], device: str, fresh: bool, root: Path = RECORDINGS) -> list[Experiment]:
    """Those that need recording: all when `fresh`, else the missing, the stale and the unreadable.

    Experiments of one group are compared with each other, so one that needs recording takes its group along.
    """
    chosen = tuple(chosen)
    needed = [experiment for experiment in chosen if fresh or not _is_current(experiment, device, root)]
    groups = {(experiment.chapter, experiment.group) for experiment in needed if experiment.group}
    mates = [mate for chapter in {c for c, _ in groups} for mate in experiments(chapter, _package(chosen))]
    together = [mate for mate in mates if (mate.chapter, mate.group) in groups]
    return list({experiment.id: experiment for experiment in [*needed, *together]}.values())


def _package(chosen: tuple[Experiment, ...]) -> str:
    for experiment in chosen:
        maker = experiment.make or experiment.measure
        if maker is not None and maker.__module__.endswith(f".{experiment.chapter}.experiments"):
            return maker.__module__.removesuffix(f".{experiment.chapter}.experiments")
    return "snippets"


def _is_current(experiment: Experiment, device: str, root: Path) -> bool:
    try:
        found = load_recording(experiment.id, device, root)
        if experiment.is_traced:
            load_trace(experiment.id, device, root)
    except (RecordingError, TraceError):
        return False
    return not is_stale(found)
