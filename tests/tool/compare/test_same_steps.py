"""Steps that are marked differently are compared by iteration, or not at all: never a regression."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kinetoscope.__main__ import main
from kinetoscope.compare.compare import compare
from kinetoscope.compare.comparison import change_text, comparison
from kinetoscope.compare.diff import judge
from kinetoscope.ranks.digest import digest
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, annotation, kernel, launch, op, step, trace_bytes
from tests.tool.trace.public import CASES, needs_cases
from tests.tool.trace.test_step_kinds import trace_of as trace_of_kinds

WORK = ("gemm", "gelu", "gemm", "add")
Make = Callable[[float, int], Event | None]


def by_step(at: float, number: int) -> Event:
    return step(number, at, 900.0)


def by_annotation(at: float, number: int) -> Event:
    return annotation("train", at, 900.0)


def unmarked(at: float, number: int) -> None:
    return None


def trace(make: Make, times: int = 6, *, work: Sequence[str] = WORK, us: float = 100.0, more: int = 0) -> Trace:
    """Iterations of 1,000 us; `more`: kernels of 1 us before the first."""
    events = [op("aten::zeros", -100.0, 5.0)] if more else []
    for number in range(more):
        events += [launch(1000 + number, -90.0 + number), kernel("fill", 1000 + number, -50.0 + number, 1.0)]
    for number in range(times):
        at = 1000.0 * number
        events += [mark] if (mark := make(at, number)) else []
        for index, name in enumerate(work):
            correlation = 10 * number + index + 1
            events.append(launch(correlation, at + 5 + 5 * index))
            events.append(kernel(name, correlation, at + 20 + 200 * index, us + 0.2 * (number % 2)))
    return read_trace(trace_bytes(*events))


@pytest.mark.parametrize(
    ("before", "after", "samples"),
    [
        (trace(by_step), trace(unmarked), (6, 6)),
        (trace(unmarked, 4), trace(by_step), (4, 6)),
        (trace(by_step), trace(by_annotation, 3), (6, 3)),
        (trace(by_annotation), trace(unmarked, more=20), (6, 6)),
        (trace(by_step, work=["gemm"] * 4), trace(unmarked, work=["gemm"] * 4), (6, 6)),
        (trace(unmarked, 4), trace(unmarked, 8), (4, 8)),
    ],
    ids=["whole after", "whole before", "annotation", "work before", "equal kernels", "both whole"],
)
def test_iterations_of_equal_work_compare(before: Trace, after: Trace, samples: tuple[int, int]) -> None:
    result = compare([before], [after])
    assert (result.do_steps_compare, result.samples) == (True, samples)
    assert result.totals["GPU busy"] == pytest.approx((400.4, 400.4), abs=0.15)
    assert [each.kind for each in result.differences] == ["same"] * len(result.differences)
    assert judge(result, 1.0).regressions == ()
    assert bool(result.notes) == ("the whole trace" in result.steps_from)


def test_times_of_split_iterations() -> None:
    """From the launch of the first kernel to that of the next iteration's; the last one until its GPU work ends."""
    result = compare([trace(by_step, 2)], [trace(unmarked, 2)])
    assert result.totals["step on the CPU"] == (900.0, (1000.0 + 715.2) / 2)
    assert result.totals["GPU, first start to last end"] == (700.1, 700.1)


@pytest.mark.parametrize("more", [trace(unmarked, us=110.0), trace(unmarked, 2, us=110.0)])
def test_a_slowdown_is_found_in_iterations_too(more: Trace) -> None:
    assert judge(compare([trace(by_step)], [more]), 3.0).regressions[0].name == "GPU busy"


@pytest.mark.parametrize(
    "after",
    [
        trace(unmarked, work=("gemm", "gelu", "gemm2", "add")),
        trace(unmarked, 1, more=90),
        trace(by_annotation, work=("gemm", "gelu")),
        trace(unmarked, work=("gemm", "gelu", "extra", "gemm", "add")),
    ],
    ids=["another kernel", "mostly other work", "other steps", "one kernel more"],
)
def test_other_work_under_other_marks_does_not_compare(after: Trace) -> None:
    result = compare([trace(by_step)], [after])
    assert not result.do_steps_compare
    assert change_text(result).startswith("Times per step do not compare. Steps are marked differently, by Profiler")
    assert result.steps_from == ("ProfilerStep", after.steps_from)
    with pytest.raises(TraceError, match="the gate cannot judge times per step: Steps are marked differently, by Prof"):
        judge(result, 3.0)


def test_whole_traces_of_other_work_are_compared_with_a_note() -> None:
    result = compare([trace(unmarked)], [trace(unmarked, work=("gemm", "gelu_add"))])
    assert result.do_steps_compare
    assert result.notes[0].startswith("Nothing marks steps: whole traces are compared")
    assert compare([trace(unmarked)], [trace(unmarked)]).notes == ()


def test_other_shares_of_prefill_and_decode_do_not_compare() -> None:
    def served(prefills: int) -> Trace:
        names = [f"step_{number}" for number in range(12)]
        lengths = [(20, 100.0, 2500.0)] * prefills + [(5, 60.0, 400.0)] * (12 - prefills)
        return trace_of_kinds(lengths, names=names)

    assert compare([served(3)], [served(3)]).do_steps_compare
    result = compare([served(3)], [served(6)])
    assert not result.do_steps_compare
    assert result.notes == (
        "The sides have kinds of step in other shares, 3 and 9 before, 6 and 6 after. Record as many of each kind, or "
        "each kind alone.",
    )


def test_digests_that_are_marked_differently() -> None:
    assert comparison(digest(trace(by_step)), trace(by_annotation)).do_steps_compare
    result = comparison(digest(trace(by_step)), trace(unmarked))
    assert not result.do_steps_compare
    assert change_text(result) == (
        "Times per step do not compare. Steps are marked differently, by ProfilerStep before and by the whole trace "
        "after, and their work differs. Mark the steps of both in the same way, with prof.step() after each iteration."
    )


def test_the_gate_refuses_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    paths[0].write_bytes(trace_bytes(*(step(number, 1000.0 * number, 900.0) for number in range(3)), *_kernels(3)))
    paths[1].write_bytes(trace_bytes(*_kernels(5)[:-1]))
    assert main(["diff", *map(str, paths), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["do_steps_compare"] is False
    assert main(["diff", *map(str, paths), "--gate", "3"]) == 2
    assert "REGRESSION" not in capsys.readouterr().out


def _kernels(times: int) -> list[Event]:
    events: list[Event] = []
    for number in range(times):
        events += [launch(2 * number + 1, 1000.0 * number + 10), kernel("a", 2 * number + 1, 1000.0 * number + 20, 9.0)]
        events += [launch(2 * number + 2, 1000.0 * number + 15), kernel("b", 2 * number + 2, 1000.0 * number + 30, 9.0)]
    return events


@needs_cases
def test_equal_programs_of_which_one_marks_no_steps(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(CASES / name) for name in ("d_a.json", "d_d.json")]
    assert main(["diff", *paths, "--gate", "3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["totals_us_per_step"]["GPU busy"] == [2998.0, 3003.412]
    assert data["gate"]["regressions"] == []
    assert data["notes"][0].startswith("Steps are marked differently, by ProfilerStep before and by the whole trace")
