"""Traces without GPU work compared: a step, what the CPU does in it, and operators by their own time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kinetoscope.__main__ import main
from kinetoscope.compare.cpu import are_cpu, compare_cpu
from kinetoscope.compare.cpu_parts import cpu_change_text, cpu_notes
from kinetoscope.compare.diff import judge_step
from kinetoscope.compare.document import cpu_document, named
from kinetoscope.report.several import report_several
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import annotation, kernel, launch, memory, op, step, trace_bytes

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def content(steps_us: Sequence[float], fetch_us: float, *names: str, **more: float) -> bytes:
    """Steps that fetch a batch, with an operator of 100 us for each name, around a product of 40 us."""
    events, at = [], 0.0
    for number, us in enumerate(steps_us):
        events += [step(number, at, us), annotation(FETCH, at, fetch_us), op("aten::stack", at + 1, 5)]
        for index, name in enumerate(names):
            start = at + fetch_us + 10 + 110 * index
            events += [op(name, start, 100), op("aten::mm", start + 50, more.get("product_us", 40))]
        at += us
    return trace_bytes(*events)


def made(*args: object, **more: float) -> Trace:
    return read_trace(content(*args, **more))  # type: ignore[arg-type]


BEFORE = [1000, 1010, 990], 300, "aten::linear", "aten::linear", "aten::add"
AFTER = [700, 707, 693], 100, "aten::linear", "aten::linear", "aten::mul"


def test_totals_add_up_and_operators_are_matched_by_name() -> None:
    result = compare_cpu([made(*BEFORE)], [made(*AFTER)])
    assert result.totals == {
        "step": (1000.0, 700.0),
        "fetching batches": (300.0, 100.0),
        "operators": (300.0, 300.0),
        "code outside operators": (400.0, 300.0),
    }
    assert (result.samples, result.unit, round(result.step.percent, 3)) == ((3, 3), "step", -30.0)
    assert [(each.name, each.kind, each.calls, each.change_us) for each in result.differences] == [
        ("aten::add", "removed", (1.0, 0.0), -60.0),
        ("aten::mul", "added", (0.0, 1.0), 60.0),
        ("aten::linear", "same", (2.0, 2.0), 0.0),
        ("aten::mm", "same", (3.0, 3.0), 0.0),
    ]
    assert (result.differences[2].before_us, result.differences[0].shift) == (120.0, None)
    data = cpu_document(result, named(["a.json"], ["b.json"]))
    assert data.causes_us_per_step == {
        "fetching batches": -200.0,
        "operators": 0.0,
        "code outside operators": -100.0,
    }
    assert data.step is not None
    assert (data.gpu_busy, data.gpus, data.step.percent) == (None, (), -30.0)


def test_sentences() -> None:
    before, after = made(*BEFORE), made(*AFTER)
    assert cpu_change_text(compare_cpu([before], [after])).startswith(
        "A step takes 30.0 % less: 1.00 ms before, 700 µs after; noise ±"
    )
    assert cpu_change_text(compare_cpu([before], [before])).startswith(
        "No change of a step's time beyond the noise: +0.0 %, noise ±"
    )
    one = made([1000], 300, "aten::linear")
    assert cpu_change_text(compare_cpu([one], [made([1100], 300, "aten::linear")])) == (
        "A step takes 10.0 % longer: 1.00 ms before, 1.10 ms after; the noise is unknown, from 1 and 1 steps."
    )
    runs = compare_cpu([before] * 3, [after] * 3)
    assert (runs.unit, runs.samples, len(cpu_notes(runs))) == ("run", (3, 3), 1)


def test_options_that_slow_one_side() -> None:
    before = made(*BEFORE)
    after = read_trace(trace_bytes(step(1, 0, 1000), op("aten::mm", 0, 900, types=["float"]), memory(5, 4, 1)))
    result = compare_cpu([before], [after])
    assert result.options == ("profile_memory", "record_shapes")
    assert cpu_notes(result)[1] == (
        "The traces differ in profile_memory and record_shapes, which slows the CPU: record both sides with the same "
        "options."
    )


def test_a_side_with_a_gpu_is_not_compared() -> None:
    gpu = read_trace(trace_bytes(step(1, 0, 100), op("aten::mm", 0, 50), launch(1, 5), kernel("k", 1, 20, 50)))
    lost = read_trace(trace_bytes(step(1, 0, 100), op("aten::mm", 0, 50), launch(1, 5)))
    cpu = made(*BEFORE)
    assert are_cpu([cpu], [cpu])
    assert not are_cpu([gpu], [gpu])
    assert not are_cpu([lost], [lost]), "the GPU's events are lost"
    with pytest.raises(TraceError, match="one side has GPU work and the other has none"):
        are_cpu([cpu], [gpu])


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, args in zip(paths, (BEFORE, AFTER), strict=True):
        path.write_bytes(content(*args))
    return list(map(str, paths))


def test_diff_and_its_gate(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *files, "--gate", "20"]) == 0
    text = capsys.readouterr().out
    assert "step                                       1,000.000       700.000      -300.000" in text
    assert "removed          1        0       60.000        0.000         -        -  aten::add" in text
    assert "No regression of 20 % or more, in 1 quantity." in text
    assert main(["diff", *reversed(files), "--gate", "3"]) == 1
    assert "REGRESSION: step +42.9 %" in capsys.readouterr().out
    assert main(["diff", *reversed(files), "--gate", "3", "--json"]) == 1
    gate = json.loads(capsys.readouterr().out)["gate"]
    assert (gate["judged"], gate["regressions"][0]["name"]) == (1, "step")


def test_the_report_on_two(files: list[str]) -> None:
    report = report_several(list(map(Path, files)))
    assert report.headline.startswith("A step takes 30.0 % less")
    assert [part.heading for part in report.parts] == [
        "What changed, by what the CPU does",
        "What changed, by operator",
    ]
    assert "aten::linear" in report.parts[1].html
    assert report.data["causes_us_per_step"]["fetching batches"] == -200.0


def test_steps_that_are_marked_differently() -> None:
    """One side marks four iterations, the other none: as a whole it is one step with four times the operators."""
    one = [op("aten::mm", 100.0 * index, 90.0) for index in range(4)]
    marked = read_trace(trace_bytes(*one, *(step(index, 100.0 * index, 100.0) for index in range(4))))
    whole = read_trace(trace_bytes(*one))
    result = compare_cpu([marked], [whole])
    assert not result.do_steps_compare
    why = (
        "Steps are marked differently, by ProfilerStep before and by the whole trace after, and their operators "
        "differ. Mark the steps of both in the same way, with prof.step() after each iteration."
    )
    assert cpu_change_text(result) == f"Times per step do not compare. {why}"
    assert cpu_notes(result)[0] == why
    with pytest.raises(TraceError, match="the gate cannot judge times per step: Steps are marked differently"):
        judge_step(result, 3.0)
    unmarked = compare_cpu([whole], [whole])
    assert unmarked.do_steps_compare
    assert cpu_notes(unmarked)[0].startswith("Nothing marks steps: whole traces are compared")
