"""Runs experiments and records them: nothing else writes recordings.

Every chapter gets a process of its own; what needs a cold process gets one to itself. An experiment that raises, dies
or runs past its time limit is reported with its cause and left out; the rest goes on in a fresh process. Recordings are
written when a group is complete, so an interrupted capture loses nothing that was there before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from snippets.lab.capture.supervisor import Event, Group, run_worker
from snippets.lab.experiment import Experiment
from snippets.lab.recording.saving import save_recording
from snippets.lab.recording.schema import Recording, RecordingError

RunWorker = Callable[[list[Group], Path], Iterator[Event]]


@dataclass(frozen=True)
class Outcome:
    """What became of one experiment."""

    experiment: Experiment
    failed: str = ""
    """The cause; empty when it was recorded."""


def record_experiments(
    root: Path, device: str, chosen: Iterable[Experiment], run: RunWorker = run_worker
) -> Iterator[Outcome]:
    """Record experiments group by group; print each stage, how many are done and the time it took."""
    pending = group_experiments(chosen)
    count = sum(map(len, pending))
    done = 0
    begin = time.monotonic()
    while pending:
        with tempfile.TemporaryDirectory(prefix="profiling-pytorch-") as temporary:
            folder = Path(temporary)
            for event in run(sharing_a_process(pending), folder):
                progress = f"{done}/{count} {_duration(time.monotonic() - begin):>12}"
                if "failed" in event:
                    failed = next(one for group in pending for one in group if one.id == event["experiment"])
                    print(f"{progress}  {failed.id}: failed: {event['failed']}", flush=True)
                    pending = [left for group in pending if (left := tuple(one for one in group if one is not failed))]
                    done += 1
                    yield Outcome(failed, event["failed"])
                elif "finished" in event:
                    for experiment in pending.pop(0):
                        cause = _keep(root, device, experiment, folder)
                        print(f"{progress}  {experiment.id}: {cause or 'recorded'}", flush=True)
                        done += 1
                        yield Outcome(experiment, cause)
                else:
                    print(f"{progress}  {event['experiment']}: {event['doing']}", flush=True)


def group_experiments(chosen: Iterable[Experiment]) -> list[Group]:
    """Experiments that are timed interleaved together; one without a group is a group of its own."""
    groups: dict[tuple[str, str], list[Experiment]] = {}
    for experiment in chosen:
        groups.setdefault((experiment.chapter, experiment.group or f"/{experiment.name}"), []).append(experiment)
    return [tuple(group) for group in groups.values()]


def sharing_a_process(pending: list[Group]) -> list[Group]:
    """The leading groups of one chapter; one that needs a cold process, or has a probe, is alone."""
    alone = [any(one.first_steps == 0 or one.probe is not None for one in group) for group in pending]
    together = [pending[0]]
    for group, is_alone in zip(pending[1:], alone[1:], strict=True):
        if alone[0] or is_alone or group[0].chapter != pending[0][0].chapter:
            break
        together.append(group)
    return together


def _keep(root: Path, device: str, experiment: Experiment, folder: Path) -> str:
    """Save a finished recording; return the cause when that fails, as on a full or read-only disk."""
    trace_file = folder / f"{experiment.name}.trace.json"
    try:
        recording = msgspec.json.decode((folder / f"{experiment.name}.json").read_bytes(), type=Recording)
        save_recording(root, device, recording, trace_file.read_bytes() if experiment.is_traced else None)
    except (OSError, RecordingError, msgspec.MsgspecError) as error:
        return f"not saved: {error}"
    return ""


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
