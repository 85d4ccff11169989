"""Ranks side by side: a planted late rank is named with its cost and cause; what cannot be compared is not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from kinetoscope.job.rank_parts import RankParts
from kinetoscope.ranks.digest import FORMAT, VERSION, Digest, digest
from kinetoscope.ranks.digest_files import write_digest
from kinetoscope.ranks.merge import merge
from kinetoscope.ranks.ranks import ranks_report
from kinetoscope.ranks.texts import ranks_headline, straggler_text, transfer_name
from kinetoscope.report.ranks_document import ranks_document
from kinetoscope.report.several import is_several, reduce_to_digest, report_several
from kinetoscope.trace.documents import document_data
from kinetoscope.trace.events import Collective, TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import kernel, launch, op, step, trace_bytes
from tests.tool.runs import ADD, ALL_REDUCE, GEMM, Kernel, trace_of
from tests.tool.trace.public import PUBLIC, needs_public_traces

Work = tuple[str, float, float, Collective | None]
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


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


def job(*works: list[Work], steps: int = 3) -> list[Digest]:
    """Ranks that do the same in each step of 1,000 us; communication has a stream of its own."""
    digests = []
    for rank, work in enumerate(works):
        trace = trace_of([[each[:3] for each in work]] * steps, rank=rank, world_size=len(works))
        kernels = [
            msgspec.structs.replace(activity, collective=stated, stream=20 if "nccl" in activity.name else 7)
            for step in trace.steps
            for activity, (*_, stated) in zip(step.activities, work, strict=True)
        ]
        made = [
            msgspec.structs.replace(step, activities=tuple(kernels[index * len(work) : (index + 1) * len(work)]))
            for index, step in enumerate(trace.steps)
        ]
        digests.append(digest(msgspec.structs.replace(trace, steps=tuple(made), activities=tuple(kernels))))
    return digests


def collective(name: str, *members: int, **more: Any) -> Collective:
    return Collective(name, group="1", group_size=len(members), ranks=members, **more)


def test_a_slow_rank_is_late() -> None:
    report = ranks_report(ranks(2, 60.0))
    late = report.straggler
    assert late is not None
    assert (late.rank, late.share, late.saving_us, late.among) == (2, 1.0, 60.0, (0, 1, 2, 3))
    assert late.why.startswith("its own kernels take 60.0 µs more per step than the others' median: the same 1 kernels")
    assert [(rank.last_at, rank.delays_us) for rank in report.ranks] == [(0, 0.0), (0, 0.0), (3, 180.0), (0, 0.0)]
    assert [rank.exposed_us for rank in report.ranks] == [100.0, 100.0, 40.0, 100.0]
    assert [(part.own_us, part.transfer_us, part.waiting_us) for part in report.parts] == [
        (100.0, 40.0, 60.0), (100.0, 40.0, 60.0), (160.0, 40.0, 0.0), (100.0, 40.0, 60.0),
    ]  # fmt: skip
    assert report.notes == (
        "The ends of a collective on its ranks cannot be compared: a trace does not tell when its clock began, so that "
        "starts on different ranks cannot be compared. The waiting is from durations alone.",
    )
    assert ranks_headline(report) == (
        "Rank 2 is late: if it were not, a step would be about 60.0 µs shorter, of 733 µs (8 %)."
    )
    assert straggler_text(late).startswith("100% of the waiting is at collectives at which rank 2 arrives last.")


def test_a_rank_that_is_late_in_few_steps() -> None:
    """Rank 1 computes for 900 us more in the fifth of eight steps."""
    digests = []
    for rank in range(2):
        late = [900.0 if number == 4 else 0.0 for number in range(8)]
        own = [100.0 + (us if rank == 1 else 0.0) for us in late]
        steps = [
            [(GEMM, 0.0, us), (ALL_REDUCE, us, 140.0 + all_us - us)]
            for us, all_us in zip(own, [100.0 + us for us in late], strict=True)
        ]
        digests.append(digest(trace_of(steps, rank=rank, world_size=2, group="dp")))
    assert ranks_headline(ranks_report(digests)).endswith(
        "Rank 1 is late: if it were not, a step would be about 112 µs shorter, of 905 µs (12 %), most of it in 1 of 8 "
        "steps."
    )


def test_the_headline_says_that_kernels_are_missing() -> None:
    """The profiler lost the kernels of three launches of four on rank 1."""
    lost = [launch(90 + number, 10.0 + number) for number in range(3)]
    whole = digest(read_trace(trace_bytes(step(0, 0, 900), launch(1, 1), kernel(GEMM, 1, 5, 9))), 0)
    cut = digest(read_trace(trace_bytes(step(0, 0, 900), launch(1, 1), kernel(GEMM, 1, 5, 9), *lost)), 1)
    again = msgspec.structs.replace(cut, ranks=(msgspec.structs.replace(cut.ranks[0], rank=0),))
    text = ranks_headline(ranks_report([whole, cut]))
    assert text.startswith("The trace of rank 1 lacks many kernels, so these times are wrong: record the job again. ")
    both = ranks_headline(ranks_report([again, cut]))
    assert both.startswith("The traces of ranks 0 and 1 lack many kernels, so these times are wrong")


def test_a_rank_whose_gpu_idles_is_late() -> None:
    late = ranks_report(ranks(1, 65.0, is_slow=False)).straggler
    assert late is not None
    assert (late.rank, late.saving_us) == (1, 65.0)
    assert late.why.startswith("its GPU is idle for 65.0 µs more per step")


@pytest.mark.parametrize(("late_us", "named"), [(49.0, False), (51.0, True)])
def test_a_cost_below_five_percent_of_a_step_names_no_rank(late_us: float, named: bool) -> None:
    report = ranks_report(ranks(0, late_us))
    assert (report.straggler is not None) is named
    if not named:
        assert ranks_headline(report).startswith("No rank delays the others by much. Communication takes")


def test_waiting_beside_own_work_costs_nothing() -> None:
    """Rank 0 arrives 300 us later, but rank 1 has own work all the time."""
    group = collective("allreduce", 0, 1)
    first = [(GEMM, 0.0, 500.0, None), (ALL_REDUCE, 400.0, 50.0, group)]
    second = [(GEMM, 0.0, 500.0, None), (ALL_REDUCE, 100.0, 350.0, group)]
    report = ranks_report(job(first, second))
    assert report.straggler is None
    assert [(part.waiting_us, part.hidden_waiting_us) for part in report.parts] == [(0.0, 0.0), (0.0, 300.0)]
    assert ranks_headline(report) == (
        "No rank delays the others by much: rank 0 arrives last at 3 of 3 collectives, but the others do their own "
        "work while they wait, so the waiting costs little. The ranks' own work hides all communication except 0 µs "
        "per step."
    )


def test_ranks_that_are_late_in_turns_have_no_straggler() -> None:
    digests = []
    for rank in range(4):
        steps = [[(ALL_REDUCE, 0.0, 50.0 if number % 4 == rank else 200.0)] for number in range(8)]
        digests.append(digest(trace_of(steps, rank=rank, world_size=4, group="dp")))
    report = ranks_report(digests)
    assert [rank.last_at for rank in report.ranks] == [2, 2, 2, 2]
    assert report.straggler is None
    assert ranks_headline(report).startswith(
        "The rank that arrives last changes, and each rank waits 112 µs to 112 µs per step while its GPU does nothing "
        "else."
    )


def test_a_late_rank_of_a_mesh_is_told_from_a_partner_that_waits() -> None:
    """Tensor parallel [0, 1], [2, 3], then data parallel [0, 2], [1, 3]; rank 3 computes 200 us longer."""

    def rank(number: int, late_us: float, wait_us: tuple[float, float]) -> list[Work]:
        tensor = (0, 1) if number < 2 else (2, 3)
        data = (0, 2) if number % 2 == 0 else (1, 3)
        start = 100.0 + late_us
        tensor_us = 10.0 + wait_us[0]
        return [
            (GEMM, 0.0, start, None),
            (ALL_REDUCE, start, tensor_us, collective("allreduce", *tensor)),
            (ALL_REDUCE, start + tensor_us, 20.0 + wait_us[1], collective("allreduce", *data)),
        ]

    works = rank(0, 0, (0, 200)), rank(1, 0, (0, 200)), rank(2, 0, (200, 0)), rank(3, 200, (0, 0))
    report = ranks_report(job(*works))
    late = report.straggler
    assert late is not None
    assert (late.rank, late.saving_us, late.among) == (3, 200.0, (0, 1, 2, 3))
    assert [(row.rank, row.last, row.exposed_waiting_us) for row in report.waiting[:3]] == [
        (0, 2, 200.0), (1, 3, 200.0), (2, 3, 200.0),
    ]  # fmt: skip


def test_groups_without_a_common_rank_have_a_late_rank_each() -> None:
    one, other = collective("allreduce", 0, 1), collective("allreduce", 2, 3)
    works = [
        [(GEMM, 0.0, 100.0, None), (ALL_REDUCE, 100.0, us, group)]
        for us, group in ((10.0, one), (110.0, one), (160.0, other), (10.0, other))
    ]
    report = ranks_report(job(*works))
    assert [(late.rank, late.among, late.saving_us) for late in report.stragglers] == [
        (3, (2, 3), 150.0), (0, (0, 1), 100.0),
    ]  # fmt: skip
    assert ranks_headline(report).endswith("Among ranks 0 and 1, rank 0 is late: 100 µs.")
    groups = document_data(ranks_document(report, {}))["groups"]
    assert [(group["ranks"], group["straggler_rank"], group["wait_us_per_step"]) for group in groups] == [
        ([0, 1], 0, 100.0), ([2, 3], 3, 150.0),
    ]  # fmt: skip


@pytest.mark.parametrize(("elements", "saving_us"), [(50, 200.0), (150, 100.0)])
def test_work_that_an_all_to_all_gives_a_rank_is_shared_out(elements: int, saving_us: float) -> None:
    """Rank 0 computes 200 us longer; if it got three times the tokens, mending gives half of them to rank 1."""

    def rank(own: float, us: float, count: int) -> list[Work]:
        tokens = collective("all_to_allv", 0, 1, elements_in=count, elements_out=count, type="BFloat16")
        return [(SEND_RECV, 0.0, 10.0, tokens), (GEMM, 10.0, own, None), (SEND_RECV, 10.0 + own, us, tokens)]

    report = ranks_report(job(rank(300.0, 10.0, elements), rank(100.0, 210.0, 50)))
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.saving_us) == (0, saving_us)
    assert ("With equal shares" in ranks_headline(report)) is (elements != 50)


def test_all_to_alls_by_send_and_receive_are_compared() -> None:
    """As in a step of DLRM: of five all-to-alls, all run as SendRecv, and three allreduces, rank 7 is last at five.

    The others wait 80 us each time for rank 7, and 30 us for ranks 4 and 5.
    """
    lasts = (7, 7, 4, 7, 5, 7, 5, 7)

    def rank(number: int) -> list[Work]:
        work: list[Work] = []
        for index, last in enumerate(lasts):
            start, late_us = index * 100.0, 80.0 if last == 7 else 30.0
            own_us = 10.0 + late_us if last == number else 10.0
            group = collective("all_to_all" if index < 5 else "all_reduce", *range(8))
            work += [(GEMM, start, own_us, None), (SEND_RECV, start + own_us, 100.0 - own_us, group)]
        return work

    report = ranks_report(job(*map(rank, range(8))))
    assert report.compared == 3 * len(lasts)
    assert [row.last_at for row in report.ranks] == [0, 0, 0, 0, 3, 6, 0, 15]
    late = report.straggler
    assert late is not None
    assert (late.rank, late.saving_us, round(late.share, 3)) == (7, 400.0, 0.816)


def test_a_launch_bound_job_names_no_rank() -> None:
    """Rank 1's CPU needs 300 us for each of two launches; rank 0 waits for it as long with nothing beside it."""
    digests = []
    for rank, late_us in enumerate((0.0, 600.0)):
        events: list[Any] = []
        for number in range(3):
            start = number * 2000.0
            first, last = start + 50 + late_us / 2, start + 100 + late_us
            busy = [op("aten::view", start + at, 20.0) for at in range(20, int(late_us) + 100, 25)]
            launches = launch(4 * number + 1, first), launch(4 * number + 2, last)
            end = start + 900.0
            events += [
                step(number, start, 2000.0), *busy, *launches, kernel("gemm", 4 * number + 1, first + 5, 50.0),
                kernel(ALL_REDUCE, 4 * number + 2, last + 5, end - last - 5, stream=20),
            ]  # fmt: skip
        info = {"rank": rank, "world_size": 2}
        digests.append(digest(read_trace(trace_bytes(*events, distributedInfo=info))))
    report = ranks_report(digests)
    assert [part.waiting_us for part in report.parts] == [600.0, 0.0]
    assert report.straggler is None
    assert ranks_headline(report).startswith("The GPU of rank 1 waits for launches")


def test_a_launch_bound_job_that_also_transfers() -> None:
    """No second sentence in the job above, whose transfer is exposed for 10 us; here it is for 240 us."""
    parts = (
        RankParts(0, 3, 2000.0, 60.0, 0.0, 240.0, 600.0, 1100.0, 0.0, 0.0, 0.0),
        RankParts(1, 3, 2000.0, 60.0, 0.0, 240.0, 0.0, 1700.0, 0.0, 600.0, 0.0),
    )
    report = replace(ranks_report(ranks(2, 0.0)), parts=parts)
    assert ranks_headline(report) == (
        "The GPU of rank 1 waits for launches, 600 µs of 2.00 ms per step. The profiler makes launches longer, so it "
        "may decide which rank arrives last. Communication takes 240 µs of 2.00 ms per step (12 %, median of the "
        "ranks) while the GPU does nothing else."
    )


def test_exposed_communication_without_a_late_rank_is_the_headline() -> None:
    group = collective("allreduce", 0, 1)
    work = [(GEMM, 0.0, 100.0, None), (ALL_REDUCE, 100.0, 90.0, group)]
    report = ranks_report(job(work, work))
    assert ranks_headline(report) == (
        "No rank delays the others by much. Communication takes 90.0 µs of 730 µs per step (12 %, median of the "
        "ranks) while the GPU does nothing else."
    )


def pipeline_of(own: tuple[float, float, float]) -> list[Digest]:
    """Three stages that work one after the other, each on what the stage before sends it."""
    start, works = 0.0, []
    for rank, us in enumerate(own):
        work: list[Work] = []
        if rank:
            members = collective("recv", 0, 1, 2, peer=rank - 1)
            work.append((SEND_RECV, 0.0, start + 10.0, members))
            start += 10.0
        work.append((GEMM, start, us, None))
        start += us
        if rank < 2:
            work.append((SEND_RECV, start, 10.0, collective("send", 0, 1, 2, peer=rank + 1)))
        works.append(work)
    return job(*works)


def test_a_pipeline_says_who_waits_for_whom() -> None:
    report = ranks_report(pipeline_of((100.0, 110.0, 100.0)))
    assert report.straggler is None
    assert report.pipeline is not None
    assert [(stage.rank, dict(stage.waits_us)) for stage in report.pipeline.stages] == [
        (0, {1: 0.0}), (1, {0: 100.0, 2: 0.0}), (2, {1: 220.0}),
    ]  # fmt: skip
    assert ranks_headline(report).startswith("A pipeline of 3 stages: the bubble is ")
    assert ranks_headline(report).endswith("Rank 2 waits longest, 220 µs per step for rank 1.")
    assert document_data(ranks_document(report, {}))["sends_compared"] == 6


def test_groups_of_one_name_that_are_different_groups_are_not_compared() -> None:
    """Four ranks in two groups of two, both named `tp`: no collective has more ranks than its group."""
    digests = [
        digest(trace_of([[(ALL_REDUCE, 0.0, 50.0 + rank)]], rank=rank, world_size=2, group="tp")) for rank in range(4)
    ]
    report = ranks_report(digests)
    assert (report.compared, report.straggler) == (0, None)
    assert ranks_headline(report) == (
        "No collective was found on several ranks: nothing tells who arrives last. Communication takes 51.5 µs of "
        "51.5 µs per step (100 %, median of the ranks) while the GPU does nothing else."
    )
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


@pytest.mark.parametrize(("apart_us", "last_at"), [(0.0, [0, 3]), (2.0, [0, 3]), (4.0, [0, 0])])
def test_a_wait_shorter_than_the_clocks_differ_makes_no_rank_last(apart_us: float, last_at: list[int]) -> None:
    """Rank 0 waits 3 us for rank 1 at each of three collectives, whose ends are `apart_us` apart on the two clocks."""
    works = ([(GEMM, 0.0, 97.0), (ALL_REDUCE, 97.0, 43.0)], [(GEMM, 0.0, 100.0), (ALL_REDUCE, 100.0, 40.0)])
    digests = []
    for rank, work in enumerate(works):
        trace = trace_of([work] * 3, rank=rank, world_size=2, group="dp")
        digests.append(digest(structs.replace(trace, origin_ns=1_000_000 + rank * round(1000 * apart_us))))
    assert [rank.last_at for rank in ranks_report(digests).ranks] == last_at


def test_steps_that_a_rank_lacks_are_not_compared() -> None:
    """Rank 1 was profiled for two of three steps; its waiting is a mean over those two."""
    every = ranks(0, 80.0, count=2)
    short = digest(trace_of([[(GEMM, 0.0, 100.0), (ALL_REDUCE, 100.0, 100.0)]] * 2, rank=1, world_size=2, group="dp"))
    report = ranks_report([every[0], short])
    assert [(part.rank, part.steps, part.waiting_us) for part in report.parts] == [(0, 2, 0.0), (1, 2, 80.0)]
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.saving_us) == (0, 80.0)


def test_ranks_of_different_steps_are_not_compared() -> None:
    one, other = (made.ranks[0] for made in ranks(0, 80.0, count=2))
    late = msgspec.structs.replace(
        other,
        windows=tuple(msgspec.structs.replace(window, number=window.number + 7) for window in other.windows),
        call_sets=tuple(
            msgspec.structs.replace(each, calls=tuple((step + 7, *rest) for step, *rest in each.calls))
            for each in other.call_sets
        ),
    )
    report = ranks_report([Digest(FORMAT, VERSION, (each,), ()) for each in (one, late)])
    assert (report.compared, report.straggler) == (0, None)
    assert report.notes == (
        "The ranks have no step number in common, so that nothing matches: profile the same steps on all ranks.",
    )


def test_missing_ranks_are_said() -> None:
    report = ranks_report(ranks(1, 60.0)[:2])
    assert report.notes[0] == (
        "2 of 4 ranks are given: the rank that arrives last may be missing, and transfer may include waiting for it."
    )
    said = " Only 2 of 4 ranks are given: the rank that arrives last may be missing."
    assert ranks_headline(report).endswith(said)
    assert said.strip() not in ranks_headline(ranks_report(ranks(1, 60.0)))


def test_missing_ranks_are_said_whatever_the_headline() -> None:
    """Rank 1 waits 60 us for rank 0, rank 0 waits 60 us at the next collective: nobody is late among the two."""
    only = "Only 2 of 4 ranks are given: the rank that arrives last may be missing."
    first = [(GEMM, 0.0, 160.0), (ALL_REDUCE, 160.0, 40.0), (GEMM, 200.0, 100.0), (ALL_REDUCE, 300.0, 100.0)]
    second = [(GEMM, 0.0, 100.0), (ALL_REDUCE, 100.0, 100.0), (GEMM, 200.0, 160.0), (ALL_REDUCE, 360.0, 40.0)]
    in_turns = [
        digest(trace_of([work], rank=rank, world_size=4, group="dp")) for rank, work in enumerate((first, second))
    ]
    transfer = "On rank 0, transfer, or waiting for a missing rank, takes 80.0 µs of 400 µs per step (20 %)"
    report = ranks_report(in_turns)
    assert (
        ranks_headline(report)
        == f"Rank 0 waits 60.0 µs of 400 µs per step for rank 1. {transfer} while the GPU does nothing else. {only}"
    )
    assert transfer_name(report) == "transfer, or waiting for a missing rank"
    even = [digest(trace_of([first], rank=rank, world_size=4, group="dp")) for rank in range(2)]
    assert ranks_headline(ranks_report(even)) == (
        "None of the given ranks delays the others by much. On rank 0, transfer, or waiting for a missing rank, takes "
        f"140 µs of 400 µs per step (35 %) while the GPU does nothing else. {only}"
    )
    assert ranks_headline(ranks_report(in_turns[:1])) == (
        "One rank alone cannot tell who arrives last. On rank 0, transfer, or waiting for a missing rank, takes 140 µs "
        "of 400 µs per step (35 %) while the GPU does nothing else. Only 1 of 4 ranks is given: the rank that arrives "
        "last may be missing."
    )


def test_ranks_of_a_cpu_have_no_collectives_on_a_gpu() -> None:
    digests = [digest(trace_of([[(GEMM, 0.0, 50.0)]], rank=rank, world_size=2)) for rank in range(2)]
    assert ranks_headline(ranks_report(digests)) == (
        "These ranks have no collectives on a GPU: nothing tells who arrives last."
    )


def test_a_thousand_ranks_merge_in_a_tree() -> None:
    def work(rank: int) -> list[Kernel]:
        return [
            (GEMM, 0, 160 if rank == 637 else 100),
            (ALL_REDUCE, 160 if rank == 637 else 100, 40 if rank == 637 else 100),
        ]

    wide = [digest(trace_of([work(rank)] * 3, rank=rank, world_size=1000, group="dp")) for rank in range(1000)]
    began = time.process_time()
    while len(wide) > 1:
        wide = [merge(wide[index : index + 16]) for index in range(0, len(wide), 16)]
    report = ranks_report(wide)
    assert time.process_time() - began < 5
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.saving_us) == (637, 60.0)


def test_data_for_machines() -> None:
    data = document_data(ranks_document(ranks_report(ranks(2, 60.0)), {}))
    assert data["straggler"]["rank"] == 2
    assert data["straggler"]["wait_us_per_step"] == 60.0
    assert data["costliest_collective"]["exposed_waiting_us"] == 60.0
    assert [rank["rank"] for rank in data["ranks"]] == [0, 1, 2, 3]
    assert data["collectives_compared"] == 3


def test_files_are_ranks_a_comparison_or_neither(tmp_path: Path) -> None:
    paths = [tmp_path / f"{rank}.digest.json" for rank in range(3)]
    for path, made in zip(paths, ranks(1, 60.0, count=3), strict=True):
        write_digest(made, path)
    report = report_several(paths)
    assert report.title == "3 ranks of one job"
    assert report.headline.startswith("Rank 1 is late")
    merged = tmp_path / "all.digest.json"
    assert len(reduce_to_digest(paths, merged).ranks) == 3
    assert is_several([merged])
    document = structs.replace(report.document, files=("all.digest.json",))
    assert report_several([merged]) == replace(report, document=document)
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
    assert report.straggler.why.startswith("its GPU is idle for")
