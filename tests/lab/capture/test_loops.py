"""A training loop on a CPU: profiled, compared with its reference, timed in blocks, and merged into a recording."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest
import torch

from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture import loops
from snippets.lab.capture.gpu import Gpu
from snippets.lab.capture.loops import check_loop, keep_reference, open_loop, profile_loop, time_loops
from snippets.lab.capture.merging import merge
from snippets.lab.capture.profiling import chrome_trace
from snippets.lab.capture.recorder import group_experiments, make_batches, processes_of
from snippets.lab.capture.worker import Process
from snippets.lab.experiment import ExperimentError, Loop, WrongAnswer, find, package_folder
from snippets.lab.recording.schema import Recording, RecordingError, Timing, parse_recording
from tests.lab.broken.loops.experiments import STOPPED
from tests.lab.samples import point, sample, timing

PACKAGE = "tests.lab.broken"
FIRST, SECOND, WRONG, NONE, COLD = find("loops", PACKAGE)


def noted(name: str, log: list[str]) -> Generator[torch.Tensor, None, None]:
    for step in itertools.count(1):
        log.append(name)
        yield torch.tensor(1.0 / step)


def test_a_loop_is_stopped_when_it_is_done_with() -> None:
    STOPPED.clear()
    with open_loop(FIRST, "cpu") as loop:
        next(loop.losses)
        assert STOPPED == []
    assert STOPPED == [""]
    with (
        pytest.raises(ExperimentError, match=r"^loops/none: loop returned a int; return a Loop$"),
        open_loop(NONE, "cpu"),
    ):
        pass


def test_losses_are_those_of_the_reference() -> None:
    with open_loop(FIRST, "cpu") as loop:
        assert check_loop(loop, "cpu") == (pytest.approx(0, abs=1e-6), "float32", 0)
        assert next(loop.losses) == 8 / 4, "three were compared"
    with (
        open_loop(WRONG, "cpu") as loop,
        pytest.raises(WrongAnswer, match=r"^relative error of the losses 5\.00e-01, at most 1e-02 allowed$"),
    ):
        check_loop(loop, "cpu")
    nan = Loop(iter([torch.tensor(torch.nan)] * 3), lambda count: [1.0] * count)  # type: ignore[arg-type]
    with pytest.raises(WrongAnswer, match="losses nan"):
        check_loop(nan, "cpu")


def test_losses_that_grow_without_limit_are_wrong() -> None:
    """The last loss is so large that the error of the first one, a half, would not count."""
    losses = [1.5, 2.0e4, 4.5e29]
    grown = Loop((torch.tensor(loss, dtype=torch.float64) for loss in losses), lambda count: [1.0, *losses[1:]])
    with pytest.raises(WrongAnswer, match=r"^the losses of the reference grow to 4\.5e\+29; use a smaller"):
        check_loop(grown, "cpu")


def test_a_trace_has_the_iterations_under_their_label() -> None:
    with open_loop(SECOND, "cpu") as loop:
        trace = read_trace(chrome_trace(profile_loop(SECOND, loop, "cpu")))
        assert next(loop.losses) == 8 / (3 + 3 + 1), "first steps, warm-up and active ones"
    assert [step.name for step in trace.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert all(step.find_annotation("step") for step in trace.steps)


def test_blocks_of_two_loops_alternate_after_their_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "ROUNDS", 2)
    monkeypatch.setattr(loops, "BLOCK_S", 0.0)
    log: list[str] = []
    pair = {name: Loop(noted(name, log), lambda count: [], lead=lead) for name, lead in (("A", 1), ("B", 2))}
    times = time_loops(pair, "cpu", Gpu())
    assert all(len(each.samples_us) == 2 and each.median_us > 0 for each in times.values())
    blocks = ["".join(group) for _, group in itertools.groupby(log)]
    a, b = "A" * (1 + loops.MIN_ITERATIONS), "B" * (2 + loops.MIN_ITERATIONS)
    assert blocks == [a, b, a, b, a, 2 * b, a], "how many, one that is discarded, then A B, B A"


def test_a_block_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 1_000_000)  # each look is 1 ms later
    monkeypatch.setattr(loops.time, "perf_counter_ns", lambda: next(clock))
    log: list[str] = []
    times = time_loops({"A": Loop(noted("A", log), lambda count: [], lead=0)}, "cpu", Gpu())
    count = 600  # 1 ms for 4 iterations: 150 ms for 600
    assert len(log) == loops.MIN_ITERATIONS + (1 + loops.ROUNDS) * count
    assert times["A"].median_us == pytest.approx(1000 / count, abs=1e-3)


def test_loops_share_processes_and_a_cold_one_does_not() -> None:
    assert [processes_of(group) for group in group_experiments((FIRST, SECOND))] == [[0, 1, 2, 3]]
    batches = make_batches(group_experiments((FIRST, SECOND, WRONG, COLD)))
    assert batches == [[(FIRST, SECOND), (WRONG,)], [(COLD,)]]


@pytest.mark.parametrize("group", [(FIRST, SECOND), (COLD,)], ids=["pair", "cold"])
def test_a_process_leaves_a_part_for_each_loop(group: tuple, tmp_path: Path) -> None:
    stages: list[str] = []
    for number in (0, 1):
        process = Process(
            "cpu", tmp_path, lambda one, doing: stages.append(f"{one.name} {doing}"), package_folder(PACKAGE), number
        )
        process.measure(group)
    for experiment in group:
        parts = [
            msgspec.json.decode((tmp_path / f"{experiment.name}.{number}.json").read_bytes(), type=Recording)
            for number in (0, 1)
        ]
        assert [part.has_trace for part in parts] == [True, False]
        (only,) = merge(parts).points
        assert (only.parameters, only.flops, only.bytes) == ({"size": 8}, 0, 0)
        assert (only.relative_error, only.reference_dtype) == (pytest.approx(0, abs=1e-6), "float32")
        assert (only.timings, only.iteration) == (None, None), "a CPU is not timed"
        trace = read_trace((tmp_path / f"{experiment.name}.trace.json").read_bytes())
        assert len(trace.steps) == experiment.schedule.active
    expected = [f"{one.name} {doing}" for one in group for doing in ("checking", "profiling")]
    assert sorted(stages[: len(expected)]) == sorted(expected)
    assert (stages[0] == "cold profiling") == (group == (COLD,)), "a cold process profiles first"


def test_parts_of_an_iteration_follow_each_other() -> None:
    parts = [sample(points=(point(iteration=timing(us, us)),)) for us in (30, 10, 20)]
    (merged,) = merge([sample(points=(point(),)), *parts]).points
    assert merged.iteration == Timing.from_samples((30, 30, 10, 10, 20, 20), rounds=(2, 2, 2))
    assert merged.timings is None


def test_a_recording_whose_iteration_contradicts_its_samples_is_damaged() -> None:
    wrong = msgspec.structs.replace(timing(10, 20), median_us=11.0)
    content = msgspec.json.encode(sample(points=(point(iteration=wrong),)))
    with pytest.raises(RecordingError, match="iteration of point 0 contradicts its own samples"):
        parse_recording(content, "a.json")


def test_a_reference_is_computed_once_for_all_processes(tmp_path: Path) -> None:
    counts: list[int] = []

    def reference(count: int) -> list[float]:
        counts.append(count)
        return [0.5] * count

    loop = Loop(iter(()), reference)  # type: ignore[arg-type]
    first, later = (keep_reference(loop, tmp_path / "losses.json").reference(3) for _ in range(2))
    assert first == later == [0.5, 0.5, 0.5]
    assert counts == [3]
