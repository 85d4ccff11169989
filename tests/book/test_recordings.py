"""What is committed: complete both ways, small, scrubbed, and in agreement with itself.

`python -m snippets.lab list --check` says what is stale or unreadable; `make check` runs it.
"""

from __future__ import annotations

import gzip
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetoscope.trace.queries import steps_agree
from snippets.lab.experiment import Experiment, chapters, experiments
from snippets.lab.finding.device import all_devices
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import TRACE_LIMIT_BYTES, parse_recording, trace_limits_bytes
from tests.lab.samples import BOOK

ALL = [experiment for chapter in chapters() for experiment in experiments(chapter)]
PRIVATE = re.compile(r"/(?<![\w:./]/)(?:home|root|tmp|work|usr|opt|var|mnt|data)/")
HOST_NAME = re.compile(r'"host_?name"', re.IGNORECASE)


def recorded(of: list[Experiment]) -> Iterator[Experiment]:
    """Those with a recording on the default device."""
    return (experiment for experiment in of if BOOK[experiment.id].is_recorded)


def test_a_recording_has_what_its_experiment_asks_for() -> None:
    problems = []
    for experiment in recorded(ALL):
        recording = BOOK[experiment.id].recording
        times = [point.iteration if experiment.loop else point.timings for point in recording.points]
        points = [] if experiment.probe else [dict(point) for point in experiment.points]
        checks = {
            "has a trace, or lacks one": recording.has_trace == experiment.is_traced,
            f"label {recording.label!r}": recording.label == experiment.label,
            "other points": [point.parameters for point in recording.points] == points,
            "is timed, or is not": all((timing is not None) == experiment.timed for timing in times),
            "no data of its probe": recording.data != {} or experiment.probe is None,
        }
        problems += [f"{experiment.id}: {problem}" for problem, is_right in checks.items() if not is_right]
    assert problems == []


def test_every_recording_has_its_experiment() -> None:
    known = {experiment.id for experiment in ALL}
    for device in all_devices(BOOK.root):
        assert {recording.id for recording in load_recordings(device.root, device.name)} <= known


def limit_bytes(path: Path) -> int:
    """The most bytes of a file: of a trace, as many as its recording's ranks may have."""
    if path.suffix != ".gz":
        return TRACE_LIMIT_BYTES
    recording = path.with_name(path.name.replace(".trace.json.gz", ".json"))
    return trace_limits_bytes(parse_recording(recording.read_bytes(), recording.name).environment.gpus)[0]


def test_files_are_small_and_scrubbed() -> None:
    problems = []
    for path in sorted(BOOK.root.rglob("*.*")):
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        found = [match[0] for rule in (PRIVATE, HOST_NAME) if (match := rule.search(text))]
        found += ["too large"] if len(content) > limit_bytes(path) else []
        problems += [f"{path.relative_to(BOOK.root)}: {problem}" for problem in found]
    assert problems == []


def test_the_steps_of_a_trace_agree() -> None:
    """Only the batches of a loop and the steps of a cold process may differ."""
    problems = []
    for experiment in recorded([experiment for experiment in ALL if experiment.is_traced]):
        trace = BOOK[experiment.id].trace
        may_differ = experiment.loop is not None or experiment.first_steps == 0
        if len(trace.steps) != experiment.schedule.active:
            problems.append(f"{experiment.id}: {len(trace.steps)} steps")
        if not (may_differ or steps_agree(trace)):
            problems.append(f"{experiment.id}: its steps differ")
        first_us = {activity.stream: activity.start_us for activity in reversed(trace.steps[0].activities)}
        for activity in trace.unattributed:
            in_flight = activity.launch is None and activity.start_us < first_us.get(activity.stream, math.inf)
            if not in_flight:
                problems.append(f"{experiment.id}: {activity.name} is of no step, nor in flight when the first began")
    assert problems == []


def test_the_experiments_of_a_group_are_of_one_session() -> None:
    groups: dict[str, dict[str, str]] = {}
    for experiment in recorded([experiment for experiment in ALL if experiment.group]):
        sessions = groups.setdefault(f"{experiment.chapter}, {experiment.group}", {})
        sessions[experiment.id] = BOOK[experiment.id].recording.session
    assert {name: sessions for name, sessions in groups.items() if len({*sessions.values()}) > 1} == {}


def test_timings_are_ordered() -> None:
    problems = []
    for experiment in recorded([each for each in ALL if each.timed and each.make is not None]):
        for point in BOOK[experiment.id].recording.points:
            assert point.timings is not None
            kinds = {name: getattr(point.timings, name) for name in ("interleaved", "cold", "from_python", "enqueue")}
            problems += [
                f"{experiment.id} {name}: {timing.q1_us}, {timing.median_us}, {timing.q3_us} us"
                for name, timing in kinds.items()
                if not (0 < timing.q1_us <= timing.median_us <= timing.q3_us and len(timing.samples_us) > 20)
            ]
            if point.timings.enqueue.median_us > point.timings.from_python.median_us:
                problems.append(f"{experiment.id}: to enqueue takes longer than from Python")
    assert problems == []


def test_iterations_are_timed_in_three_processes() -> None:
    problems = []
    for experiment in recorded([each for each in ALL if each.timed and each.loop is not None]):
        for point in BOOK[experiment.id].recording.points:
            assert point.iteration is not None
            rounds, samples = len(point.iteration.rounds), len(point.iteration.samples_us)
            if rounds != 3 or samples < (21 if experiment.gpus == 1 else 15):
                problems.append(f"{experiment.id}: {samples} samples of {rounds} processes")
    assert problems == []


def test_errors_are_within_what_the_experiment_allows() -> None:
    problems = []
    for recording in load_recordings(BOOK.root, BOOK.name):
        for point in recording.points:
            allowed = 1e-2 if point.parameters.get("blocks", 1) == 1 else 3e-2  # each block rounds once more
            if not 0 <= point.relative_error <= allowed:
                problems.append(f"{recording.id}: {point.relative_error}")
            if point.reference_dtype not in ("float64", "float32") and "copy" not in recording.experiment:
                problems.append(f"{recording.id}: its reference is in {point.reference_dtype}")
    assert problems == []


def git(*arguments: str) -> list[str]:
    command = ["git", "-C", str(PROJECT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def test_the_commit_of_a_recording_is_in_the_history() -> None:
    if git("rev-parse", "--is-shallow-repository") != ["false"]:
        pytest.skip("no git history here")
    history = " ".join(["", *git("rev-list", "HEAD")])
    found = [recording for device in all_devices(BOOK.root) for recording in load_recordings(device.root, device.name)]
    commits = {recording.environment.commit.removesuffix("+"): recording.id for recording in found}
    assert {commit: name for commit, name in commits.items() if f" {commit}" not in history} == {}
