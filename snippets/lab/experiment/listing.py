"""Finds the chapters and their experiments: `<chapter>/experiments.py`, or a package `<chapter>/experiments/`."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from snippets.lab.experiment.description import Experiment
from snippets.lab.experiment.errors import ExperimentError, UnknownName, nearest


def package_folder(package: str = "snippets") -> Path:
    """The folder of a package of chapters."""
    (folder,) = importlib.import_module(package).__path__
    return Path(folder)


def chapters(package: str = "snippets") -> tuple[str, ...]:
    """Chapters with experiments, found by their folders, sorted by name."""
    with os.scandir(package_folder(package)) as entries:  # not a glob: a build asks 8,000 times
        return tuple(sorted(entry.name for entry in entries if _has_experiments(entry.path)))


def _has_experiments(folder: str) -> bool:
    return any(os.path.isfile(f"{folder}/experiments{end}") for end in (".py", "/__init__.py"))


def experiments(chapter: str, package: str = "snippets") -> tuple[Experiment, ...]:
    """All experiments of a chapter, in the order in which `EXPERIMENTS` lists them."""
    if chapter not in chapters(package):
        raise UnknownName(f"no chapter {chapter!r}{nearest(chapter, chapters(package))}")
    module = f"{package}.{chapter}.experiments"
    listed: tuple[Experiment, ...] = importlib.import_module(module).EXPERIMENTS
    names: set[str] = set()
    points: dict[str, int] = {}
    first_of: dict[str, Experiment] = {}
    for experiment in listed:
        if experiment.chapter != chapter:
            raise ExperimentError(f"{module} lists {experiment.id}; write chapter={chapter!r}")
        if experiment.name in names:
            raise ExperimentError(f"{module} lists {experiment.id} twice; give one of them another name")
        names.add(experiment.name)
        if experiment.group and points.setdefault(experiment.group, len(experiment.points)) != len(experiment.points):
            raise ExperimentError(
                f"{experiment.id}: the group {experiment.group!r} is timed interleaved, so its sweeps are equally long"
            )
        first = first_of.setdefault(experiment.group, experiment) if experiment.group else experiment
        if (experiment.loop is None) != (first.loop is None):
            raise ExperimentError(f"{experiment.id}: the group {experiment.group!r} has loops only, or none")
        if (experiment.gpus, experiment.environment) != (first.gpus, first.environment):
            raise ExperimentError(
                f"{experiment.id}: the group {experiment.group!r} shares processes, so all have the same gpus and "
                "environment"
            )
    return listed


def find(name: str, package: str = "snippets") -> tuple[Experiment, ...]:
    """Experiments by name: all of a chapter (`mlp`) or one (`mlp/eager`)."""
    chapter, _, experiment = name.partition("/")
    of_chapter = experiments(chapter, package)
    if not experiment:
        return of_chapter
    matches = tuple(candidate for candidate in of_chapter if candidate.name == experiment)
    if not matches:
        raise UnknownName(f"no experiment {name!r}{nearest(name, (candidate.id for candidate in of_chapter))}")
    return matches
