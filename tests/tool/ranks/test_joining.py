"""The traces of ranks merged into one file, and read back: exact events, unchanged sums."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.__main__ import main
from kinetoscope.doctor.checks import Check
from kinetoscope.doctor.trace_checks import check_ranks
from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.digest_files import read_any
from kinetoscope.ranks.joined import read_ranks
from kinetoscope.ranks.joining import merge_ranks
from kinetoscope.ranks.merge import merge
from kinetoscope.ranks.rank_files import notes
from kinetoscope.report.several import MultiReport, report_several
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.totals import summarize
from tests.tool.damaged import TOP, every_kind
from tests.tool.events import Event, kernel, op, trace_bytes
from tests.tool.ranks.two_ranks import BASE_NS, JOB, QUARTER_NS, events_of, job, merged, written


def label(name: str, key: str, pid: int, value: Any) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": 0, "ts": 5.0, "args": {key: value}}


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


def test_summary_and_doctor_lead_to_the_report(tmp_path: Path) -> None:
    paths, output = job(tmp_path)
    merged(paths, output)
    trace, command = read_trace(output), "kinetoscope report FILE reads and compares them all"
    assert check_ranks(trace) == Check("ranks", "ok", f"this file has 2 ranks (rank 0, rank 1): {command}")
    (note,) = (note for note in summarize(trace).notes if "ranks" in note)
    assert note == f"this file has 2 ranks (rank 0, rank 1): each has steps of its own, and {command}"
    assert check_ranks(read_trace(paths[0])) is None


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


def test_process_ids_above_32_bits(tmp_path: Path) -> None:
    """Perfetto would take all of them for one process."""
    paths, output = job(tmp_path)
    for path, rank in zip(paths, (7, 1023), strict=True):
        written(path, rank, distributedInfo={"rank": rank, "world_size": 1024})
        path.write_text(path.read_text().replace("412", "4194303"))
    assert {event["pid"] for event in merged(paths, output)["traceEvents"]} == {
        "rank 7: 4194303", 7, "rank 1023: 4194303", 1023,
    }  # fmt: skip
    assert [trace.cpu_ops[0].thread for trace in read_ranks(output)] == ["4194303/4194303"] * 2


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


def about(report: MultiReport) -> dict[str, Any]:
    """The data of a report but for the names of its files."""
    return {key: value for key, value in report.data.items() if key != "files"}


def test_the_report_of_a_merged_file(tmp_path: Path) -> None:
    paths, output = job(tmp_path)
    merge_ranks(paths, output)
    ranks, one = report_several(paths), report_several([output])
    assert (one.headline, about(one), one.parts) == (ranks.headline, about(ranks), ranks.parts)
    assert [rank["rank"] for rank in one.data["ranks"]] == [0, 1]
    assert read_any(output) == merge(map(read_any, paths))
    others = [written(tmp_path / f"{rank}.json", rank) for rank in (2, 3)]
    merge_ranks(others, tmp_path / "others.json")
    two = report_several([output, tmp_path / "others.json"])
    assert about(two) == about(report_several([*paths, *others]))


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
    apart = "Rank 5 starts 0.499 s after rank 3 has ended: they are of different runs, or the clocks of their machines"
    assert capsys.readouterr().err == (
        f"note: 2 of 16 ranks are given; missing: 0, 1, 2, 4, 6, 7, 8, 9 and 6 more.\nnote: {apart} differ.\n"
    )
    for given in ([str(output)], list(map(str, paths))):
        assert main(["report", *given, "-o", str(tmp_path / "job.html")]) == 0
        assert capsys.readouterr().err == f"note: {apart} differ.\n"
        page = (tmp_path / "job.html").read_text("utf-8")
        assert "<title>2 ranks that may be of different runs" in page
        assert f"<li>{apart} differ.</li>" in page


@pytest.mark.parametrize(
    ("late_us", "expected"),
    [
        (0.0, ["No file tells its base time: starts on different ranks may not be comparable."]),
        (1.7e15, []),  # microseconds since 1970, as older profilers write them
    ],
)
def test_files_without_a_base_time(tmp_path: Path, late_us: float, expected: list[str]) -> None:
    paths = [written(tmp_path / f"{rank}.json", rank, late_us=late_us, baseTimeNanoseconds=0) for rank in (0, 1)]
    assert list(notes(merge_ranks(paths, tmp_path / "job.json"))) == expected
    assert list(map(digest, read_ranks(tmp_path / "job.json"))) == list(map(digest, map(read_trace, paths)))


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
    files = merge_ranks(paths, output)
    assert ([file.rank for file in files], list(notes(files))) == ([0, 1], [])
