"""Sample recordings of loops and of several GPUs: their times, and the traces of all ranks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from snippets.lab.experiment import find
from snippets.lab.finding.ranks import compare_ranks, on_ranks
from tests.lab import sample_recordings
from tests.lab.sample_recordings import LINK, sample_of, save_samples

PACKAGE = "tests.lab.broken"
EVEN = [("aten::mm", [[64, 64], [64, 64]], [("gemm", 40.0)]), ("all_reduce", [[1 << 20]], [("nccl", 20.0)])]
LATE = [("aten::mm", [[96, 64], [64, 64]], [("gemm", 60.0), "copy"]), EVEN[1], ("aten::add", [[64]], [("add", 5.0)])]


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_recordings, "find", partial(find, package=PACKAGE))


def test_a_loop_has_the_time_of_its_iteration(tmp_path: Path) -> None:
    run = save_samples(tmp_path, [sample_of("loops/first", 300.0, EVEN[:1])])["loops/first"]
    assert (run.timing("iteration").median_us, run.point.parameters, run.point.timings) == (300.0, {"size": 8}, None)
    assert (len(run.steps), run.environment.gpus, run.environment.link) == (3, 1, "")


def test_ranks_meet_in_their_collectives(tmp_path: Path) -> None:
    run = save_samples(tmp_path, [sample_of("ranks/first", 300.0, ranks=[EVEN, LATE])])["ranks/first"]
    assert (run.timing("iteration").median_us, run.environment.gpus, run.environment.link) == (300.0, 2, LINK)
    kernels = [
        [(each.name[:20], each.start_us - run.step.start_us, each.duration_us) for each in rank.step.activities]
        for rank in on_ranks(run)
    ]
    reduce = "ncclDevKernel_AllRed"
    assert kernels == [
        [("gemm", 10.0, 40.0), (reduce, 50.0, 50.0)],
        [("gemm", 10.0, 60.0), ("copy", 70.0, 10.0), (reduce, 80.0, 20.0), ("add", 100.0, 5.0)],
    ]
    report = compare_ranks(run)
    assert [(part.own_us, part.transfer_us, part.waiting_us) for part in report.parts] == [(40, 20, 30), (75, 20, 0)]
    assert report.shown is not None
    assert (report.shown.costliest.operation, report.shown.costliest.bytes) == ("allreduce", 2 << 20)


def test_ranks_without_their_own_operators_are_alike(tmp_path: Path) -> None:
    gathers = [("all_gather", [[1 << 20]], [("nccl", 8.0)]), ("reduce_scatter", [[1 << 20]], [("nccl", 9.0)])]
    run = save_samples(tmp_path, [sample_of("ranks/first", 300.0, [*EVEN, *gathers])])["ranks/first"]
    first, second = compare_ranks(run).parts
    assert (first.own_us, first.transfer_us, first.waiting_us) == (40.0, 37.0, 0.0)
    assert (second.own_us, second.transfer_us, second.waiting_us) == (40.0, 37.0, 0.0)
    names = [kernel.name.partition("_")[2].partition("_")[0] for kernel in run.step.kernels]
    assert names == ["", "AllReduce", "AllGather", "ReduceScatter"]
    assert [each.collective.name for each in run.step.kernels[1:] if each.collective] == [
        "allreduce",
        "_allgather_base",
        "_reduce_scatter_base",
    ]


def test_a_probe_of_several_gpus_has_no_trace() -> None:
    recording, trace = sample_of("ranks/probe", 0.0, data={"found": 2})
    assert (recording.data, recording.environment.gpus, recording.points, trace) == ({"found": 2}, 2, (), None)
