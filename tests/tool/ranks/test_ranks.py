"""Ranks side by side: a planted straggler is named with its cause; what cannot be compared is not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kinetoscope.ranks.digest import CollectiveDigest, Digest, collective_name, digest
from kinetoscope.ranks.digest_files import write_digest
from kinetoscope.ranks.merge import merge
from kinetoscope.ranks.ranks import ranks_data, ranks_headline, ranks_report, straggler_text
from kinetoscope.report.ranks_html import quantile_ns, ranks_report_parts
from kinetoscope.report.several import is_several, reduce_to_digest, report_several
from kinetoscope.trace.events import Collective, GpuActivity, TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.markup import EVIL
from tests.tool.runs import ADD, ALL_REDUCE, GEMM, Kernel, trace_of
from tests.tool.trace.public import PUBLIC, needs_public_traces


def ranks(late: int, late_us: float, *, count: int = 4, is_slow: bool = True, group: str = "dp") -> list[Digest]:
    """Each rank computes for 100 us, one for longer or later, and all leave the allreduce together at 200 us."""
    digests = []
    for rank in range(count):
        delay = late_us if rank == late else 0.0
        first: Kernel = (GEMM, 0.0, 100.0 + delay) if is_slow else (GEMM, 0.0, 20.0)
        work = [first, *([] if is_slow else [(ADD, 20.0 + delay, 80.0)])]
        work.append((ALL_REDUCE, 100.0 + delay, 100.0 - delay))
        digests.append(digest(trace_of([work] * 3, rank=rank, world_size=count, group=group)))
    return digests


def test_a_slow_rank_is_the_straggler() -> None:
    report = ranks_report(ranks(2, 30.0))
    late = report.straggler
    assert late is not None
    assert (late.rank, late.share, late.wait_us) == (2, 1.0, 30.0)
    assert late.why.startswith("its own kernels take 30.0 µs more per step")
    assert [(rank.last_at, rank.delays_us) for rank in report.ranks] == [(0, 0.0), (0, 0.0), (3, 90.0), (0, 0.0)]
    assert [rank.exposed_us for rank in report.ranks] == [100.0, 100.0, 70.0, 100.0]
    assert report.notes == ()
    assert ranks_headline(report) == "Rank 2 arrives last: each other rank waits for it for 30.0 µs per step."
    assert straggler_text(late).startswith("100% of all waiting at collectives is for rank 2, 30.0 µs per step")


def test_a_rank_whose_cpu_is_late_is_the_straggler() -> None:
    late = ranks_report(ranks(1, 25.0, is_slow=False)).straggler
    assert late is not None
    assert late.rank == 1
    assert late.why.startswith("its GPU is idle for 25.0 µs more per step")


@pytest.mark.parametrize(("late_us", "named"), [(9.0, False), (11.0, True)])
def test_a_wait_below_one_percent_of_a_step_names_no_rank(late_us: float, named: bool) -> None:
    report = ranks_report(ranks(0, late_us))
    assert (report.straggler is not None) is named
    if not named:
        assert ranks_headline(report) == "No single rank holds up the others."


def test_ranks_that_are_late_in_turns_have_no_straggler() -> None:
    digests = []
    for rank in range(4):
        steps = [[(ALL_REDUCE, 0.0, 50.0 if number % 4 == rank else 100.0)] for number in range(8)]
        digests.append(digest(trace_of(steps, rank=rank, world_size=4, group="dp")))
    report = ranks_report(digests)
    assert [rank.last_at for rank in report.ranks] == [2, 2, 2, 2]
    assert report.straggler is None


def test_groups_of_one_name_that_are_different_groups_are_not_compared() -> None:
    """Four ranks in two groups of two, both named `tp`: no collective has more ranks than its group."""
    digests = [
        digest(trace_of([[(ALL_REDUCE, 0.0, 50.0 + rank)]], rank=rank, world_size=2, group="tp")) for rank in range(4)
    ]
    report = ranks_report(digests)
    assert (report.compared, report.straggler) == (0, None)
    assert ranks_headline(report) == "These digests cannot tell who arrives last."
    assert "No collective was found on several ranks" in report.notes[1]


def test_without_group_names_only_what_all_ranks_have_is_compared() -> None:
    digests = [
        digest(trace_of([[(ALL_REDUCE, 0.0, 50.0)] + [(ALL_REDUCE, 60.0, 9.0)] * (rank == 0)], rank=rank, world_size=2))
        for rank in range(2)
    ]
    report = ranks_report(digests)
    assert report.compared == 1
    assert any("different numbers of communication kernels per step (1 to 2)" in text for text in report.notes)
    assert any("1 collectives are not compared" in text for text in report.notes)


def test_missing_ranks_are_said() -> None:
    assert ranks_report(ranks(1, 30.0)[:2]).notes[0] == (
        "2 of 4 ranks are given: the one that arrives last may be missing."
    )


@pytest.mark.parametrize(
    ("kernel", "stated", "name"),
    [
        (ALL_REDUCE, "", "allreduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "", "allgather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "", "reducescatter"),
        ("ncclDevKernel_Broadcast_RING_LL", "", None),
        ("ncclDevKernel_SendRecv", "", None),
        ("ncclDevKernel_SendRecv", "all_to_allv", "alltoall"),
        ("ncclDevKernel_AllGather_RING_LL", "_allgather_base", "allgather"),
        ("ncclDevKernel_Generic", "_reduce_scatter_base", "reducescatter"),
        ("ncclDevKernel_AllReduce", "broadcast", None),
    ],
)
def test_collectives_at_which_all_ranks_wait(kernel: str, stated: str, name: str | None) -> None:
    collective = Collective(stated) if stated else None
    assert collective_name(GpuActivity(kernel, 0, 1, "kernel", 0, 7, collective=collective)) == name


def test_waiting_is_what_exceeds_the_shortest() -> None:
    assert CollectiveDigest(0, 0, "dp", "allreduce", 3, 3, 260, 70, 1, 100, 2).waited_ns == 50


def test_quantiles_are_those_of_the_bins() -> None:
    steps = [[(GEMM, 0.0, 10.0 if number < 9 else 100.0)] for number in range(10)]
    (kernel,) = digest(trace_of(steps)).kernels
    assert quantile_ns(kernel, 0.5) == pytest.approx(10_000, rel=0.19)
    assert quantile_ns(kernel, 0.99) == pytest.approx(100_000, rel=0.19)


def test_the_sections_of_the_report() -> None:
    parts = ranks_report_parts(ranks_report(ranks(2, 30.0)))
    assert [part.heading for part in parts] == ["Who waits for whom", "Ranks side by side", "Kernels of all ranks"]
    assert "waiting at collectives is for rank 2" in parts[0].html
    assert parts[1].html.count("<tr>") == 5
    assert "<strong>2</strong>" in parts[1].html
    assert "Source: TraceLens" in parts[1].html


def test_names_stay_text() -> None:
    for evil in EVIL:
        work = [[(evil, 0.0, 10.0), (ALL_REDUCE, 10.0, 5.0)]]
        digests = [digest(trace_of(work, rank=rank, world_size=2, group=evil)) for rank in range(2)]
        assert not any(evil in part.html for part in ranks_report_parts(ranks_report(digests)))


def test_a_thousand_ranks_merge_in_a_tree() -> None:
    def work(rank: int) -> list[Kernel]:
        return [(GEMM, 0, 100), (ALL_REDUCE, 100, 70 if rank == 637 else 100)]

    wide = [digest(trace_of([work(rank)] * 3, rank=rank, world_size=1000, group="dp")) for rank in range(1000)]
    began = time.process_time()
    while len(wide) > 1:
        wide = [merge(wide[index : index + 16]) for index in range(0, len(wide), 16)]
    report = ranks_report(wide)
    assert time.process_time() - began < 5
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.wait_us) == (637, 30.0)
    html = ranks_report_parts(report)[1].html
    assert "968 more ranks" in html
    assert html.index("<strong>637</strong>") < html.index("968 more ranks")
    assert len(html) < 1_000_000


def test_data_for_machines() -> None:
    data = ranks_data(ranks_report(ranks(2, 30.0)))
    assert data["straggler"]["rank"] == 2
    assert data["straggler"]["wait_us_per_step"] == 30.0
    assert [rank["rank"] for rank in data["ranks"]] == [0, 1, 2, 3]
    assert data["collectives_compared"] == 3


def test_files_are_ranks_a_comparison_or_neither(tmp_path: Path) -> None:
    paths = [tmp_path / f"{rank}.digest.json" for rank in range(3)]
    for path, made in zip(paths, ranks(1, 30.0, count=3), strict=True):
        write_digest(made, path)
    report = report_several(paths)
    assert report.title == "3 ranks of one job"
    assert report.headline.startswith("Rank 1 arrives last")
    merged = tmp_path / "all.digest.json"
    assert len(reduce_to_digest(paths, merged).ranks) == 3
    assert is_several([merged])
    assert report_several([merged]) == report
    assert report_several(paths[:2]).title == "2 ranks of one job"
    same = report_several([paths[0], paths[0]])
    assert same.title.endswith("compared")
    assert same.headline.startswith("No change of the GPU's busy time beyond the noise: +0.0 %")
    with pytest.raises(TraceError, match="3 files that are not ranks of one job"):
        report_several([paths[0], paths[0], paths[1]])
    with pytest.raises(TraceError, match="would replace what it is made from"):
        reduce_to_digest(paths, paths[0])
    with pytest.raises(TraceError, match="--rank is for a single trace"):
        reduce_to_digest(paths, merged, rank=1)


@needs_public_traces
def test_two_ranks_of_a_public_job() -> None:
    """Nothing overlaps communication in this job, and one rank's GPU waits for its CPU for a third of the step."""
    names = "astra_megatron_tp8_rank0", "astra_megatron_tp8_rank1"
    digests = [digest(read_trace(PUBLIC / f"{name}.json.gz"), rank) for rank, name in enumerate(names)]
    report = ranks_report(digests)
    for rank in report.ranks:
        assert rank.exposed_us == pytest.approx(rank.communication_us, rel=0.01)
    assert report.compared == 84
    assert report.straggler is not None
    assert report.straggler.rank == 0
    assert "its CPU launches late" in report.straggler.why
