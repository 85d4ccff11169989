"""One process that measures groups of experiments and leaves parts of their recordings in a folder.

A process either profiles and probes, or times: torch.profiler leaves a process slower than it was. The supervisor
starts it. Every line on the event pipe is JSON: {"experiment", "doing"}, {"finished": [ids of a group]} or
{"experiment", "failed", "at_s"}. The first failure ends the process, because an illegal access leaves the CUDA context
unusable for the others.

An experiment on several GPUs has such a process for each rank. Rank 0 reports progress and writes the parts; the others
report failures.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TextIO

import msgspec
import torch

from snippets.lab.capture.agreement import ALONE, Ranks, meet
from snippets.lab.capture.ceilings import ceiling_works, prepare_ceilings, timed_ceilings
from snippets.lab.capture.checking import build_subject, relative_error
from snippets.lab.capture.environment import environment, host_names, now
from snippets.lab.capture.gpu import Gpu, open_gpu, others
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop, keep_reference, open_loop, profile_loop, time_loops
from snippets.lab.capture.profiling import chrome_trace, trace_of
from snippets.lab.capture.rank_traces import RankTraces
from snippets.lab.capture.ranks import process_group
from snippets.lab.capture.steady import time_steady
from snippets.lab.capture.timing import prepare, time_interleaved
from snippets.lab.experiment import TRIAL, Experiment, Loop, Subject, Work, find, package_folder
from snippets.lab.recording.consistency import contradictions, loop_contradiction
from snippets.lab.recording.fingerprint import fingerprint
from snippets.lab.recording.schema import SCHEMA, Ceiling, Environment, Point, Recording, Timing, Timings
from snippets.lab.recording.scrub import scrub

Progress = Callable[[Experiment, str], None]
Group = tuple[Experiment, ...]
Measured = tuple[list[Point], dict[str, Any]]
"""The points of an experiment, and its data or notes."""
STEADY_FROM_US = 10.0
TRIES = 3
"""How often a group is timed until the times of each step fit each other."""


@dataclass(frozen=True)
class Process:
    """The work of one process with every group."""

    device: str
    folder: Path
    progress: Progress
    sources: Path
    number: int = 0
    """0 profiles and probes; 1, 2 and 3 time."""
    gpu: Gpu = field(default_factory=open_gpu)
    ranks: Ranks = ALONE

    def measure(self, group: Group) -> None:
        """Write the part `<name>.<number>.json` of each recording, and its trace if this process profiles."""
        started = time.monotonic()
        before = self.gpu.reading().throttle
        if group[0].loop is not None:
            measured = self._timed_loops(group) if self.number else self._profiled_loops(group)
        else:
            measured = self._timed(group) if self.number else self._profiled(group)
        place = self._environment(before)
        for experiment in group if self.ranks.is_first else ():
            points, data = measured[experiment.name]
            part = Recording(
                schema=SCHEMA,
                chapter=experiment.chapter,
                experiment=experiment.name,
                label=experiment.label,
                fingerprint=fingerprint(experiment, self.sources, place.device),
                session=now(),
                environment=place,
                capture_s=round(time.monotonic() - started, 1),
                schedule=(experiment.schedule.wait, experiment.schedule.warmup, experiment.schedule.active),
                first_steps=experiment.first_steps,
                points=tuple(points),
                data=scrub(data, host_names()),
                has_trace=experiment.is_traced and not self.number,
            )
            (self.folder / f"{experiment.name}.{self.number}.json").write_bytes(msgspec.json.encode(part))

    def _environment(self, before: tuple[str, ...]) -> Environment:
        """The environment of this process; of several ranks, that of rank 0, with the reasons and programs of all."""
        place = environment(self.device, self.ranks.world)
        if self.device != "cuda":
            return place
        ours = {*self.ranks.gather(os.getpid())}
        seen = self.ranks.gather((before, self.gpu.reading().throttle, others(self.gpu, ours)))
        before, after, programs = (tuple(sorted({*itertools.chain(*each)})) for each in zip(*seen, strict=True))
        throttle = {"before": before, "after": after}
        return msgspec.structs.replace(place, throttle=throttle, other_processes=programs)

    def _profiled(self, group: Group) -> dict[str, Measured]:
        """Probe, or build, profile and check each experiment."""
        torch._dynamo.reset()  # a function compiled at eight shapes would silently fall back to eager
        measured: dict[str, Measured] = {}
        for experiment in group:
            if experiment.probe is not None:
                self.progress(experiment, "measuring")
                instruments = TorchInstruments(self.gpu)
                given = {"device": self.device, **self.ranks.arguments, **experiment.parameters}
                data = experiment.probe(instruments=instruments, **given)
                measured[experiment.name] = [], data
                continue
            subject = self._built(experiment, 0)
            self.progress(experiment, "profiling")
            trace = trace_of(experiment, subject, self.device)
            (self.folder / f"{experiment.name}.trace.json").write_bytes(trace)
            measured[experiment.name] = [self._checked(experiment, subject, 0)], dict(subject.notes)
        return measured

    def _profiled_loops(self, group: Group) -> dict[str, Measured]:
        """Check and profile each loop; if a loop needs a cold process, check it afterwards, from its start."""
        measured: dict[str, Measured] = {}
        for experiment in group:
            torch._dynamo.reset()  # as before profiling subjects
            is_cold = experiment.first_steps == 0
            with open_loop(experiment, self.device, self.ranks) as loop:
                point = None if is_cold else self._checked_loop(experiment, loop)
                self.progress(experiment, "profiling")
                if self.ranks.world == 1:
                    trace = chrome_trace(profile_loop(experiment, loop, self.device))
                    (self.folder / f"{experiment.name}.trace.json").write_bytes(trace)
                else:
                    RankTraces(self.ranks, self.folder).take(experiment, loop, self.device)
            if point is None:
                with open_loop(experiment, self.device, self.ranks) as loop:
                    point = self._checked_loop(experiment, loop)
            measured[experiment.name] = [point], {}
        return measured

    def _checked_loop(self, experiment: Experiment, loop: Loop) -> Point:
        """The untimed point of a loop whose losses are right. Raises `WrongAnswer`."""
        self.progress(experiment, "checking")
        work = experiment.work(**experiment.parameters) if experiment.work is not None else Work(bytes=0)
        if self.ranks.world > 1:
            loop = keep_reference(loop, self.folder / f"{experiment.name}.losses.json")
        checked = check_loop(loop, self.device, self.ranks)
        return Point(dict(experiment.parameters), work.flops, work.bytes, *checked, None)

    def _timed_loops(self, group: Group) -> dict[str, Measured]:
        """Build and check all loops of a group and time them interleaved."""
        torch._dynamo.reset()
        with ExitStack() as stack:
            loops = {one.name: stack.enter_context(open_loop(one, self.device, self.ranks)) for one in group}
            points = {one.name: self._checked_loop(one, loops[one.name]) for one in group}
            self.progress(group[0], f"timing, process {self.number} of {group[0].processes}")
            times = self._loop_times(group, loops) if self.device == "cuda" else {}
        for name, timing in times.items():
            reason = loop_contradiction(timing)
            points[name] = msgspec.structs.replace(points[name], iteration=timing, disturbed=reason)
        return {name: ([point], {}) for name, point in points.items()}

    def _loop_times(self, group: Group, loops: Mapping[str, Loop]) -> dict[str, Timing]:
        """The times of every loop's iteration; repeated while the blocks of a loop scatter, on all ranks alike."""
        for attempt in range(1, TRIES + 1):
            times = time_loops(loops, self.device, self.gpu, self.ranks)
            reasons = {name: reason for name, each in times.items() if (reason := loop_contradiction(each))}
            if not self.ranks.is_any(bool(reasons)):
                break
            name, reason = next(iter(reasons.items()))
            experiment = next(one for one in group if one.name == name)
            self.progress(experiment, f"disturbed, try {attempt} of {TRIES}: {reason}")
        return times

    def _built(self, experiment: Experiment, index: int) -> Subject:
        parameters = experiment.points[index]
        self.progress(experiment, f"building {' '.join(f'{name}={value}' for name, value in parameters.items())}")
        return build_subject(experiment, self.device, parameters)

    def _checked(self, experiment: Experiment, subject: Subject, index: int) -> Point:
        """The untimed point of a subject whose result is right. Raises `WrongAnswer`."""
        assert experiment.work is not None
        self.progress(experiment, "checking")
        parameters = experiment.points[index]
        work = experiment.work(**parameters)
        return Point(dict(parameters), work.flops, work.bytes, *relative_error(subject, self.device), None)

    def _timed(self, group: Group) -> dict[str, Measured]:
        """Build, check and time all experiments of a group at each of their points."""
        measured: dict[str, Measured] = {one.name: ([], {}) for one in group}
        for index in range(len(group[0].points)):
            torch._dynamo.reset()  # as before profiling
            subjects = {one.name: self._built(one, index) for one in group}
            checked = {one.name: self._checked(one, subjects[one.name], index) for one in group}
            timings, ceilings = self._times(group, index, subjects) if self.device == "cuda" else ({}, ())
            for name, point in checked.items():
                timing = timings.get(name)
                reason = "; ".join(contradictions(timing)) if timing else ""
                point = msgspec.structs.replace(point, timings=timing, ceilings=ceilings, disturbed=reason)
                measured[name][0].append(point)
                measured[name][1].update(subjects[name].notes)
        return measured

    def _times(
        self, group: Group, index: int, subjects: Mapping[str, Subject]
    ) -> tuple[dict[str, Timings], tuple[Ceiling, ...]]:
        """The times of every step and ceiling; repeated while the times of a step contradict each other."""
        works = ceiling_works(group, index)
        # First: graphs share the workspace of cuBLAS that the first to be captured has in its memory, and two ceilings
        # outlive all others of a process (https://github.com/pytorch/pytorch/issues/193402).
        ceilings = prepare_ceilings(works)
        variants = {}
        for experiment in group:
            self.progress(experiment, f"timing, process {self.number} of {experiment.processes}")
            variants[experiment.name] = prepare(subjects[experiment.name])
        for attempt in range(1, TRIES + 1):
            timings, rates = time_interleaved(variants, ceilings, self.gpu)
            if group[0].is_steady:
                hungry = {name: each for name, each in variants.items() if _draws_power(timings[name])}
                steady = time_steady(hungry, self.gpu, rotate=self.number - 1)
                timings = {
                    name: msgspec.structs.replace(each, steady=steady.get(name)) for name, each in timings.items()
                }
            reasons = {name: reason for name, each in timings.items() for reason in contradictions(each)}
            if not reasons:
                break
            name, reason = next(iter(reasons.items()))
            experiment = next(one for one in group if one.name == name)
            self.progress(experiment, f"disturbed, try {attempt} of {TRIES}: {reason}")
        return timings, timed_ceilings(works, rates)


def _draws_power(timings: Timings) -> bool:
    """Whether a step is so long that its steady time shows its own clock.

    A step of 4.11 us interleaved took 4.09 us steady at 128 W and full clock (NVIDIA H200).
    """
    return timings.interleaved.median_us >= STEADY_FROM_US


def run_groups(groups: list[Group], device: str, folder: Path, events: TextIO, sources: Path, number: int = 0) -> None:
    """Measure groups and write each stage to `events`; a failure names its experiment and ends the process."""
    current, ranks = groups[0][0], ALONE

    def report(event: Mapping[str, object]) -> None:
        if ranks.is_first:
            events.write(json.dumps(event) + "\n")

    def progress(experiment: Experiment, doing: str) -> None:
        nonlocal current
        current = experiment
        report({"experiment": experiment.id, "doing": doing})

    def fail(error: BaseException) -> NoReturn:
        lines = str(error).strip().splitlines() or [""]
        sys.__excepthook__(type(error), error, error.__traceback__)  # first: the supervisor prints it at the event
        sys.stdout.flush()
        sys.stderr.flush()
        failed = {"experiment": current.id, "failed": f"{type(error).__name__}: {lines[0]}", "at_s": time.monotonic()}
        events.write(json.dumps(failed) + "\n")
        events.flush()
        os._exit(1)  # a poisoned CUDA context may hang in the interpreter's own clean-up

    try:
        with process_group(device) if groups[0][0].gpus > 1 else nullcontext((0, 1)) as (rank, world):
            ranks = meet(rank, world) if world > 1 else ALONE
            process = Process(device, folder, progress, sources, number, ranks=ranks)
            for group in groups:
                current = group[0]
                gc.collect()  # compiled functions of the last group hang in cycles and hold their graphs' memory
                if device == "cuda":
                    torch.cuda.empty_cache()
                process.measure(group)
                if device == "cuda":
                    torch.cuda.synchronize()
                ranks.barrier()  # a rank that fails at its end is no part of what is finished
                report({"finished": [experiment.id for experiment in group]})
    except BaseException as error:  # whatever it is, it is reported and the process ends
        fail(error)


def work(ids: list[str], package: str, device: str, folder: Path, number: int, events: TextIO) -> None:
    """Measure groups, each given as a comma-separated list of its experiments' ids; `TRIAL` tries them."""
    groups = [tuple(find(name, package)[0] for name in group.split(",")) for group in ids]
    if number == TRIAL:
        groups, number = [tuple(one.tried() for one in group) for group in groups], 0
    run_groups(groups, device, folder, events, package_folder(package), number)
