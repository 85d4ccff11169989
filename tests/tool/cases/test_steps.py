"""Traces of the issue's cases in which the steps are marked in other ways than by `prof.step()`."""

from __future__ import annotations

from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us, recorded_step_us
from tests.tool.trace.public import CASES, needs_cases


@needs_cases
def test_parts_of_an_iteration() -> None:
    trace = read_trace(CASES / "fwdbwd.json")
    assert trace.steps_from == "iterations of 'forward', 'backward', 'Optimizer.step#AdamW.step'"
    assert (len(trace.steps), trace.uncounted, recorded_step_us(trace.steps)) == (5, (), 10050.0)
    assert [busy_us(step.activities) for step in trace.steps] == [10000.0] * 5
