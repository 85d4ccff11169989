"""Traces of the issue's cases in which the steps are marked in other ways than by `prof.step()`, or differ."""

from __future__ import annotations

import pytest

from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.headline import headline
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us, recorded_step_us
from tests.tool.trace.public import CASES, needs_cases


@needs_cases
def test_parts_of_an_iteration() -> None:
    trace = read_trace(CASES / "fwdbwd.json")
    assert trace.steps_from == "iterations of 'forward', 'backward', 'Optimizer.step#AdamW.step'"
    assert (len(trace.steps), trace.uncounted, recorded_step_us(trace.steps)) == (5, (), 10050.0)
    assert [busy_us(step.activities) for step in trace.steps] == [10000.0] * 5


@needs_cases
def test_the_last_graph_replay_ends_with_its_own_work() -> None:
    made = read_diagnosed(CASES / "graph_tail.json")
    assert (len(made.trace.steps), made.waits.step_us) == (8, 1030.25)
    assert headline(made).startswith("A step takes 1.03 ms and the GPU works 87 % of it.")


@needs_cases
@pytest.mark.parametrize(
    ("name", "kinds", "takes"),
    [
        ("prefill_decode", [(3, 16120.0), (9, 1590.0)], "3 take 16.1 ms, 9 take 1.59 ms"),
        ("val", [(4, 9170.0), (8, 1950.0)], "4 take 9.17 ms, 8 take 1.95 ms"),
    ],
)
def test_two_kinds_of_step(name: str, kinds: list[tuple[int, float]], takes: str) -> None:
    made = read_diagnosed(CASES / f"{name}.json")
    assert [(kind.count, kind.step_us) for kind in made.summary.kinds_of_step] == kinds
    assert headline(made).startswith(f"A trace of two kinds of step: {takes};")
    assert "first-step" not in {finding.rule.name for finding in made.diagnosis.findings}


@needs_cases
def test_a_stall_of_every_fourth_step_makes_no_kinds() -> None:
    assert read_diagnosed(CASES / "loader_steps.json").summary.kinds_of_step == ()
