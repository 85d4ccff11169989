"""Digests: exact values, files that are none, and merging in any tree."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.report.digest import MAX_COLLECTIVES, MAX_KERNELS, OTHER, Digest, StepTimes, bin_of, digest
from snippets.lab.report.digest_files import is_digest, read_any, read_digest, write_digest
from snippets.lab.report.merge import are_ranks, merge
from snippets.lab.trace.events import TraceError
from tests.lab.events import kernel, launch, step, trace_bytes
from tests.lab.report.runs import ADD, ALL_REDUCE, GEMM, trace_of


def rank_digest(rank: int, late_us: float = 0.0, world_size: int = 4, steps: int = 2) -> Digest:
    work = [(GEMM, 0.0, 100.0 + rank), (ALL_REDUCE, 100.0 + rank, 50.0 - late_us), (ADD, 120.0, 10.0)]
    return digest(trace_of([work] * steps, rank=rank, world_size=world_size, group="dp"))


def test_times_of_a_step() -> None:
    """The allreduce runs from 100 to 150, another kernel beside it from 120 to 130, and nothing from 150 to 160."""
    made = digest(trace_of([[(GEMM, 0, 100), (ALL_REDUCE, 100, 50), (ADD, 120, 10), (ADD, 160, 5)]]))
    assert made.ranks[0].steps == (
        StepTimes(
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
    assert [each.key for each in made.collectives] == [(0, 0, "dp", "allreduce"), (1, 0, "dp", "allreduce")]
    assert made.collectives[0].shortest_ns == made.collectives[0].longest_ns == 50_000
    assert made.collectives[0].shortest_rank == 1


def test_a_digest_is_small_whatever_the_trace() -> None:
    steps = [
        [(f"kernel_{index}_{'x' * 300}", index * 2.0, 1.0) for index in range(2000)]
        + [(ALL_REDUCE, 4000.0 + index, 0.5) for index in range(100)]
        for _ in range(30)
    ]
    made = digest(trace_of(steps, rank=0, world_size=8, group="g" * 500))
    assert len(msgspec.json.encode(made)) < 200_000
    assert len(made.kernels) == MAX_KERNELS + 1
    assert len(made.collectives) == MAX_COLLECTIVES
    assert made.collectives_left_out
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
    with pytest.raises(TraceError, match=r"cannot be written \(No such file"):
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
        (json.dumps(data() | {"version": 2}).encode(), "of version 2; this program reads version 1"),
        (json.dumps(data() | {"format": "profiling-pytorch digests"}).encode(), "of version 1"),
        (json.dumps(data() | {"ranks": []}).encode(), "a damaged digest"),
        (json.dumps(data() | {"kernels": [{"name": 3}]}).encode(), "a damaged digest"),
        (json.dumps(data()).replace('"calls": 2', '"calls": 0').encode(), "a damaged digest"),
        (json.dumps(data()).replace('"total_ns": ', '"total_ns": -').encode(), "a damaged digest"),
        (json.dumps(data()).replace('"rank": 0', '"rank": "zero"').encode(), "a damaged digest"),
        (json.dumps(data() | {"ranks": data()["ranks"] * 2}).encode(), "rank 0 is there twice"),
        (b'{"format": "profiling-pytorch digest", "version": 1, "ranks": ' + b"[" * 100_000, "a damaged digest"),
        (b'{"format": "profiling-pytorch digest", "version": 1, "x": "\xff"}', "a damaged digest"),
    ],
)
def test_a_file_that_is_no_digest(tmp_path: Path, content: bytes, message: str) -> None:
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
    """Twenty random trees over shuffled ranks; some ranks have more collectives than a digest keeps."""
    digests = [
        rank_digest(rank, late_us=rank % 5, world_size=12, steps=MAX_COLLECTIVES + 50 if rank % 3 else 40)
        for rank in range(12)
    ]
    whole, dice = merge(digests), random.Random(7)
    for _ in range(20):
        waiting = dice.sample(digests, len(digests))
        while len(waiting) > 1:
            count = dice.randint(2, min(4, len(waiting)))
            taken = [waiting.pop(dice.randrange(len(waiting))) for _ in range(count)]
            waiting.append(merge(taken))
        assert waiting == [whole]
    assert len(whole.collectives) == MAX_COLLECTIVES
    first = whole.collectives[0]
    assert (first.ranks, first.total_ns) == (12, sum(50_000 - 1000 * (rank % 5) for rank in range(12)))
    assert (first.shortest_ns, first.shortest_rank, first.longest_rank) == (46_000, 4, 0)


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
