"""Files that `merge` refuses, damaged files, and merged files that were changed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.ranks.joining import merge_ranks
from kinetoscope.ranks.rank_files import notes
from kinetoscope.terminal import CommandError
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event
from tests.tool.ranks.two_ranks import BASE_NS, JOB, events_of, job, written

OTHER_GROUP = {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2]}]}


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ({"distributedInfo": {"rank": 0, **JOB}}, "a.json and .*b.json are both of rank 0; give each rank"),
        (
            {"distributedInfo": {"rank": 1, "world_size": 4}},
            "different jobs: world sizes 2, 4; give the ranks of one job",
        ),
        ({"distributedInfo": OTHER_GROUP}, "the default process group has other members in one file"),
        ({"distributedInfo": {}}, "b.json: tells no rank; put the rank into its name, such as rank3.json.gz"),
        ({"baseTimeNanoseconds": BASE_NS + 3 * 86_400 * 10**9}, "rank 1 was recorded 3 days after rank 0"),
        ({"baseTimeNanoseconds": 0}, "b.json: tells no base time, as other files do"),
    ],
)
def test_files_that_are_no_ranks_of_one_job(tmp_path: Path, top: Event, message: str) -> None:
    paths, output = job(tmp_path, **top)
    with pytest.raises(TraceError, match=message):
        merge_ranks(paths, output)
    assert sorted(tmp_path.iterdir()) == paths


@pytest.mark.parametrize(
    ("names", "output", "error", "message"),
    [
        (["a.json"], "job.json", TraceError, "give the traces of two ranks or more"),
        (["a.json", "b.json"], "job.html", TraceError, "give -o a name that ends in .json.gz or .json"),
        (["a.json", "b.json"], "b.json", TraceError, "b.json: would replace a trace that is merged"),
        (["a.json", "no.json"], "job.json", TraceError, "no.json: cannot be read"),
        (["a.json", "text.json"], "job.json", TraceError, "text.json is not a .json or .json.gz trace"),
        (["a.json", "empty.json"], "job.json", TraceError, "empty.json: no event in it"),
        (["a.json", ""], "job.json", TraceError, ": is not a file; save the trace first"),
        (["a.json", "done.json"], "job.json", TraceError, "done.json: holds several ranks already"),
        (["a.json", "b.json"], "folder.json", TraceError, "folder.json: is a folder; give -o a file in it"),
        (["a.json", "b.json"], "no/job.json", CommandError, "cannot write .*no/job.json"),
    ],
)
def test_usage_errors(tmp_path: Path, names: list[str], output: str, error: type[Exception], message: str) -> None:
    paths, done = job(tmp_path)
    merge_ranks(paths, done)
    done.rename(tmp_path / "done.json")
    (tmp_path / "text.json").write_text("text")
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    (tmp_path / "folder.json").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(error, match=message):
        merge_ranks([tmp_path / name for name in names], tmp_path / output)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def texts(trace: Trace) -> list[str]:
    return [damage.text for damage in trace.damaged]


def test_a_damaged_rank_is_merged_and_stays_damaged(tmp_path: Path) -> None:
    """NaN becomes null, which every reader takes; what is no JSON at all is left out, and the file says so."""
    paths, output = job(tmp_path)
    text = paths[1].read_text().removesuffix("]}")
    no_number = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 9, "dur": NaN, "args": {}}'
    paths[1].write_text(f'{text}, {no_number}, {{"ph" "X"}}, 7, {{"ph": "X", "cat": "cpu_op", "na')
    files = merge_ranks(paths, output)
    assert list(notes(files)) == [
        "Rank 1: the file is cut off or damaged; the events before that are merged.",
        "Rank 1: damaged: 1 event that cannot be decoded, left out.",
        "Rank 1: damaged: 1 event of another type than an object, left out.",
    ]
    assert [event["dur"] for event in events_of(1, json.loads(output.read_bytes())) if event["name"] == "k"] == [None]
    whole, damaged = read_ranks(output)
    assert (whole.is_cut, texts(whole), damaged.is_cut) == (False, [], True)
    assert sorted(texts(damaged)) == sorted(texts(read_trace(paths[1])))
    assert digest(damaged) == digest(read_trace(paths[1]))


def test_a_merged_file_that_is_cut(tmp_path: Path) -> None:
    paths, output = job(tmp_path)
    content = merge_ranks(paths, output) and output.read_bytes()
    output.write_bytes(content[: content.rindex(b'"name":"aten::mm"')])
    whole, cut = read_ranks(output)
    assert (whole.is_cut, len(whole.steps), cut.is_cut, len(cut.steps)) == (False, 2, True, 1)
    output.write_bytes(content[: content.index(b'"pid":4121')])
    assert [(trace.rank, trace.is_cut) for trace in read_ranks(output)] == [(0, True)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"pid":4121', b'"pid":4125', "was changed after the ranks were merged"),
        (b'"version":1', b'"version":9', "merged by another release"),
        (b'"ranks":[{', b'"ranks":[7,{', "its member mergedRanks is missing or damaged"),
        (b'"digits":1', b'"digits":99', "its member mergedRanks is missing or damaged"),
        (b'"mergedRanks"', b'"merged"', "its member mergedRanks is missing or damaged"),
    ],
)
def test_a_merged_file_that_was_changed(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    paths, output = job(tmp_path)
    merge_ranks(paths, output)
    output.write_bytes(output.read_bytes().replace(old, new, 1))
    with pytest.raises(TraceError, match=f"{message}.*merge the ranks again"):
        list(read_ranks(output))


def test_what_is_no_merged_file(tmp_path: Path) -> None:
    paths, output = job(tmp_path)
    merge_ranks(paths, output)
    packed = tmp_path / "job.gz"
    packed.write_bytes(gzip.compress(output.read_bytes()))
    assert [is_merged(path) for path in (output, packed, paths[0], tmp_path, tmp_path / "no")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    packed.write_bytes(b"\x1f\x8b of no gzip")
    assert not is_merged(packed)


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, output = job(tmp_path)
    output.write_text("old")

    def change(number: int) -> int:
        written(paths[1], 1, {"ph": "i", "name": "one more", "pid": 1, "ts": 1})
        return number

    monkeypatch.setattr("kinetoscope.ranks.joining._common_base_ns", lambda files: change(BASE_NS))
    with pytest.raises(TraceError, match=r"b\.json: was changed while it was merged"):
        merge_ranks(paths, output)
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "job.json"]
