"""One process that measures groups of experiments and leaves finished recordings in a folder.

The supervisor starts it. Every line on the event pipe is JSON: {"experiment", "doing"}, {"finished": [ids of a group]}
or {"experiment", "failed"}. The first failure ends the process, because an illegal access leaves the CUDA context
unusable for the others.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

import msgspec
import torch

from snippets.lab.capture.ceilings import measure_ceilings
from snippets.lab.capture.checking import build_subject, relative_error
from snippets.lab.capture.environment import environment, host_names, now
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.profiling import trace_of
from snippets.lab.capture.timing import time_interleaved
from snippets.lab.experiment import Experiment, Parameters, Subject, find, package_folder
from snippets.lab.recording.digest import source_digest
from snippets.lab.recording.schema import SCHEMA, Point, Recording, Timings
from snippets.lab.recording.scrub import scrub

Progress = Callable[[Experiment, str], None]


def measure_group(group: tuple[Experiment, ...], device: str, folder: Path, progress: Progress, sources: Path) -> None:
    """Measure experiments that belong together and write `<name>.json` (and `.trace.json`) of each to `folder`."""
    session = now()
    started = time.monotonic()
    points: dict[str, list[Point]] = {experiment.name: [] for experiment in group}
    data: dict[str, dict[str, Any]] = {experiment.name: {} for experiment in group}
    for index in range(len(group[0].points)):
        torch._dynamo.reset()  # a function compiled at eight shapes would silently fall back to eager
        for name, point in _measure_point(group, index, device, folder, progress, data).items():
            points[name].append(point)
    progress(group[0], "ceilings")
    ceilings = measure_ceilings(group) if any(e.timed and e.make for e in group) and device == "cuda" else ()
    place = environment(device)
    for experiment in group:
        recording = Recording(
            schema=SCHEMA,
            chapter=experiment.chapter,
            experiment=experiment.name,
            label=experiment.label,
            digest=source_digest(experiment.chapter, sources),
            session=session,
            environment=place,
            capture_s=round(time.monotonic() - started, 1),
            schedule=(experiment.schedule.wait, experiment.schedule.warmup, experiment.schedule.active),
            first_steps=experiment.first_steps,
            points=tuple(points[experiment.name]),
            ceilings=ceilings,
            data=scrub(data[experiment.name], host_names()),
            has_trace=experiment.is_traced,
        )
        (folder / f"{experiment.name}.json").write_bytes(msgspec.json.encode(recording))


def _measure_point(
    group: tuple[Experiment, ...],
    index: int,
    device: str,
    folder: Path,
    progress: Progress,
    data: dict[str, dict[str, Any]],
) -> dict[str, Point]:
    """Build, profile and check each experiment at one of its points, then time them interleaved.

    What a probe returns, or a subject notes, goes into `data`.
    """
    subjects: dict[str, Subject] = {}
    checked: dict[str, tuple[float, str, int]] = {}
    named = {experiment.name: experiment for experiment in group}
    for experiment in group:
        if experiment.probe is not None:
            progress(experiment, "measuring")
            data[experiment.name] = experiment.probe(
                instruments=TorchInstruments(), device=device, **experiment.parameters
            )
            continue
        progress(experiment, f"building {' '.join(f'{k}={v}' for k, v in experiment.points[index].items())}")
        subject = build_subject(experiment, device, experiment.points[index])
        data[experiment.name] = dict(subject.notes)
        if experiment.is_traced:
            progress(experiment, "profiling")
            (folder / f"{experiment.name}.trace.json").write_bytes(trace_of(experiment, subject, device))
        progress(experiment, "checking")
        checked[experiment.name] = relative_error(subject, device)
        if experiment.timed and device == "cuda":
            subjects[experiment.name] = subject
    timings = time_interleaved(subjects, lambda name: progress(named[name], "timing")) if subjects else {}
    return {
        name: _point(named[name], named[name].points[index], check, timings.get(name))
        for name, check in checked.items()
    }


def _point(
    experiment: Experiment, parameters: Parameters, checked: tuple[float, str, int], timings: Timings | None
) -> Point:
    assert experiment.work is not None
    work = experiment.work(**parameters)
    return Point(dict(parameters), work.flops, work.bytes, *checked, timings)


def run_groups(groups: list[tuple[Experiment, ...]], device: str, folder: Path, events: TextIO, sources: Path) -> None:
    """Measure groups and write each stage to `events`; a failure names its experiment and ends the process."""
    current = groups[0][0]

    def progress(experiment: Experiment, doing: str) -> None:
        nonlocal current
        current = experiment
        events.write(json.dumps({"experiment": experiment.id, "doing": doing}) + "\n")

    def fail(error: BaseException) -> NoReturn:
        lines = str(error).strip().splitlines() or [""]
        sys.__excepthook__(type(error), error, error.__traceback__)  # first: the supervisor prints it at the event
        sys.stderr.flush()
        events.write(json.dumps({"experiment": current.id, "failed": f"{type(error).__name__}: {lines[0]}"}) + "\n")
        events.flush()
        os._exit(1)  # a poisoned CUDA context may hang in the interpreter's own clean-up

    try:
        for group in groups:
            current = group[0]
            gc.collect()  # compiled functions of the last group hang in cycles and hold their graphs' memory
            if device == "cuda":
                torch.cuda.empty_cache()
            measure_group(group, device, folder, progress, sources)
            events.write(json.dumps({"finished": [experiment.id for experiment in group]}) + "\n")
    except BaseException as error:  # whatever it is, it is reported and the process ends
        fail(error)


def main() -> None:
    """`python -m snippets.lab.capture.worker --folder F --events FD EXPERIMENT,... ...`."""
    parser = argparse.ArgumentParser(
        prog="python -m snippets.lab.capture.worker",
        description="Measure groups of experiments; snippets.lab.capture.supervisor starts this process.",
    )
    parser.add_argument("groups", nargs="+", metavar="EXPERIMENT,...", help="experiments of one group, by id")
    parser.add_argument("--package", default="snippets", help="where the chapters are (default snippets)")
    parser.add_argument("--device", default="cuda", help="torch device, cuda or cpu (default cuda)")
    parser.add_argument("--folder", type=Path, required=True, help="where finished recordings are left")
    parser.add_argument("--events", type=int, required=True, help="descriptor of the pipe for events")
    arguments = parser.parse_args()
    names = [group.split(",") for group in arguments.groups]
    groups = [tuple(find(name, arguments.package)[0] for name in group) for group in names]
    with os.fdopen(arguments.events, "w", encoding="utf-8", buffering=1) as events:
        run_groups(groups, arguments.device, arguments.folder, events, package_folder(arguments.package))


if __name__ == "__main__":
    main()
