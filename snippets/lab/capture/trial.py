"""A trial of experiments: does each of them run here? Nothing is timed or recorded.

A loop or a step is built, compared with its reference, and profiled; a probe measures with its `trial` parameters.
Experiments with the same number of GPUs and the same environment share processes, also probes, because starting
processes takes longer than most trials. A failure ends them; the rest continues in fresh processes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from snippets.lab.capture.supervisor import Event, Group, run_worker
from snippets.lab.experiment import TRIAL, Experiment

RunTrial = Callable[[list[Group], Path, int], Iterator[Event]]
"""Groups, a folder for their files, and `TRIAL` -> its events."""
STARTS_S = 40
"""For processes to import torch and to meet."""


@dataclass(frozen=True)
class Tried:
    """The trial of one experiment."""

    experiment: Experiment
    failed: str
    """The cause; empty if it ran."""
    seconds: float
    """Since the trial before it ended; of the first experiment in a process, with the start of the process."""


def try_experiments(
    chosen: Iterable[Experiment],
    device: str,
    limit_s: int,
    package: str = "snippets",
    run: RunTrial | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Tried]:
    """Try experiments, in their order as far as they share processes.

    Args:
        chosen: the experiments.
        device: `cuda`, or `cpu` with one thread a rank.
        limit_s: an experiment that takes longer fails, and its processes are killed.
        package: the package of the chapters.
        run: starts one process; tests pass their own.
        clock: in seconds.
    """
    start = run or partial(run_worker, package=package, torch_device=device)
    for left in trial_batches(chosen):
        while left:
            begin = clock()
            with tempfile.TemporaryDirectory(prefix="profiling-pytorch-") as folder:
                for event in start(_limited(left, limit_s), Path(folder), TRIAL):
                    if "doing" in event:
                        continue
                    failed = str(event.get("failed", ""))
                    place = next((at for at, one in enumerate(left) if one.id == event.get("experiment")), 0)
                    yield Tried(left.pop(place if failed else 0), failed, clock() - begin)
                    begin = clock()
                    if not left:
                        break


def trial_batches(chosen: Iterable[Experiment]) -> list[list[Experiment]]:
    """Experiments that share processes, probes last: they may leave CUDA graphs, which a profiler dislikes. One that
    needs a cold process is alone."""
    batches: dict[object, list[Experiment]] = {}
    for one in sorted(chosen, key=lambda one: one.probe is not None):
        place = one.chapter, one.gpus, tuple(sorted(one.environment.items()))
        batches.setdefault(place if one.first_steps else one.id, []).append(one)
    return [*batches.values()]


def _limited(left: list[Experiment], limit_s: int) -> list[Group]:
    """Each experiment as a group of its own with this limit; the first has time to start its processes, too."""
    first, *others = (replace(one, time_limit_s=limit_s) for one in left)
    return [(replace(first, time_limit_s=limit_s + STARTS_S),), *((one,) for one in others)]
