"""Shared cases about idle time: a loader that stalls, the start of CUDA, pauses between steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import report_data
from tests.tool.trace.public import PROJECT

CASES = PROJECT.parent / "shared" / "traces" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no cases in ../shared/traces/cases")


def case(name: str) -> tuple[DiagnosedTrace, Any]:
    """A trace and its right values."""
    expected = json.loads(Path(CASES / f"{name}.expected.json").read_text())
    return read_diagnosed(CASES / expected["files"][0]), expected["right"]


def test_a_loader_stalls_every_fourth_step() -> None:
    trace, right = case("k3_loader_stalls_every_4th")
    first = trace.diagnosis.findings[0]
    assert first.rule.name == right["first_finding"]
    assert first.saving_us_per_step == right["ceiling_us_per_step_about"]
    assert first.evidence_us_per_step == right["fetching_us_per_step_mean"]
    assert first.title.endswith("per step (50 %), most of it in 3 of 12 steps")
    assert headline(trace).endswith("The step waits for data: a fix saves at most 100 ms per step (50 %).")


def test_the_start_of_cuda() -> None:
    trace, right = case("k7_start_of_cuda_in_cudafree")
    first = trace.diagnosis.findings[0]
    assert first.rule.name == "first-step"
    assert "starts CUDA: 2 calls of 882 ms, the longest cudaFree with 612 ms" in first.title
    assert sum(call.duration_us for call in trace.facts.start_up) == right["start_up_us"]
    assert "allocator-in-step" not in {finding.rule.name for finding in trace.diagnosis.findings}


def test_a_full_queue_is_no_start() -> None:
    trace, _ = case("k7_ordinary_long_calls_of_mtia")
    assert trace.facts.start_up == []
    assert "CUDA" not in headline(trace)


def test_a_pause_between_steps() -> None:
    trace, right = case("k16_pause_between_steps")
    data = report_data(trace)
    keys = ("steps", "idle_us", "idle_in_steps_us", "idle_between_steps_us")
    assert [data[key] for key in keys] == [right[key] for key in keys]
    assert headline(trace).endswith(
        "most of the GPU's idle time (96 %) is between the steps, where the trace shows nothing."
    )
