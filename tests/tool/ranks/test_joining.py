"""The traces of ranks merged into one file, and read back: exact events, unchanged sums, refused and damaged files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.__main__ import main
from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.digest_files import read_any
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.ranks.joining import merge_ranks
from kinetoscope.ranks.merge import merge
from kinetoscope.ranks.rank_files import notes
from kinetoscope.report.several import report_several
from kinetoscope.terminal import CommandError
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.damaged import TOP, every_kind
from tests.tool.events import Event, kernel, launch, op, step, trace_bytes

BASE_NS, QUARTER_NS = 1_790_857_026_000_000_000, 7_889_238_000_000_000
JOB: Event = {"world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}


def flow(phase: str, number: int, event: Event) -> Event:
    return {"ph": phase, "id": number, "cat": "ac2g", "name": "ac2g", **{k: event[k] for k in ("pid", "tid", "ts")}}


def label(name: str, key: str, pid: int, value: Any) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": 0, "ts": 5.0, "args": {key: value}}


def written(path: Path, rank: int, *more: Event, late_us: float = 0.0, **top: Any) -> Path:
    """A rank of two with two steps of 100 us, each with a launch, its kernel and an arrow from one to the other."""
    events: list[Event] = []
    for number in (1, 2):
        at = 1000.0 * number + late_us
        events += [step(number, at, 100, external=7), op("aten::mm", at + 1, 40, external=number)]
        events += [launch(number, at + 5), kernel("gemm", number, at + 30, 10.125, **{"External id": number})]
        events += [flow("s", number, events[-2]), flow("f", number, events[-1])]
    members = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": rank, **JOB}, **top}
    path.write_bytes(trace_bytes(*events, *more, **members))
    return path


def job(folder: Path, **of_rank_1: Any) -> tuple[list[Path], Path]:
    """The files of two ranks, and that of both."""
    return [written(folder / "a.json", 0), written(folder / "b.json", 1, late_us=3, **of_rank_1)], folder / "job.json"


def merged(paths: Sequence[Path], output: Path) -> Event:
    merge_ranks(paths, output)
    document: Event = json.loads(output.read_bytes())
    return document


def events_of(rank: int, document: Event) -> list[Event]:
    """The events of a rank below ten, as `merge` marks them."""
    return [
        event
        for event in document["traceEvents"]
        if (event["pid"] % 10 if isinstance(event["pid"], int) else int(event["pid"].split()[1].strip(":"))) == rank
    ]


def test_the_events_of_a_rank(tmp_path: Path) -> None:
    """Each id of the file gets its rank: 1 becomes 11, and GPU 0 becomes process 1. Times and other values stay."""
    more = [
        {"ph": "X", "cat": "Trace", "name": "Profiler", "pid": "Spans", "tid": "all", "ts": 1.0, "dur": 9},
        {"ph": "X", "cat": "overhead", "name": "Flush", "pid": -1, "tid": 0, "ts": 2.0, "dur": 1, "args": {}},
        label("process_name", "name", 412, "python"),
        label("process_labels", "labels", 412, "CPU"),
        label("process_sort_index", "sort_index", 412, 412),
        label("process_labels", "labels", 0, "GPU 0"),
        label("process_sort_index", "sort_index", 0, 5_000_000),
        label("thread_name", "name", 0, "stream 7"),
    ]
    paths, output = job(tmp_path)
    written(paths[1], 1, *more)
    of_rank = events_of(1, merged(paths, output))
    assert [event["pid"] for event in of_rank[:6]] == [4121, 4121, 4121, 1, 4121, 1]
    assert of_rank[3] == {
        **{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 1, "tid": 7, "ts": 1030.0, "dur": 10.125},
        "args": kernel("gemm", 11, 1030, 10.125, **{"External id": 11})["args"],
    }
    assert [of_rank[index]["args"].get("External id") for index in (0, 1, 6)] == [71, 11, 71]
    assert [(event["ph"], event["id"], event["pid"]) for event in of_rank[4:6]] == [("s", 11, 4121), ("f", 11, 1)]
    assert [event["pid"] for event in of_rank[12:14]] == ["rank 1: Spans", "rank 1: -1"]
    assert [(event["name"], event["pid"], event["args"]) for event in of_rank[14:]] == [
        ("thread_name", 1, {"name": "stream 7"}),
        ("process_name", "rank 1: Spans", {"name": "rank 1: Spans"}),
        ("process_sort_index", "rank 1: Spans", {"sort_index": 1000}),
        ("process_name", "rank 1: -1", {"name": "rank 1: -1"}),
        ("process_sort_index", "rank 1: -1", {"sort_index": 1001}),
        ("process_name", 4121, {"name": "rank 1: CPU", "original": "python"}),
        ("process_labels", 4121, {"labels": "CPU"}),
        ("process_sort_index", 4121, {"sort_index": 1002}),
        ("process_name", 1, {"name": "rank 1: GPU 0"}),
        ("process_labels", 1, {"labels": "GPU 0"}),
        ("process_sort_index", 1, {"sort_index": 1003}),
    ]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"correlation": 0, "External id": 0, "graph node id": 0}, {}),
        ({"Ev Idx": 0, "Sequence number": 0, "Python parent id": None}, {"Ev Idx": 1, "Sequence number": 1}),
        ({"graph id": 4, "graph node id": 2}, {"graph id": 41, "graph node id": 21}),
        ({"wait_on_cuda_event_record_corr_id": -1, "wait_on_cuda_event_id": 6}, {"wait_on_cuda_event_id": 61}),
        ({"Seq": 3, "Comms Id": 77, "Record function id": 5, "device": 1, "stream": 7, "Addr": 9}, {}),
        ({"correlation": 10**18, "External id": "7"}, {}),
    ],
)
def test_the_ids_among_the_arguments(tmp_path: Path, args: Event, expected: Event) -> None:
    """0 and negative numbers are no ids, `Seq` is the same on all ranks, and a hash of 19 digits stays."""
    paths, output = job(tmp_path)
    written(
        paths[1], 1, {"ph": "X", "cat": "other", "name": "more", "pid": 9, "tid": 9, "ts": 1, "dur": 1, "args": args}
    )
    (event,) = [event for event in merged(paths, output)["traceEvents"] if event["name"] == "more"]
    assert event["args"] == {**args, **expected}


def test_ranks_of_two_digits(tmp_path: Path) -> None:
    """All ids of a job get as many digits, so that 1 of rank 2 and 12 of rank 0 differ."""
    paths = [
        written(tmp_path / f"{rank}.json", rank, distributedInfo={"rank": rank, "world_size": 16}) for rank in (2, 15)
    ]
    events = merged(paths, tmp_path / "job.json")["traceEvents"]
    assert {event["pid"] for event in events} == {41202, 2, 41215, 15}
    assert {event["id"] for event in events if "id" in event} == {102, 202, 115, 215}
    assert [trace.rank for trace in read_ranks(tmp_path / "job.json")] == [2, 15]


def test_the_members_before_the_events(tmp_path: Path) -> None:
    groups = [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "dp", "ranks": [1]}]
    paths, output = job(
        tmp_path, trace_id="B", distributedInfo={"rank": 1, "world_size": 2, "pg_config": groups, "backend": "nccl"}
    )
    document = merged(paths, output)
    assert next(iter(document)) == "mergedRanks"
    assert document["schemaVersion"] == 1
    assert document["baseTimeNanoseconds"] == BASE_NS
    assert document["distributedInfo"] == {"world_size": 2, "pg_config": groups}
    ranks = document["mergedRanks"]["ranks"]
    assert [rank["members"]["distributedInfo"]["rank"] for rank in ranks] == [0, 1]
    assert [rank["members"].get("trace_id") for rank in ranks] == [None, "B"]
    trace = read_trace(output)
    assert (trace.rank, trace.world_size, trace.processes) == (None, 2, ("rank 0", "rank 1"))
    assert [(each.process, len(each.activities)) for each in trace.steps] == [("rank 0", 1), ("rank 1", 1)] * 2


@pytest.mark.parametrize(("end", "shift_ns"), [("json", 0), ("json.gz", 0), ("json", QUARTER_NS)])
def test_each_rank_is_read_back_as_its_own_file(tmp_path: Path, end: str, shift_ns: int) -> None:
    """Events of every kind; in the last case a job over the end of a quarter, which changes the base time."""
    paths = []
    for rank in (0, 1):
        base_ns = TOP["baseTimeNanoseconds"] + rank * shift_ns
        events = [{**event, "ts": event["ts"] + (1 - rank) * shift_ns / 1000} for event in every_kind()]
        top = {**TOP, "distributedInfo": {**TOP["distributedInfo"], "rank": rank}, "baseTimeNanoseconds": base_ns}
        paths.append(tmp_path / f"{rank}.json")
        paths[-1].write_bytes(trace_bytes(*events, **top))
    output = tmp_path / f"job.{end}"
    merge_ranks(paths, output)
    own, back = list(map(read_trace, paths)), list(read_ranks(output))
    assert list(map(digest, back)) == list(map(digest, own))
    for name in (
        "rank",
        "world_size",
        "devices",
        "memory",
        "functions",
        "overheads",
        "stream_waits",
        "counters",
        "groups",
    ):
        assert [getattr(trace, name) for trace in back] == [getattr(trace, name) for trace in own], name
    assert [[launch.thread for launch in trace.calls] for trace in back] == [["412/412"] * 12] * 2
    assert output.read_bytes()[:2] == (b"\x1f\x8b" if end == "json.gz" else b'{"')
    once = output.read_bytes()
    merge_ranks(paths[::-1], output)
    assert output.read_bytes() == once


def test_base_times_are_added_without_rounding(tmp_path: Path) -> None:
    """A day before the middle of the first rank is time 0: then times have few digits, and none is lost."""
    paths = []
    for rank, base_ns, ts in ((0, BASE_NS, "7889238000000.123456"), (1, BASE_NS + QUARTER_NS, "2.001")):
        event = f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {ts}, "dur": 1.5}}'
        lost = event.replace(ts, '"soon"')
        info = json.dumps({"rank": rank, **JOB})
        paths.append(tmp_path / f"{rank}.json")
        paths[-1].write_text(
            f'{{"baseTimeNanoseconds": {base_ns}, "distributedInfo": {info}, "traceEvents": [{event}, {lost}]}}'
        )
    output = tmp_path / "job.json"
    document = merged(paths, output)
    assert document["baseTimeNanoseconds"] == BASE_NS + QUARTER_NS - 86_400 * 10**9
    text = output.read_text()
    assert '"ts":86400000000.123456,' in text
    assert '"ts":86400000002.001,' in text
    assert text.count('"ts":"soon"') == 2


def test_the_report_of_a_merged_file(tmp_path: Path) -> None:
    paths, output = job(tmp_path)
    merge_ranks(paths, output)
    ranks, one = report_several(paths), report_several([output])
    assert (one.headline, one.data, one.parts) == (ranks.headline, ranks.data, ranks.parts)
    assert [rank["rank"] for rank in one.data["ranks"]] == [0, 1]
    assert read_any(output) == merge(map(read_any, paths))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kinetoscope"])
    paths, output = job(tmp_path)
    assert main(["merge", *map(str, paths), "-o", str(output)]) == 0
    assert capsys.readouterr() == (f"2 ranks, 24 events: {output}\nto look at it: kinetoscope open {output}\n", "")
    assert main(["report", str(output)]) == 0
    assert capsys.readouterr().out.endswith(f" {tmp_path / 'job.report.html'}\n")
    assert main(["report", str(output), str(paths[0])]) == 2
    assert "give -o FILE.html" in capsys.readouterr().err
    written(paths[1], 5, distributedInfo={"rank": 5, "world_size": 16})
    written(paths[0], 3, distributedInfo={"rank": 3, "world_size": 16}, late_us=-0.5e6)
    assert main(["merge", *map(str, paths), "-o", str(output)]) == 0
    assert capsys.readouterr().err == (
        "note: 2 of 16 ranks are given; missing: 0, 1, 2, 4, 6, 7, 8, 9 and 6 more.\n"
        "note: Rank 5 starts 0.499 s after rank 3 has ended: they are of different runs, or the clocks of their "
        "machines differ.\n"
    )


@pytest.mark.parametrize(
    ("names", "ranks", "note"),
    [
        (("rank3.json", "rank-1.json"), [1, 3], []),
        (("llama_r2_rank12.json", "tp_r4.json"), [4, 12], []),
        (("b.json", "a.json"), [0, 1], ["No file tells its rank: the ranks are in the order of the files."]),
    ],
)
def test_the_rank_of_a_file_that_does_not_tell(
    tmp_path: Path, names: Sequence[str], ranks: list[int], note: list[str]
) -> None:
    paths = [written(tmp_path / name, 0, distributedInfo={}) for name in names]
    output = tmp_path / "job.json"
    assert list(notes(merge_ranks(paths, output))) == note
    assert [trace.rank for trace in read_ranks(output)] == ranks


def test_the_collectives_tell_the_rank_where_the_profile_began_before_the_job(tmp_path: Path) -> None:
    """Then the name of the file does not count."""
    paths, output = job(tmp_path)
    args = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Group size": 2, "Rank": 1}
    stated = op("record_param_comms", 1001, 5)
    stated["args"].update(args)
    paths[1] = written(tmp_path / "rank7.json", 0, stated, distributedInfo={})
    assert [file.rank for file in merge_ranks(paths, output)] == [0, 1]


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
