"""The shared cases of damaged, incomplete and foreign files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.headline import headline
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.totals import summarize
from tests.tool.trace.public import PROJECT

CASES = PROJECT.parent / "shared" / "traces" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no cases in ../shared/traces/cases")


def right(name: str) -> Any:
    return json.loads((CASES / f"{name}.expected.json").read_text())["right"]


def test_a_runaway_duration() -> None:
    summary, expected = summarize(read_trace(CASES / "rocm_runaway.json")), right("k5_runaway_duration")
    (damage,) = summary.damaged
    assert (summary.steps, damage.count) == (expected["steps"], 1)
    assert summary.gpu_busy_us_per_step == expected["gpu_busy_us_per_step_clipped"]
    (impossible,) = expected["impossible_events"]
    assert damage.events[0].name.startswith(impossible["name"])
    assert damage.events[0].recorded_us == impossible["recorded_us"]
    assert damage.events[0].at_most_us == impossible["at_most_us"]


def test_records_at_time_0() -> None:
    summary, expected = summarize(read_trace(CASES / "ts0_whole.json")), right("k12_records_at_time_0")
    assert [damage.count for damage in summary.damaged] == [expected["left_out"]]
    assert (summary.step_us, summary.gpu_busy_us_per_step) == (expected["whole_trace_us"], expected["gpu_busy_us"])


def test_a_report_of_dropped_kernels() -> None:
    diagnosed, expected = read_diagnosed(CASES / "dropped.json"), right("k15_report_of_dropped_kernels")
    summary = diagnosed.summary
    counts = summary.launches, summary.launches_without_kernel
    assert counts == (expected["launches"], expected["without_kernel"])
    assert any(note.startswith("20 of 80 launches (25%) have no kernel in the trace") for note in summary.notes)
    assert "25 % of the launches have no kernel" in headline(diagnosed)
    assert "No fault was found" not in headline(diagnosed)


def test_events_without_a_category() -> None:
    trace, expected = read_trace(CASES / "ascend.json"), right("k13_events_without_category")
    with pytest.raises(TraceError) as raised:
        summarize(trace)
    message = str(raised.value)
    assert message.startswith(f"{expected['events']} events, none with a category that is read: a trace of Ascend's")
    assert "schedule" not in message
