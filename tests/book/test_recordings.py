"""What is committed: complete both ways, current, small, scrubbed, and in agreement with itself."""

import gzip
import re

import pytest

from snippets.lab.experiment import Experiment, chapters, experiments
from snippets.lab.recording.device import DEFAULT_DEVICE, RECORDINGS, recorded_devices
from snippets.lab.recording.digest import is_stale
from snippets.lab.recording.loading import load_recording, load_recordings, load_trace
from snippets.lab.recording.schema import TRACE_LIMIT_BYTES, NotRecorded, Recording
from snippets.lab.trace.queries import steps_agree

# KEEP recording
# KEEP trace

ALL = [one for chapter in chapters() for one in experiments(chapter)]
PRIVATE = re.compile(r"(?<![\w:./])/(?:home|root|tmp|work|usr|opt|var|mnt|data)/")


def recorded(experiment: Experiment) -> Recording:
    """Its recording on the builder. What was never recorded is told by a skip; what is stale or damaged fails."""
    try:
        return load_recording(experiment.id, DEFAULT_DEVICE)
    except NotRecorded as error:
        pytest.skip(f"not recorded yet: {error}")


@pytest.mark.parametrize("experiment", ALL, ids=lambda one: one.id)
def test_every_recording_is_current(experiment: Experiment):
    found = recorded(experiment)
    assert not is_stale(found), f"the code changed; run make record CHAPTER={experiment.chapter}"
    assert (found.has_trace, found.label) == (experiment.is_traced, experiment.label)
    assert [point.parameters for point in found.points] == (
        [dict(point) for point in experiment.points] if experiment.make else []
    )
    assert all((point.timings is not None) == experiment.timed for point in found.points)
    assert (found.data != {}) or experiment.probe is None


def test_every_recording_has_its_experiment():
    known = {experiment.id for experiment in ALL}
    for device in recorded_devices():
        assert {one.id for one in load_recordings(device)} <= known


def test_nothing_else_lies_among_the_recordings():
    for path in (RECORDINGS / DEFAULT_DEVICE).rglob("*"):
        assert path.is_dir() or re.fullmatch(r"[a-z0-9_]+\.(json|trace\.json\.gz)", path.name), path


@pytest.mark.parametrize("path", sorted(RECORDINGS.rglob("*.*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_are_small_and_scrubbed(path):
    content = path.read_bytes()
    assert len(content) <= TRACE_LIMIT_BYTES
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    assert not PRIVATE.search(text)
    assert not re.search(r'"host_?name"', text, re.IGNORECASE)


@pytest.mark.parametrize("experiment", [one for one in ALL if one.is_traced], ids=lambda one: one.id)
def test_the_steps_of_a_trace_agree(experiment: Experiment):
    recorded(experiment)
    traced = load_trace(experiment.id, DEFAULT_DEVICE)
    assert len(traced.steps) == experiment.schedule.active
    assert steps_agree(traced)
    first = traced.steps[0].activities[0].start_us
    assert all(one.start_us < first for one in traced.unattributed), "but for what the step before had in flight"


@pytest.mark.parametrize("experiment", [one for one in ALL if one.timed and one.make], ids=lambda one: one.id)
def test_timings_are_ordered_and_of_one_session_with_their_mates(experiment: Experiment):
    found = recorded(experiment)
    mates = [one for one in ALL if (one.chapter, one.group) == (experiment.chapter, experiment.group)]
    assert {load_recording(mate.id, DEFAULT_DEVICE).session for mate in mates} == {found.session}
    for point in found.points:
        assert point.timings is not None
        for name in ("warm", "cold", "launched", "enqueue"):
            timing = getattr(point.timings, name)
            assert 0 < timing.q1_us <= timing.median_us <= timing.q3_us
            assert len(timing.samples_us) > 20
        assert point.timings.enqueue.median_us <= point.timings.launched.median_us


def test_errors_are_within_what_the_experiment_allows():
    for found in load_recordings(DEFAULT_DEVICE):
        for point in found.points:
            assert 0 <= point.relative_error <= 1e-2
            assert point.reference_dtype in ("float64", "float32") or "copy" in found.experiment
