"""Capture on a CPU with gloo and two ranks: losses compared, all ranks profiled and merged, the slowest rank timed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture import loops
from snippets.lab.capture.agreement import ALONE, meet
from snippets.lab.capture.gpu import Gpu
from snippets.lab.capture.loops import MIN_ITERATIONS, time_loops
from snippets.lab.capture.rank_traces import same_work
from snippets.lab.capture.ranks import run_ranks
from snippets.lab.capture.recorder import make_batches
from snippets.lab.capture.worker import Process
from snippets.lab.experiment import Loop, WrongAnswer, find, package_folder
from snippets.lab.recording.schema import Recording
from tests.tool import events

PACKAGE = "tests.lab.broken"


def measured(rank: int, world: int, names: tuple[str, ...], folder: Path, number: int) -> list[str]:
    """Measure a group; return the stages that this rank reports."""
    stages: list[str] = []
    group = tuple(find(f"ranks/{name}", PACKAGE)[0] for name in names)
    process = Process(
        "cpu", folder, lambda one, doing: stages.append(f"{one.name} {doing}"), package_folder(PACKAGE), number,
        ranks=meet(rank, world),
    )  # fmt: skip
    process.measure(group)
    return stages


def read(path: Path) -> Recording:
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def test_all_ranks_are_profiled_and_merged(tmp_path: Path) -> None:
    stages, _ = run_ranks(measured, 2, ("first", "second"), tmp_path, 0)
    assert stages == ["first checking", "first profiling", "second checking", "second profiling"]
    assert sorted(path.name for path in tmp_path.glob("*.0.json")) == ["first.0.json", "second.0.json"]
    for name, size in (("first", 8), ("second", 6)):
        part = read(tmp_path / f"{name}.0.json")
        assert (part.has_trace, part.environment.gpus, part.environment.link) == (True, 2, "")
        (point,) = part.points
        assert (point.parameters, point.reference_dtype) == ({"size": size}, "float32")
        assert point.relative_error < 1e-6
        merged = tmp_path / f"{name}.trace.json"
        assert is_merged(merged)
        ranks = list(read_ranks(merged))
        assert [(each.rank, each.world_size) for each in ranks] == [(0, 2), (1, 2)]
        assert [[step.name for step in each.steps] for each in ranks] == [["ProfilerStep#1", "ProfilerStep#2"]] * 2
        assert all(step.find_annotation("step") for each in ranks for step in each.steps)


def test_a_process_that_times_leaves_no_trace(tmp_path: Path) -> None:
    run_ranks(measured, 2, ("first",), tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.1.json", "first.losses.json"]
    part = read(tmp_path / "first.1.json")
    assert (part.has_trace, part.points[0].iteration) == (False, None), "a CPU is not timed"


def test_wrong_losses_fail_on_every_rank(tmp_path: Path) -> None:
    with pytest.raises(
        WrongAnswer, match=r"^rank [01]: relative error of the losses 1\.19e-01, at most 1e-05 allowed$"
    ):
        run_ranks(measured, 2, ("wrong",), tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.losses.json"], "the reference, and no part"


def test_what_rank_0_returns_of_a_probe_is_kept(tmp_path: Path) -> None:
    run_ranks(measured, 2, ("probe",), tmp_path, 0, environment={"EXTRA": "x"})
    assert read(tmp_path / "probe.0.json").data == {
        "rank": 0,
        "found": [{"rank": 0, "extra": "x"}, {"rank": 1, "extra": "x"}],
    }


def uneven(rank: int, world: int, seconds: float) -> tuple[list[float], int]:
    """Times of a loop that takes `seconds` on rank 1 and no time on rank 0, and its iterations."""
    loops.ROUNDS_OF_RANKS, loops.BLOCK_S = 2, 8 * seconds
    count = 0

    def losses() -> Any:
        nonlocal count
        while True:
            count += 1
            time.sleep(seconds * rank)
            yield torch.zeros(())

    timing = time_loops({"only": Loop(losses(), lambda count: [], lead=0)}, "cpu", Gpu(), meet(rank, world))["only"]
    return list(timing.samples_us), count


def test_the_time_of_the_slowest_rank_counts() -> None:
    (first_us, first), (second_us, second) = run_ranks(uneven, 2, 0.01)
    assert first_us == second_us
    assert min(first_us) >= 10_000, "rank 0 alone would take no time"
    assert first == second, "all ranks run as many iterations"
    assert first >= 4 * MIN_ITERATIONS


def agreed(rank: int, world: int) -> tuple[Any, ...]:
    ranks = meet(rank, world)
    return ranks.arguments, ranks.gather(rank), ranks.largest(rank), ranks.is_any(rank == 1), ranks.means([rank, 4])


def test_ranks_agree() -> None:
    first, second = run_ranks(agreed, 2)
    assert first == ({"rank": 0, "world": 2}, [0, 1], 1, True, [0.5, 4])
    assert second == ({"rank": 1, "world": 2}, *first[1:])


def test_a_rank_alone_agrees_with_itself() -> None:
    ALONE.barrier()
    assert (ALONE.is_first, ALONE.arguments, ALONE.gather(3), ALONE.largest(3)) == (True, {}, [3], 3)
    assert (ALONE.is_any(False), ALONE.means([3.0])) == (False, [3.0])


def test_groups_share_processes_if_gpus_and_environment_are_the_same() -> None:
    first, second, wrong, raises, _, _, probe = ((one,) for one in find("ranks", PACKAGE))
    (alone,) = find("loops/first", PACKAGE)
    assert make_batches([(*first, *second), wrong, probe]) == [[(*first, *second), wrong], [probe]]
    on_four = (replace(raises[0], gpus=4),)
    set_up = (replace(raises[0], environment={"A": "1"}),)
    assert make_batches([wrong, on_four, set_up, (alone,)]) == [[wrong], [on_four], [set_up], [(alone,)]]


def of_steps(*sequences: str) -> Trace:
    """A trace whose steps run kernels of one letter each."""
    steps = [
        [events.step(index, 1000 * index, 900, external=index)]
        + [
            each
            for place, name in enumerate(sequence)
            for each in (
                events.launch(10 * index + place, 1000 * index + 10 * place),
                events.kernel(name, 10 * index + place, 1000 * index + 100 + 10 * place, 5),
            )
        ]
        for index, sequence in enumerate(sequences, 1)
    ]
    return read_trace(events.trace_bytes(*[each for step in steps for each in step]))


def test_steps_show_the_same_work_in_any_order() -> None:
    assert same_work(of_steps("ab", "ab"))
    assert same_work(of_steps("ab", "ba")), "on two streams, whichever begins first"
    assert not same_work(of_steps("ab", "abb")), "the profiler dropped a kernel"
    assert not same_work(of_steps())
