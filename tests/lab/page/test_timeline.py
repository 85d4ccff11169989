"""Timelines of recordings: side by side, with their traces, and every step that is recorded."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from kinetoscope.timeline.draw import BUDGET
from kinetoscope.trace.events import Step, Trace, TraceError
from kinetoscope.trace.placing import time_shown
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.page.timeline import timeline
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import NotRecorded
from tests.lab.samples import BOOK, DEVICE, Markup, sample, save_all
from tests.tool.events import op, trace_bytes
from tests.tool.timeline.test_timeline import group, rows, slices


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample(), sample("mlp/compiled"))


def test_recordings_side_by_side(device: Device) -> None:
    content = timeline(device, {"eager": "mlp/eager", "compiled": "mlp/compiled"}, "Both")
    assert len(slices(content)) == 2 * (2 + 3 + 3)
    assert [each.get("class") for each in slices(content)].count("slice label") == 2
    seen = Markup(content)
    urls = [f"../recordings/{DEVICE}/mlp/{name}.trace.json.gz" for name in ("eager", "compiled")]
    assert [value for name, value in seen.attributes if name == "data-trace"] == urls
    assert [value for name, value in seen.attributes if name == "href"] == urls
    assert all((device.root / url.removeprefix("../recordings/")).is_file() for url in urls)
    titles = [value for name, value in seen.attributes if name == "data-title"]
    assert titles == ["mlp/eager on NVIDIA Sample", "mlp/compiled on NVIDIA Sample"]
    at_home = timeline(device, {"eager": "mlp/eager"}, "Both", site_root=".")
    assert f'href="./recordings/{DEVICE}/mlp/eager.trace.json.gz" download' in at_home


def test_ids_are_stable_and_differ_by_device_and_caption(device: Device) -> None:
    variants = {"eager": "mlp/eager"}
    first = timeline(device, variants, "One")
    assert timeline(device, variants, "One") == first
    other = save_all(device.root, sample(), device="nvidia-other")
    contents = (first, timeline(device, variants, "Two"), timeline(other, variants, "One"))
    ids = [re.findall(r'id="(timeline-\w{8})-arrow"', content) for content in contents]
    assert len({ident for found in ids for ident in found}) == len(contents) == sum(map(len, ids))


def test_without_a_recording_or_a_step(device: Device) -> None:
    variants = {"Liger": "mlp/liger"}
    with pytest.raises(NotRecorded):
        timeline(device, variants, "None")
    save_all(device.root, sample("mlp/liger", has_trace=False))
    with pytest.raises(UnknownName, match="has no trace"):
        timeline(device, variants, "None")
    save_all(device.root, sample("mlp/liger"), trace=trace_bytes(op("aten::mm", 0, 5)))
    with pytest.raises(TraceError, match="no active steps"):
        timeline(device, variants, "None")


def test_recorded_steps_can_be_drawn() -> None:
    """A small step, one with work of the step before, and one with too many slices."""
    for name in ("mlp/eager", "trace_rows/full_queue", "training_memory/optimizer_loop"):
        assert_is_drawn(name)


@pytest.mark.slow
def test_every_recorded_step_can_be_drawn() -> None:
    for recording in load_recordings(BOOK.root, BOOK.name):
        if recording.has_trace:
            assert_is_drawn(recording.id)


def assert_is_drawn(name: str) -> None:
    recorded = BOOK[name].step
    content = timeline(BOOK, {"it": name}, "It")
    all_slices = slices(content)
    everything = len(recorded.ops) + len(recorded.calls) + len(recorded.activities)
    assert len(rows(content)) == len(all_slices), name
    if len(all_slices) == everything:
        assert len(list(group(content, "arrows"))) == sum(
            activity.launch in recorded.calls for activity in recorded.activities
        ), name
    else:
        assert everything + ghosts_of(recorded, BOOK[name].trace) > BUDGET, name
        assert "too short to see" in content or "not drawn" in content, name
    assert [each.get("class") for each in all_slices].count("slice label") == 1, name
    places = [(float(each.get("x", "")[:-1]), float(each.get("width", "")[:-1])) for each in all_slices]
    assert all(x >= 0 and x + width <= 100 for x, width in places), name


def ghosts_of(step: Step, trace: Trace) -> int:
    """The GPU work of other steps that runs in the time shown of a step."""
    begin, end = (step.start_us + us for us in time_shown(step))
    own = set(map(id, step.activities))
    return sum(a.start_us < end and a.end_us > begin for a in trace.activities if id(a) not in own)


def test_three_variants_are_light() -> None:
    variants = {"eager": "mlp/eager", "compiled": "mlp/compiled", "Liger": "mlp/liger"}
    content = timeline(BOOK, variants, "The MLP, three ways")
    assert len(gzip.compress(content.encode())) < 9_500
