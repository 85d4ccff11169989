"""Digests: exact values, files that are none, and merging in any tree."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.__main__ import main
from kinetoscope.ranks.digest import MAX_CALLS, MAX_EXPOSED, Digest, RankStep, calls_in, digest, runs
from kinetoscope.ranks.digest_files import is_digest, read_any, read_digest, write_digest
from kinetoscope.ranks.kernels import MAX_KERNELS, OTHER, bin_of
from kinetoscope.ranks.merge import are_ranks, merge
from kinetoscope.ranks.ranks import ranks_report
from kinetoscope.report.document import several_html
from kinetoscope.report.several import report_several
from kinetoscope.terminal import CommandError
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import kernel, launch, step, trace_bytes
from tests.tool.runs import ADD, ALL_REDUCE, GEMM, trace_of


def rank_digest(rank: int, late_us: float = 0.0, world_size: int = 4, steps: int = 2, group: str = "dp") -> Digest:
    work = [(GEMM, 0.0, 100.0 + rank), (ALL_REDUCE, 100.0 + rank, 50.0 - late_us), (ADD, 120.0, 10.0)]
    return digest(trace_of([work] * steps, rank=rank, world_size=world_size, group=group))


def test_times_of_a_step() -> None:
    """The allreduce runs from 100 to 150, another kernel beside it from 120 to 130, and nothing from 150 to 160."""
    made = digest(trace_of([[(GEMM, 0, 100), (ALL_REDUCE, 100, 50), (ADD, 120, 10), (ADD, 160, 5)]]))
    assert made.ranks[0].steps == (
        RankStep(
            number=0,
            wall_ns=1_000_000,
            extent_ns=165_000,
            busy_ns=155_000,
            compute_ns=115_000,
            communication_ns=50_000,
            exposed_ns=40_000,
        ),
    )
    assert made.ranks[0].steps[0].idle_ns == 10_000
    assert made.ranks[0].operations_ns == {"communication": 50_000, "elementwise": 15_000, "gemm": 100_000}


def test_a_copy_does_not_hide_a_collective() -> None:
    (times,) = digest(trace_of([[(ALL_REDUCE, 0, 50), ("Memcpy HtoD", 40, 30)]])).ranks[0].steps
    assert (times.busy_ns, times.compute_ns, times.exposed_ns) == (70_000, 0, 50_000)


def test_kernels_and_collectives() -> None:
    made = rank_digest(1)
    add, gemm, reduce = (
        sorted(made.kernels, key=lambda each: each.operation != "elementwise")[:1],
        *(next(each for each in made.kernels if each.operation == of) for of in ("gemm", "communication")),
    )
    assert (add[0].calls, add[0].total_ns, add[0].min_ns, add[0].max_ns) == (2, 20_000, 10_000, 10_000)
    assert gemm.durations == {bin_of(101_000): 2}
    assert gemm.grid == (4, 2, 1)
    assert reduce.calls == 2
    (of_rank,) = made.ranks
    assert of_rank.operation_calls == {"communication": 2, "elementwise": 2, "gemm": 2}
    assert [(call.key, call.start_ns, call.duration_ns) for call in calls_in(of_rank)] == [
        ((0, (), "dp", 4, "allreduce", 0), 101_000, 50_000),
        ((1, (), "dp", 4, "allreduce", 0), 1_101_000, 50_000),
    ]
    assert of_rank.exposed[:2] == ((101_000, 120_000), (130_000, 151_000))
    assert [(window.start_ns, window.end_ns, window.own_ns) for window in of_rank.windows] == [
        (0, 151_000, 111_000), (151_000, 1_151_000, 111_000),
    ]  # fmt: skip


def test_a_digest_is_small_whatever_the_trace() -> None:
    steps = [
        [(f"kernel_{index}_{'x' * 300}", index * 2.0, 1.0) for index in range(2000)]
        + [(ALL_REDUCE, 123_456.789 + index, 0.5) for index in range(100)]
        for _ in range(30)
    ]
    made = digest(trace_of(steps, rank=0, world_size=8, group="g" * 500))
    assert len(msgspec.json.encode(made)) < 200_000
    assert len(made.kernels) == MAX_KERNELS + 1
    (of_rank,) = made.ranks
    assert len(calls_in(of_rank)) == MAX_CALLS
    assert len(of_rank.exposed) == MAX_EXPOSED
    assert of_rank.calls_left_out
    assert sum(each.calls for each in made.kernels) == 30 * 2100
    assert next(each for each in made.kernels if each.name == OTHER).grid is None


def test_a_trace_without_a_step_has_no_digest() -> None:
    with pytest.raises(TraceError, match="no active steps"):
        digest(trace_of([]))


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "0.digest.json"
    made = merge([rank_digest(0), rank_digest(1)])
    write_digest(made, path)
    assert read_digest(path) == made
    assert is_digest(path)
    assert [each.name for each in tmp_path.iterdir()] == ["0.digest.json"]
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    assert read_digest(path) == made


def test_a_digest_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot write .*0\.digest\.json \(No such file"):
        write_digest(rank_digest(0), tmp_path / "missing" / "0.digest.json")


def data() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(msgspec.json.encode(rank_digest(0)))
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a digest; write one with"),
        (b'{"traceEvents": []}', "not a digest; write one with"),
        (b'{"format": "profiling-pytorch digest"', "a damaged digest"),
        (json.dumps(data() | {"version": 1}).encode(), "of version 1; this program reads version 2"),
        (json.dumps(data() | {"format": "profiling-pytorch digests"}).encode(), "of version 2"),
        (json.dumps(data() | {"ranks": []}).encode(), "a damaged digest"),
        (json.dumps(data() | {"kernels": [{"name": 3}]}).encode(), "a damaged digest"),
        (json.dumps(data()).replace('"calls": 2', '"calls": 0').encode(), "a damaged digest"),
        (json.dumps(data()).replace('"total_ns": ', '"total_ns": -').encode(), "a damaged digest"),
        (json.dumps(data()).replace('"rank": 0', '"rank": "zero"').encode(), "a damaged digest"),
        (json.dumps(data() | {"ranks": data()["ranks"] * 2}).encode(), "rank 0 is there twice"),
        (b'{"format": "profiling-pytorch digest", "version": 2, "ranks": ' + b"[" * 100_000, "a damaged digest"),
        (b'{"format": "profiling-pytorch digest", "version": 2, "x": "\xff"}', "a damaged digest"),
    ],
)
def test_a_file_that_is_not_a_digest(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "0.digest.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_digest(path)


def test_every_cut_of_a_digest_is_an_error(tmp_path: Path) -> None:
    content, path = msgspec.json.encode(rank_digest(0)), tmp_path / "cut.json"
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(TraceError):
            read_digest(path)


def test_a_missing_digest(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be read \(No such file"):
        read_digest(tmp_path / "0.digest.json")
    assert not is_digest(tmp_path / "0.digest.json")


def test_a_trace_or_a_digest(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace.json", tmp_path / "0.digest.json"
    events = step(1, 0, 100), launch(1, 10), kernel("gemm", 1, 20, 30)
    trace.write_bytes(trace_bytes(*events))
    made = read_any(trace, rank=3)
    assert (made.ranks[0].rank, made.ranks[0].steps[0].busy_ns) == (3, 30_000)
    write_digest(made, path)
    assert read_any(path) == made


def test_merging_is_associative() -> None:
    """Six random trees over shuffled ranks of two groups, one rank with fewer steps."""
    digests = [
        rank_digest(rank, late_us=rank % 5, world_size=12, steps=4 if rank % 3 else 2, group=f"dp{rank % 2}")
        for rank in range(12)
    ]
    whole, dice = merge(digests), random.Random(7)
    for _ in range(6):
        waiting = dice.sample(digests, len(digests))
        while len(waiting) > 1:
            count = dice.randint(2, min(4, len(waiting)))
            taken = [waiting.pop(dice.randrange(len(waiting))) for _ in range(count)]
            waiting.append(merge(taken))
        assert waiting == [whole]
    assert [rank.rank for rank in whole.ranks] == list(range(12))


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((), ()), ((3,), ((3, 1, 1),)), ((0, 1, 2), ((0, 1, 3),)), ((0, 8, 16), ((0, 8, 3),)),
        ((0, 1, 4, 5), ((0, 1, 2), (4, 1, 2))), ((5, 2, 9), ((5, 1, 1), (2, 7, 2))),
    ],
)  # fmt: skip
def test_members_as_runs(ranks: tuple[int, ...], expected: tuple[tuple[int, int, int], ...]) -> None:
    assert runs(ranks) == expected
    assert tuple(first + stride * index for first, stride, count in expected for index in range(count)) == ranks


@pytest.mark.parametrize(
    ("digests", "message"),
    [
        ([], "no digest to merge"),
        ([rank_digest(1), rank_digest(1)], "rank 1 is there twice"),
        ([rank_digest(0), rank_digest(1, world_size=8)], "world sizes 4, 8"),
        ([rank_digest(0), digest(trace_of([[(GEMM, 0, 1)]]))], "does not say which rank it is; give --rank"),
    ],
)
def test_what_cannot_be_merged(digests: list[Digest], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        merge(digests)


def test_a_report_on_ranks_names_their_damage() -> None:
    events = [step(0, 0, 90), launch(1, 5), kernel("k", 1, 10, 20), {**kernel("l", 2, 40, 5), "dur": None}]
    damaged = [
        digest(read_trace(trace_bytes(*events, distributedInfo={"rank": rank, "world_size": 3}))) for rank in range(3)
    ]
    text = "damaged: 1 event without a duration, or with an impossible one, left out: l"
    assert damaged[0].ranks[0].damage == (text,)
    assert ranks_report(damaged).notes[0] == f"Ranks 0, 1, 2: {text}."


def test_ranks_of_one_job_or_a_comparison() -> None:
    def ranks(*pairs: tuple[int | None, int | None]) -> bool:
        made = [digest(trace_of([[(GEMM, 0, 1)]], rank=rank, world_size=size)) for rank, size in pairs]
        return are_ranks([each.ranks[0] for each in made])

    assert ranks((0, 2), (1, 2))
    assert ranks((3, 8), (1, 8), (0, 8))
    assert ranks((0, None), (1, None))
    assert not ranks((0, 2), (0, 2))
    assert not ranks((0, 2), (1, 4))
    assert not ranks((None, 2), (1, 2))
    assert not ranks((0, 1), (1, 1))
    assert not ranks((0, 2))


def test_ranks_merged_into_one_file_are_refused() -> None:
    trace = msgspec.structs.replace(trace_of([[(GEMM, 0, 1)]]), processes=("rank 0", "rank 1"))
    with pytest.raises(TraceError, match="2 merged processes; give the trace of each rank"):
        digest(trace)


def test_damaged_digests_are_refused_or_reported(tmp_path: Path) -> None:
    """Bytes of a merged digest changed at random, with a fixed seed: a report or an error, nothing else."""
    content = bytearray(msgspec.json.encode(merge([rank_digest(rank) for rank in range(3)])))
    dice, path, reported = random.Random(3), tmp_path / "x.digest.json", 0
    for _ in range(300):
        mutant = bytearray(content)
        for _ in range(dice.randint(1, 3)):
            mutant[dice.randrange(60, len(mutant))] = dice.choice(b'0123456789-"[]{},:.eE\x00\xff')
        path.write_bytes(mutant)
        try:
            report = report_several([path])
        except TraceError:
            continue
        assert several_html(report)
        reported += 1
    assert 10 < reported < 290


def test_the_command_writes_digests_and_reports_on_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(trace_bytes(step(1, 0, 100), launch(1, 10), kernel("gemm", 1, 20, 30)))
    paths = [tmp_path / f"{rank}.digest.json" for rank in range(2)]
    for rank, path in enumerate(paths):
        assert main(["report", str(trace), "--digest-only", "--rank", str(rank), "-o", str(path)]) == 0
    both = [*map(str, paths)]
    assert main(["report", *both, "--digest-only", "-o", str(tmp_path / "all.json")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"digest of 2 ranks: {tmp_path / 'all.json'}"
    assert main(["report", *both, "-o", str(tmp_path / "ranks.html")]) == 0
    assert "<h1>2 ranks of one job</h1>" in (tmp_path / "ranks.html").read_text("utf-8")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "all.json"), "--json"]) == 0
    assert [rank["rank"] for rank in json.loads(capsys.readouterr().out)["ranks"]] == [0, 1]
    for arguments, message in (
        ([*both], "give -o FILE.html"),
        ([*both, "--digest-only"], "--digest-only needs -o FILE"),
        ([*both, "--rank", "1", "-o", "x.html"], "--rank goes with --digest-only"),
        ([*both, "--digest-only", "-o", both[0]], "would replace what it is made from"),
        ([both[0], str(tmp_path / "none.json"), "-o", "x.html"], "cannot be read"),
    ):
        assert main(["report", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert main(["report", str(trace), "--digest-only", "-o", str(tmp_path / "no" / "x.json")]) == 1
    assert capsys.readouterr().err.startswith("error: cannot write ")


def test_a_digest_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each sum is within its limit, and their sum is not."""
    paths = [tmp_path / f"{rank}.json" for rank in (0, 1)]
    for rank, path in enumerate(paths):
        data = msgspec.to_builtins(rank_digest(rank))
        data["kernels"] = [{**each, "total_ns": 2**61 + 1} for each in data["kernels"]]
        path.write_bytes(msgspec.json.encode(data))
        assert read_digest(path)
    out = tmp_path / "all.json"
    assert main(["report", *map(str, paths), "--digest-only", "-o", str(out)]) == 2
    assert f"error: {out} is not written, because it could not be read again: Expected" in capsys.readouterr().err
    assert not out.exists()
