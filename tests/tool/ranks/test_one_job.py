"""Two files that do not tell their ranks: of one job, of one time, or before and after a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinetoscope.compare.compare import compare
from kinetoscope.compare.comparison import change_text
from kinetoscope.compare.cpu import compare_cpu
from kinetoscope.compare.cpu_parts import cpu_change_text
from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.digest_files import write_digest
from kinetoscope.ranks.one_job import ranks_text
from kinetoscope.ranks.rank_files import UNNUMBERED
from kinetoscope.report.several import report_several
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, kernel, launch, op, step, trace_bytes

BASE_NS = 1_790_857_026_000_000_000
HOUR_US = 3_600_000_000.0
ONE_JOB = (
    "Both files were recorded at the same time, and both communicate with other GPUs: they are ranks of one job, not "
    "one program before and after a change. The command report compares ranks."
)
ONE_TIME = (
    "Both files were recorded at the same time: they may be two processes of one job, not one program before and "
)


def run(
    *, at: float = 1000.0, gemm_us: float = 500.0, communicates: bool = True, base_ns: int = BASE_NS, **top: Any
) -> bytes:
    """Four steps of 1 ms with a product and an all-reduce, which ends 900 us after the start of its step."""
    events: list[Event] = []
    for number in range(4):
        start, first = at + 1000.0 * number, 2 * number + 1
        events += [step(number, start, 1000.0), op("aten::mm", start + 1, 40.0)]
        events += [launch(first, start + 5), kernel("gemm", first, start + 30, gemm_us)]
        if communicates:
            reducing = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", first + 1, start + 550, 350.0, stream=20)
            events += [launch(first + 1, start + 20), reducing]
    return trace_bytes(*events, **({"baseTimeNanoseconds": base_ns} if base_ns else {}), **top)


def text(before: bytes, after: bytes) -> str:
    """Of the traces, and of their digests."""
    traces = [read_trace(each) for each in (before, after)]
    found = ranks_text(traces[:1], traces[1:])
    assert ranks_text([digest(traces[0])], [digest(traces[1])]) == found
    return found


def job(rank: int, size: int = 2) -> Event:
    return {"distributedInfo": {"rank": rank, "world_size": size}}


def test_ranks_that_were_recorded_at_one_time() -> None:
    """A file is of another time if less than half of the shorter one, about 2 ms, is common."""
    assert text(run(), run(at=1007.0)) == ONE_JOB
    assert text(run(), run(at=2900.0)) == ONE_JOB
    assert text(run(), run(at=3100.0)) == ""
    assert text(run(), run(at=1000.0 + HOUR_US)) == ""


def test_one_file_twice_is_no_job() -> None:
    assert text(run(), run()) == ""


def test_processes_of_one_time_that_do_not_communicate() -> None:
    assert text(run(communicates=False), run(at=1007.0)).startswith(ONE_TIME)
    assert text(run(communicates=False), run(communicates=False, at=1007.0)).startswith(ONE_TIME)


def test_files_without_a_date_may_be_ranks() -> None:
    found = text(run(base_ns=0), run(base_ns=0, at=5000.0))
    assert found.startswith("Both files communicate with other GPUs, and do not tell their ranks and when they were")
    assert text(run(base_ns=0, communicates=False), run(base_ns=0)) == ""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (job(0), job(1), "The files are rank 0 and rank 1 of one job, not one program before and after a change: "),
        (job(0), job(0), ""),
        (job(0), job(1, 4), ""),
        (job(0, 1), job(1, 1), ""),
        (job(0), {}, ONE_JOB),
    ],
    ids=["two ranks", "a rank twice", "other sizes", "alone", "one known"],
)
def test_what_files_tell_of_their_job(before: Event, after: Event, expected: str) -> None:
    found = text(run(**before), run(at=1007.0, **after))
    assert found.startswith(expected) if expected else not found


def test_the_change_says_first_that_it_is_none() -> None:
    old, new = (read_trace(each) for each in (run(), run(at=1007.0, gemm_us=415.0)))
    assert change_text(compare([old], [new])) == (
        f"{ONE_JOB} Per step the GPU is busy for 10.0 % less: noise ±0.2 %, from 4 and 4 steps."
    )
    old, new = (
        read_trace(trace_bytes(step(0, at, 90.0), op("aten::mm", at, 50.0), baseTimeNanoseconds=BASE_NS))
        for at in (0, 9)
    )
    assert cpu_change_text(compare_cpu([old], [new])).startswith(ONE_TIME)


def test_report_compares_ranks_that_are_not_numbered(tmp_path: Path) -> None:
    """In the order of the files, or as their names say; of traces and of digests."""
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    named = [tmp_path / "rank5.json", tmp_path / "rank3.json"]
    for path, at in zip([*paths, *named], (1000.0, 1007.0) * 2, strict=True):
        path.write_bytes(run(at=at))
    report = report_several(paths)
    assert (report.title, report.warnings) == ("2 ranks of one job", (UNNUMBERED,))
    assert [each["rank"] for each in report.data["ranks"]] == [0, 1]
    report = report_several(named)
    assert (report.title, report.warnings) == ("2 ranks of one job", ())
    assert [each["rank"] for each in report.data["ranks"]] == [3, 5]
    digests = [tmp_path / "one.digest.json", tmp_path / "two.digest.json"]
    for path, source in zip(digests, paths, strict=True):
        write_digest(digest(read_trace(source)), path)
    assert report_several(digests).title == "2 ranks of one job"
    paths[1].write_bytes(run(at=1000.0 + HOUR_US))
    assert report_several(paths).title == "one.json and two.json compared"
