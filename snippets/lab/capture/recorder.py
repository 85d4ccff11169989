"""Runs experiments and records them: nothing else writes recordings.

The groups of a chapter share processes: one profiles them, then up to three others time them, because a process is
slower after torch.profiler ran in it. An experiment that needs a cold process gets its own. An experiment that raises,
crashes or exceeds its time limit is reported with its cause and skipped; the rest continues in a fresh process. A
recording is written when its last process is done, so an interrupted capture loses no earlier recording.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.trace.events import Step, Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us, extent_us, recorded_step_us
from snippets.lab.capture.merging import merge
from snippets.lab.capture.supervisor import Event, Group, run_worker
from snippets.lab.experiment import Experiment
from snippets.lab.recording.consistency import loop_trace_contradiction, trace_contradiction
from snippets.lab.recording.saving import save_recording
from snippets.lab.recording.schema import Recording, RecordingError

RunWorker = Callable[[list[Group], Path, int], Iterator[Event]]
"""Groups, a folder for their parts and the number of the process -> its events."""
CostOf = Callable[[Experiment], float]
"""About how long the group of an experiment takes, in seconds."""
Batch = list[Group]
TRIES, TRIES_OF_RANKS = 3, 2
"""How often a group is measured until its trace and its times fit each other, on one GPU and on several."""
replace = msgspec.structs.replace


@dataclass(frozen=True)
class Outcome:
    """The outcome of one experiment."""

    experiment: Experiment
    failed: str = ""
    """The cause; empty when it was recorded."""
    disturbed: str = ""
    """Why the recording cannot be trusted; else empty."""


def record_experiments(
    root: Path,
    device: str,
    chosen: Iterable[Experiment],
    run: RunWorker = run_worker,
    cost_s: CostOf = lambda experiment: experiment.time_limit_s,
    limit_s: float = math.inf,
) -> Iterator[Outcome]:
    """Record experiments, the cheapest batch first; print each stage, the progress and the time it took.

    Args:
        root: the folder of all recordings.
        device: the slug of this machine's GPU.
        chosen: the experiments to record.
        run: starts one process; tests pass their own.
        cost_s: estimated seconds of an experiment's group.
        limit_s: a batch that would probably end later is not started; its experiments have no outcome.
    """
    batches = cheapest_first(chosen, cost_s)
    recorder = Recorder(root, device, run, sum(len(group) for batch in batches for group in batch))
    for batch in batches:
        if time.monotonic() - recorder.begin + batch_cost_s(batch, cost_s) <= limit_s:
            yield from recorder.record(batch)


def group_experiments(chosen: Iterable[Experiment]) -> Batch:
    """Experiments that are timed interleaved; an experiment without a group is a group of its own."""
    groups: dict[tuple[str, str], list[Experiment]] = {}
    for experiment in chosen:
        groups.setdefault((experiment.chapter, experiment.group or f"/{experiment.name}"), []).append(experiment)
    return [tuple(group) for group in groups.values()]


def make_batches(groups: Batch) -> list[Batch]:
    """Groups that share processes: those of a chapter with the same number of GPUs and the same environment. A sweep, a
    probe, or an experiment with a cold process is alone."""
    shared: dict[object, Batch] = {}
    batches: list[Batch] = []
    for group in groups:
        if any(one.first_steps == 0 or one.probe is not None or one.sweep for one in group):
            batches.append([group])
        else:
            first = group[0]
            place = first.chapter, first.gpus, tuple(sorted(first.environment.items()))
            shared.setdefault(place, []).append(group)
    return [*shared.values(), *batches]


def cheapest_first(chosen: Iterable[Experiment], cost_s: CostOf) -> list[Batch]:
    """The batches of experiments in recording order."""
    return sorted(make_batches(group_experiments(chosen)), key=lambda batch: batch_cost_s(batch, cost_s))


def batch_costs_s(chosen: Iterable[Experiment], cost_s: CostOf) -> list[float]:
    """Estimated seconds of each batch of experiments, the cheapest first."""
    return [batch_cost_s(batch, cost_s) for batch in cheapest_first(chosen, cost_s)]


def batch_cost_s(batch: Batch, cost_s: CostOf) -> float:
    """Estimated seconds of a batch; `cost_s` of an experiment is that of its whole group."""
    return sum(max(cost_s(experiment) for experiment in group) for group in batch)


def tries_of(group: Group) -> int:
    """How often a group is measured at most."""
    return TRIES if group[0].gpus == 1 else TRIES_OF_RANKS


def processes_of(group: Group) -> list[int]:
    """The processes that measure a group: 0 profiles and probes; 1, 2 and 3 time."""
    profiled = [0] if any(one.probe is not None or one.is_traced for one in group) else []
    timed = range(1, group[0].processes + 1) if any(one.timed and one.probe is None for one in group) else ()
    return [*profiled, *timed]


@dataclass
class Recorder:
    """Records batch after batch and counts the progress."""

    root: Path
    device: str
    run: RunWorker
    count: int
    done: int = 0
    begin: float = field(default_factory=time.monotonic)

    def record(self, batch: Batch) -> Iterator[Outcome]:
        """Record the groups of a batch. Retry groups whose trace contradicts their times."""
        for attempt in range(1, TRIES + 1):
            again: Batch = []
            with tempfile.TemporaryDirectory(prefix="profiling-pytorch-") as temporary:
                folder = Path(temporary)
                for group, failed in self._measure(batch, folder):
                    if failed is not None:
                        yield self._report(failed)
                        continue
                    try:
                        merged, contradiction = _merged(group, folder)
                    except (OSError, msgspec.MsgspecError) as error:
                        yield from (self._report(Outcome(one, f"not saved: {error}")) for one in group)
                        continue
                    tries = tries_of(group)
                    if contradiction and attempt < tries:
                        self._print(group[0], f"disturbed, try {attempt} of {tries}: {contradiction}")
                        again.append(group)
                        continue
                    for experiment, recording in zip(group, merged, strict=True):
                        yield self._report(self._keep(experiment, recording, folder))
            if not again:
                return
            batch = again

    def _measure(self, batch: Batch, folder: Path) -> Iterator[tuple[Group, Outcome | None]]:
        """Run the processes of a batch one after the other; yield complete groups, and failures."""
        left = {number: [group for group in batch if number in processes_of(group)] for number in range(4)}
        for number in left:
            while left[number]:
                for event in self.run(list(left[number]), folder, number):
                    if "failed" in event:
                        failed = _named(left[number], event["experiment"])
                        for later in range(number, 4):
                            left[later] = _without(left[later], failed)
                        yield (failed,), Outcome(failed, event["failed"])
                    elif "finished" in event:
                        group = left[number].pop(0)
                        if number == processes_of(group)[-1]:
                            yield group, None
                    else:
                        self._print(event["experiment"], event["doing"])

    def _keep(self, experiment: Experiment, recording: Recording, folder: Path) -> Outcome:
        """Save a recording; the outcome has the cause of a failure, such as a full or read-only disk."""
        trace_file = folder / f"{experiment.name}.trace.json"
        try:
            save_recording(self.root, self.device, recording, trace_file.read_bytes() if experiment.is_traced else None)
        except (OSError, RecordingError, msgspec.MsgspecError) as error:
            return Outcome(experiment, f"not saved: {error}")
        return Outcome(experiment, "", recording.disturbed)

    def _report(self, outcome: Outcome) -> Outcome:
        self.done += 1
        disturbed = f"recorded as disturbed: {outcome.disturbed}" if outcome.disturbed else "recorded"
        self._print(outcome.experiment, f"failed: {outcome.failed}" if outcome.failed else disturbed)
        return outcome

    def _print(self, experiment: Experiment | str, doing: str) -> None:
        name = experiment if isinstance(experiment, str) else experiment.id
        progress = f"{self.done}/{self.count} {_duration(time.monotonic() - self.begin):>12}"
        print(f"{progress}  {name}: {doing}", flush=True)


def _named(groups: Batch, name: str) -> Experiment:
    """The experiment with this id; the first of all if a rank failed between two groups, after its last event."""
    return next((one for group in groups for one in group if one.id == name), groups[0][0])


def _without(groups: Batch, failed: Experiment) -> Batch:
    return [left for group in groups if (left := tuple(one for one in group if one is not failed))]


def _merged(group: Group, folder: Path) -> tuple[list[Recording], str]:
    """The merged parts of each recording, and how its trace contradicts its times; a worker has checked the times
    alone.

    All recordings have one session, because samples of a group are pairs.
    """
    recordings, found = [], ""
    for experiment in group:
        files = [folder / f"{experiment.name}.{number}.json" for number in processes_of((experiment,))]
        recording = merge([msgspec.json.decode(file.read_bytes(), type=Recording) for file in files])
        contradiction = _trace_contradiction(recording, folder / f"{experiment.name}.trace.json")
        if contradiction:
            (point,) = recording.points
            reasons = "; ".join(filter(None, (point.disturbed, contradiction)))
            recording = replace(recording, points=(replace(point, disturbed=reasons),))
        recordings.append(recording)
        found = found or contradiction
    return [replace(recording, session=recordings[0].session) for recording in recordings], found


def _trace_contradiction(recording: Recording, trace_file: Path) -> str:
    """How a recording's trace contradicts its times; empty if it has no trace or no times."""
    point = recording.points[0] if recording.has_trace else None
    if point is None or (point.timings is None and point.iteration is None):
        return ""
    try:
        ranks = [rank.steps for rank in _ranks(trace_file)]
    except TraceError:  # whoever reads the saved trace gets this error
        return ""
    if not all(ranks):
        return ""
    if point.iteration is not None:
        return loop_trace_contradiction(max(map(_iteration_us, ranks)), point.iteration)
    assert point.timings is not None
    (steps,) = ranks
    return trace_contradiction(statistics.median(busy_us(step.activities) for step in steps), point.timings)


def _ranks(trace_file: Path) -> list[Trace]:
    """The trace of each rank; of an experiment on one GPU, its only trace."""
    return list(read_ranks(trace_file)) if is_merged(trace_file) else [read_trace(trace_file)]


def _iteration_us(steps: Sequence[Step]) -> float:
    """The time of a traced iteration: its span on the CPU, or that of its GPU work if that is longer; medians.

    The work of a replayed graph has gaps between its kernels, and the CPU's span ends long before.
    """
    works_us = (extent_us(step.activities) for step in steps)
    return max(recorded_step_us(steps), statistics.median(works_us))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
