"""The committed recordings: complete both ways, current, small, scrubbed, and consistent."""

from __future__ import annotations

import gzip
import math
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from kinetoscope.trace.queries import steps_agree
from snippets.lab.experiment import Experiment, chapters, experiments
from snippets.lab.finding.device import all_devices
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.fingerprint import is_stale
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import TRACE_LIMIT_BYTES, Recording
from tests.lab.samples import BOOK

ALL = [experiment for chapter in chapters() for experiment in experiments(chapter)]
PRIVATE = re.compile(r"/(?<![\w:./]/)(?:home|root|tmp|work|usr|opt|var|mnt|data)/")


def recorded(experiment: Experiment) -> Recording:
    """Its recording on the default device. One that was never recorded is skipped; a stale or damaged one fails."""
    run = BOOK[experiment.id]
    if not run.is_recorded:
        pytest.skip(f"not recorded yet: {experiment.id}")
    return run.recording


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.id)
def test_every_recording_is_current(experiment: Experiment) -> None:
    recording = recorded(experiment)
    assert not is_stale(recording, experiment), f"the code changed; run make record CHAPTER={experiment.chapter}"
    assert (recording.has_trace, recording.label) == (experiment.is_traced, experiment.label)
    assert [point.parameters for point in recording.points] == (
        [] if experiment.probe else [dict(point) for point in experiment.points]
    )
    times = [point.iteration if experiment.loop else point.timings for point in recording.points]
    assert all((timing is not None) == experiment.timed for timing in times)
    assert recording.data != {} or experiment.probe is None


def test_every_recording_has_its_experiment() -> None:
    known = {experiment.id for experiment in ALL}
    for device in all_devices(BOOK.root):
        assert {recording.id for recording in load_recordings(device.root, device.name)} <= known


def test_nothing_else_is_among_the_recordings() -> None:
    for path in (BOOK.root / BOOK.name).rglob("*"):
        assert path.is_dir() or re.fullmatch(r"[a-z0-9_]+\.(json|trace\.json\.gz)", path.name), path


@pytest.mark.parametrize("path", sorted(BOOK.root.rglob("*.*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_are_small_and_scrubbed(path: Path) -> None:
    content = path.read_bytes()
    assert len(content) <= TRACE_LIMIT_BYTES
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    assert not PRIVATE.search(text)
    folded = text.lower()
    assert '"hostname"' not in folded
    assert '"host_name"' not in folded


TRACED = [experiment for experiment in ALL if experiment.is_traced]
TIMED = [experiment for experiment in ALL if experiment.timed and experiment.make is not None]


@pytest.mark.parametrize("experiment", TRACED, ids=lambda experiment: experiment.id)
def test_the_steps_of_a_trace_agree(experiment: Experiment) -> None:
    recorded(experiment)
    trace = BOOK[experiment.id].trace
    assert len(trace.steps) == experiment.schedule.active
    may_differ = experiment.loop is not None or experiment.first_steps == 0
    assert steps_agree(trace) or may_differ, "only the batches of a loop and the steps of a cold process may differ"
    first_us = {activity.stream: activity.start_us for activity in reversed(trace.steps[0].activities)}
    for activity in trace.unattributed:
        in_flight = activity.launch is None and activity.start_us < first_us.get(activity.stream, math.inf)
        assert in_flight, "but for what the step before had in flight"


def of_one_session(experiment: Experiment, among: Iterable[Experiment]) -> Recording:
    """The recording of an experiment, which the others of its group share a session with."""
    recording = recorded(experiment)
    group = experiment.chapter, experiment.group
    mates = [each.id for each in among if (each.chapter, each.group) == group] if experiment.group else [experiment.id]
    assert {BOOK[mate].recording.session for mate in mates} == {recording.session}
    return recording


@pytest.mark.parametrize("experiment", TIMED, ids=lambda experiment: experiment.id)
def test_timings_are_ordered_and_of_one_session_with_their_mates(experiment: Experiment) -> None:
    for point in of_one_session(experiment, ALL).points:
        assert point.timings is not None
        for name in ("interleaved", "cold", "from_python", "enqueue"):
            timing = getattr(point.timings, name)
            assert 0 < timing.q1_us <= timing.median_us <= timing.q3_us
            assert len(timing.samples_us) > 20
        assert point.timings.enqueue.median_us <= point.timings.from_python.median_us


LOOPS = [experiment for experiment in ALL if experiment.timed and experiment.loop is not None]


@pytest.mark.parametrize("experiment", LOOPS, ids=lambda experiment: experiment.id)
def test_iterations_are_timed_in_three_processes_of_one_session(experiment: Experiment) -> None:
    for point in of_one_session(experiment, LOOPS).points:
        assert point.iteration is not None
        assert len(point.iteration.rounds) == 3
        assert len(point.iteration.samples_us) > 20


def test_errors_are_within_what_the_experiment_allows() -> None:
    for recording in load_recordings(BOOK.root, BOOK.name):
        for point in recording.points:
            allowed = 1e-2 if point.parameters.get("blocks", 1) == 1 else 3e-2  # each block rounds once more
            assert 0 <= point.relative_error <= allowed
            assert point.reference_dtype in ("float64", "float32") or "copy" in recording.experiment


COMMITS = {
    recording.environment.commit: recording.id
    for device in all_devices(BOOK.root)
    for recording in load_recordings(device.root, device.name)
}


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("commit", COMMITS)
def test_the_commit_of_a_recording_is_in_the_history(commit: str) -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no git history here")
    known = git("merge-base", "--is-ancestor", commit.removesuffix("+"), "HEAD")
    assert known.returncode == 0, f"{COMMITS[commit]} was recorded from {commit}, which is not in the history"
