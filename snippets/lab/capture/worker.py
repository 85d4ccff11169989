"""One process that measures groups of experiments and leaves finished recordings in a folder.

`capture` starts it and listens. Every line on the event pipe is JSON: {"experiment", "doing"}, {"finished": [ids of a
group]} or {"experiment", "failed"}. The first failure ends the process, because an illegal access leaves the CUDA
context unusable for the others.
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

from snippets.lab.capture.ceilings import LARGE, copy_subject, copy_work, matmul_subject, matmul_work
from snippets.lab.capture.environment import environment, host_names, now
from snippets.lab.capture.profiling import relative_error, trace_of
from snippets.lab.capture.timing import time_interleaved, time_warm
from snippets.lab.experiment import Experiment, Subject, find
from snippets.lab.recording.digest import source_digest
from snippets.lab.recording.schema import SCHEMA, Ceiling, Point, Recording
from snippets.lab.recording.scrub import scrub

Tell = Callable[[Experiment, str], None]


# --8<-- [end:check]


def measure_group(group: tuple[Experiment, ...], device: str, folder: Path, tell: Tell) -> None:
    """Measure experiments that belong together and write `<name>.json` (and `.trace.json`) of each to `folder`."""
    session = now()
    started = time.monotonic()
    points: dict[str, list[Point]] = {experiment.name: [] for experiment in group}
    data: dict[str, dict[str, Any]] = {experiment.name: {} for experiment in group}
    named = {experiment.name: experiment for experiment in group}
    for index in range(len(group[0].points)):
        torch._dynamo.reset()  # a function compiled at eight shapes would silently fall back to eager
        subjects: dict[str, Subject] = {}
        checked: dict[str, tuple[float, str, int]] = {}
        for experiment in group:
            if experiment.measure is not None:
                tell(experiment, "measuring")
                data[experiment.name] = experiment.measure(device=device, **experiment.parameters)
                continue
            assert experiment.make is not None
            tell(experiment, f"building {' '.join(f'{k}={v}' for k, v in experiment.points[index].items())}")
            subject = experiment.make(device=device, **experiment.points[index])
            data[experiment.name] = dict(subject.notes)
            if experiment.is_traced:
                tell(experiment, "profiling")
                (folder / f"{experiment.name}.trace.json").write_bytes(trace_of(experiment, subject, device))
            tell(experiment, "checking")
            checked[experiment.name] = relative_error(subject, device)
            if experiment.timed and device == "cuda":
                subjects[experiment.name] = subject
        timings = time_interleaved(subjects, lambda name: tell(named[name], "timing")) if subjects else {}
        for experiment in group:
            if experiment.make is not None:
                assert experiment.work is not None
                parameters = experiment.points[index]
                work = experiment.work(**parameters)
                point = Point(
                    dict(parameters), work.flops, work.bytes, *checked[experiment.name], timings.get(experiment.name)
                )
                points[experiment.name].append(point)
    tell(group[0], "ceilings")
    ceilings = measure_ceilings(group) if any(e.timed and e.make for e in group) and device == "cuda" else ()
    circumstances = environment(device)
    for experiment in group:
        found = Recording(
            schema=SCHEMA,
            chapter=experiment.chapter,
            experiment=experiment.name,
            label=experiment.label,
            digest=source_digest(experiment.chapter),
            session=session,
            circumstances=circumstances,
            capture_s=round(time.monotonic() - started, 1),
            schedule=(experiment.schedule.wait, experiment.schedule.warmup, experiment.schedule.active),
            first_steps=experiment.first_steps,
            points=tuple(points[experiment.name]),
            ceilings=ceilings,
            data=scrub(data[experiment.name], host_names()),
            has_trace=experiment.is_traced,
        )
        (folder / f"{experiment.name}.json").write_bytes(msgspec.json.encode(found))


def measure_ceilings(group: tuple[Experiment, ...]) -> tuple[Ceiling, ...]:
    """Copy bandwidth, a large matmul, and a bare matmul at every shape of the group, timed in turns."""
    shapes = {(LARGE,) * 3: None}
    for experiment in group:
        for parameters in experiment.points:
            if experiment.work is not None:
                shapes |= dict.fromkeys(experiment.work(**parameters).matmuls)
    subjects = {"copy": copy_subject("cuda")}
    works = {"copy": copy_work()}
    for shape in shapes:
        name = "matmul " + "x".join(map(str, shape))
        subjects[name], works[name] = matmul_subject("cuda", *shape), matmul_work(*shape)
    timings = time_warm(subjects)
    return tuple(Ceiling(name, works[name].bytes, works[name].flops, timings[name]) for name in subjects)


def main() -> None:
    """`python -m snippets.lab.worker --package P --device D --folder F --events FD EXPERIMENT,... ...`."""
    parser = argparse.ArgumentParser(description="Measures groups of experiments; started by snippets.lab.capture.")
    parser.add_argument("groups", nargs="+", metavar="EXPERIMENT,...")
    parser.add_argument("--package", default="snippets")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--events", type=int, required=True)
    arguments = parser.parse_args()
    names = [group.split(",") for group in arguments.groups]
    groups = [tuple(find(name, arguments.package)[0] for name in group) for group in names]
    with os.fdopen(arguments.events, "w", encoding="utf-8", buffering=1) as events:
        run_groups(groups, arguments.device, arguments.folder, events)


def run_groups(groups: list[tuple[Experiment, ...]], device: str, folder: Path, events: TextIO) -> None:
    """Measure, telling each stage; name the experiment that fails and its cause, then stop the process."""
    current = groups[0][0]

    def tell(experiment: Experiment, doing: str) -> None:
        nonlocal current
        current = experiment
        events.write(json.dumps({"experiment": experiment.id, "doing": doing}) + "\n")

    def fail(error: BaseException) -> NoReturn:
        lines = str(error).strip().splitlines() or [""]
        sys.__excepthook__(type(error), error, error.__traceback__)  # first: `capture` reads it when it is told
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
            measure_group(group, device, folder, tell)
            events.write(json.dumps({"finished": [experiment.id for experiment in group]}) + "\n")
    except BaseException as error:  # whatever it is, it is told and the process ends
        fail(error)


if __name__ == "__main__":
    main()
