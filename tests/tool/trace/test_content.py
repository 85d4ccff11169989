"""Files as they come: cut off, packed, in other encodings, damaged, hostile; and what they say besides events."""

from __future__ import annotations

import gzip
import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kinetoscope.trace import content as content_module
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.json_events import split_events
from kinetoscope.trace.kineto import read_recorded_trace, read_trace
from kinetoscope.trace.progress import Progress
from tests.tool.events import Event, kernel, launch, op, step, trace_bytes

NAMES = ["aten::mm", 'with "}, {" inside', "\\", "é 核", "]}", "last"]


def ops() -> list[Event]:
    return [op(name, 10 * n, 5, dims=[[2, 3], []]) for n, name in enumerate(NAMES)]


def names(trace: Trace) -> list[str]:
    return [each.name for each in trace.cpu_ops]


class TestCutOff:
    @pytest.mark.parametrize("as_list", [False, True], ids=["object", "list"])
    def test_at_every_byte_what_was_complete_is_read(self, as_list: bool) -> None:
        events = [json.dumps(event) for event in ops()]
        start = "[" if as_list else '{"schemaVersion": 1, "traceEvents": ['
        text = (start + ", ".join(events) + ("]" if as_list else '], "traceName": "x"}')).encode()
        ends = [len((start + ", ".join(events[: n + 1])).encode()) for n in range(len(events))]
        for cut in range(ends[0], len(text)):
            trace = read_trace(text[:cut])
            assert (names(trace), trace.is_cut) == (NAMES[: sum(end <= cut for end in ends)], True)
        assert not read_trace(text).is_cut

    def test_of_a_gzip_file_what_can_be_unpacked_is_read(self) -> None:
        data = trace_bytes(*(op(f"op {n * 7919 % 10007}", n, 1) for n in range(3000)))
        packed = gzip.compress(data, mtime=0)
        trace = read_trace(packed[: len(packed) // 2])
        assert trace.is_cut
        assert 500 < len(trace.cpu_ops) < 3000
        assert names(trace) == names(read_trace(data))[: len(trace.cpu_ops)]
        almost = read_trace(packed[:-4])
        assert (len(almost.cpu_ops), almost.is_cut) == (3000, True)


class TestEncodings:
    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
    def test_is_known_by_its_first_bytes(self, encoding: str) -> None:
        text = json.dumps({"traceEvents": ops()}, ensure_ascii=False)
        assert names(read_trace(text.encode(encoding))) == NAMES

    @pytest.mark.parametrize("marks", [b"\xef\xbb\xbf" * 2, "\ufeff\ufeff".encode("utf-16-le")])
    def test_two_byte_order_marks(self, marks: bytes) -> None:
        text = json.dumps({"traceEvents": ops()})
        assert names(read_trace(marks + text.encode("utf-16-le" if marks[:1] == b"\xff" else "utf-8"))) == NAMES

    def test_what_is_no_text_is_replaced(self) -> None:
        events = trace_bytes(*(op(f"<{n}>", n, 1) for n in range(3)))
        broken = events.replace(b"<0>", b"a\xff").replace(b"<1>", b"b\\ud800").replace(b"<2>", b"c\td")
        assert names(read_trace(broken)) == ["a\ufffd", "b\ufffd", "c\td"]


class TestDamage:
    def test_one_event_spoils_no_other(self) -> None:
        data = trace_bytes(op("a", 0, 1), op("b", 2, 1, dims=["odd"]), op("c", 4, 1))
        trace = read_trace(data.replace(b'["odd"]', b"[oops]"))
        assert (names(trace), [damage.count for damage in trace.damaged], trace.is_cut) == (["a", "c"], [1], False)

    @pytest.mark.parametrize("number", [b"NaN", b"-nan", b"inf", b"Infinity"])
    def test_numbers_that_are_none(self, number: bytes) -> None:
        data = trace_bytes(launch(1, 0), kernel("k", 1, 5, 1, **{"est. achieved occupancy %": 19}), op("a", 9, 1))
        trace = read_trace(data.replace(b": 19}", b": " + number + b"}"))
        assert [(k.name, k.registers, k.occupancy_percent) for k in trace.activities] == [("k", 168, None)]
        assert names(trace) == ["a"]

    def test_split_events(self) -> None:
        assert split_events(b' {"a": "}]\\""}, [1, {}] ,7]x') == ([b'{"a": "}]\\""}', b"[1, {}]", b"7"], 27, True)
        assert split_events(b'{"a": 1}, {"b": "un') == ([b'{"a": 1}'], 9, False)
        assert split_events(b"") == ([], 0, False)

    def test_events_of_any_size(self) -> None:
        long = op("long", 2, 1, dims=[[n] for n in range(200_000)])
        trace = read_trace(trace_bytes(op("a", 0, 1), long, op("b", 4, 1)))
        assert (names(trace), len(trace.cpu_ops[1].input_shapes)) == (["a", "long", "b"], 200_000)


def large_files() -> dict[str, bytes]:
    ended = [op("o", 0, 2 * n + 1) for n in range(10_000)]
    for n in range(1, 10_001):
        ended += [launch(n, 25_000 + n), kernel("k", n, 25_001 + n, 1)]
    overlapping = [step(n, n, 25_000) for n in range(10_000)] + [op("o", n, 1) for n in range(10_000)]
    return {
        "ended operators": trace_bytes(*ended),
        "overlapping steps": trace_bytes(*overlapping),
        "empty events": b'{"traceEvents": [' + b"{}," * 200_000 + b"{}]}",
        "one huge event": b'{"traceEvents": [{"ph": "X", "args": {"x": [' + b"{}," * 500_000 + b"{}]}}]}",
        "brackets": b"[" * 500_000,
        "no end of a string": b'[{"a": "' + b"x" * 2_000_000,
        "keys in a string": b'{"x": "' + b'\\"traceEvents\\": [' * 100_000,
        "keys in a list": b"[" + b'"traceEvents": [' * 100_000,
    }


class TestBounds:
    """What once took minutes or gigabytes takes a second; the limits are generous, for a busy machine."""

    @pytest.mark.slow
    def test_work_grows_with_the_size(self) -> None:
        for name, data in large_files().items():
            start = time.process_time()
            with suppress(TraceError):
                read_trace(data)
            assert time.process_time() - start < 4, name

    def test_endless_files(self) -> None:
        with pytest.raises(TraceError, match=r"/dev/zero is not a \.json"):
            read_trace("/dev/zero")

    def test_the_limit_holds_while_reading(self, tmp_path: Path) -> None:
        sparse = tmp_path / "sparse.json"
        with sparse.open("wb") as file:
            file.write(b'{"traceEvents": [' + b" " * 2_000_000)
            file.truncate(1 << 40)
        with pytest.raises(TraceError, match="over 3,000,000 bytes"):
            read_trace(sparse, limit_bytes=3_000_000)

    def test_a_text_much_longer_than_its_gzip_file_is_refused(self) -> None:
        event = b'{"ph":"X","cat":"kernel","ts":1,"dur":1},'
        with pytest.raises(TraceError, match=r"over 100 times as long as the gzip file.*unpack it with gunzip"):
            read_trace(gzip.compress(b"[" + event * 200_000 + b"]"))
        assert len(read_trace(gzip.compress(b"[" + event * 50_000 + b"{}]")).activities) == 50_000

    @pytest.mark.slow
    def test_a_trace_of_one_loop_is_within_the_ratio(self) -> None:
        events = [
            each for n in range(20_000) for each in (launch(n + 1, 20.0 * n), kernel("k", n + 1, 20.0 * n + 9, 3))
        ]
        packed = gzip.compress(json.dumps({"traceEvents": events}, indent=2).encode())
        assert len(read_trace(packed).activities) == 20_000

    def test_a_pipe(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(content_module, "PIPE_WAIT_SECONDS", 0.05)
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with pytest.raises(TraceError, match="nothing came out of this pipe"):
            read_trace(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(pipe, os.O_WRONLY)
        os.write(writer, trace_bytes(op("a", 0, 1)))
        os.set_blocking(reader, True)
        os.close(writer)
        assert names(read_trace(f"/dev/fd/{reader}")) == ["a"]
        os.close(reader)


class TestTimes:
    @pytest.mark.parametrize("unit", ["ns", "ms"])
    def test_the_unit_of_display_says_nothing(self, unit: str) -> None:
        trace = read_trace(trace_bytes(op("a", 100, 2.5), op("b", 107, 1), displayTimeUnit=unit, baseTimeNanoseconds=7))
        assert [(o.start_us, o.duration_us) for o in trace.cpu_ops] == [(0.0, 2.5), (7.0, 1.0)]

    def test_nanoseconds_since_1970(self) -> None:
        first = 1_719_853_884_000_000_001  # as microseconds, in the year 56,000; a float would lose its last digits
        trace = read_trace(trace_bytes(op("a", first, 2500), op("b", first + 7001, 3)))
        assert [(o.start_us, o.duration_us) for o in trace.cpu_ops] == [(0.0, 2.5), (7.001, 0.003)]

    def test_nanoseconds_since_a_base(self) -> None:
        events = [op("a", 4_346_902_577_329_998, 2500), op("b", 4_346_902_577_331_000, 4)]
        trace = read_trace(trace_bytes(*events, baseTimeNanoseconds=1_719_853_884_000_000_000))
        assert [(o.start_us, o.duration_us) for o in trace.cpu_ops] == [(0.0, 2.5), (1.002, 0.004)]

    def test_strings_and_integers(self) -> None:
        events = [op("a", 1623142623460111, 25), {**op("b", 0, 0), "ts": "1623142623460147.5", "dur": "7"}]
        trace = read_trace(trace_bytes(*events))
        assert [(o.start_us, o.duration_us) for o in trace.cpu_ops] == [(0.0, 25.0), (36.5, 7.0)]


class TestMetadata:
    def test_rank_devices_memory_functions_and_collectives(self) -> None:
        stack: Event = {"ph": "X", "cat": "python_function", "name": "train.py(3): step", "pid": 412, "tid": 412}
        memory: Event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 412, "tid": 412, "ts": 8,
                         "args": {"Total Reserved": 20, "Total Allocated": 10, "Bytes": -4, "Device Id": 1,
                                  "Device Type": 1}}  # fmt: skip
        args = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 9, "Group size": 4,
                "dtype": "Float", "Process Group Name": "0"}  # fmt: skip
        trace = read_trace(
            trace_bytes(
                {**stack, "ts": 0, "dur": 90}, memory, launch(1, 5), kernel("ncclDevKernel", 1, 10, 5, **args),
                deviceProperties=[{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
                distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
            )
        )  # fmt: skip
        assert (trace.rank, trace.world_size, len(trace.devices)) == (3, 8, 2)
        assert [(f.name, f.start_us, f.duration_us, f.thread) for f in trace.functions] == [
            ("train.py(3): step", 0.0, 90.0, "412/412")
        ]
        (event,) = trace.memory
        assert (event.at_us, event.bytes, event.total_allocated, event.total_reserved, event.device) == (
            8,
            -4,
            10,
            20,
            1,
        )
        found = trace.activities[0].collective
        assert found is not None
        assert (found.name, found.elements_in, found.elements_out) == ("allreduce", 8, 9)
        assert (found.type, found.group_size, found.group) == ("Float", 4, "0")

    @pytest.mark.parametrize(
        ("devices", "index", "name"),
        [
            ([{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], 1, "B"),
            ([{"name": "A"}, {"name": "B"}], 1, "B"),
            ([{"id": 0, "name": "A"}, {"id": 1, "name": "A"}], 5, "A"),
            ([{"id": 0, "name": "A"}, {"id": 1, "name": "B"}], 5, None),
            ([{"id": 0, "name": ""}], 0, None),
        ],
    )
    def test_the_device_is_the_one_that_worked(self, devices: list[Event], index: int, name: str | None) -> None:
        events = [kernel("k", None, 0, 1, device=index), kernel("k", None, 2, 1, device=index)]
        assert read_trace(trace_bytes(*events, deviceProperties=devices)).device == name

    @pytest.mark.parametrize("category", ["hip_runtime", "xpu_runtime", "privateuse1_runtime", "mtia_runtime"])
    def test_calls_of_other_accelerators(self, category: str) -> None:
        trace = read_trace(trace_bytes({**launch(4, 1), "cat": category, "name": "l"}, kernel("k", 4, 5, 1)))
        assert [(a.launch and a.launch.name) for a in trace.activities] == ["l"]


def test_progress_only_on_a_terminal_and_only_after_a_while(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "evil\x1b[2J.json"
    path.write_bytes(trace_bytes(op("a", 0, 1)))
    read_trace(path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(str(path)) as progress:
        read_trace(path, progress=progress)
        progress.stage("diagnosing", 1, 4)
    assert capsys.readouterr().err == "", "fast"
    monkeypatch.setattr("kinetoscope.trace.progress.QUIET_SECONDS", 0)
    with Progress(str(path)) as progress:
        read_trace(path, progress=progress)
        progress.stage("diagnosing", 1, 4)
    shown = capsys.readouterr().err
    stages = (
        "reading evil\\x1b[2J.json: 100 %",
        "linking events of evil\\x1b[2J.json",
        "diagnosing evil\\x1b[2J.json: 25 %",
    )
    assert shown == "".join(f"\r{line}" for line in (*stages[:2], f"{stages[2]} ", " " * len(stages[2]), ""))


def test_what_the_project_records_is_whole_and_has_profiler_steps() -> None:
    whole = trace_bytes(step(2, 0, 10), launch(1, 1), kernel("k", 1, 2, 1))
    assert read_recorded_trace(whole).steps_from == "ProfilerStep"
    with pytest.raises(TraceError, match=r"^trace: the file is cut off; copy or record the trace again$"):
        read_recorded_trace(whole[:-1])
    without = read_recorded_trace(trace_bytes(launch(1, 1), kernel("k", 1, 2, 1)))
    assert (without.steps, [activity.name for activity in without.unattributed]) == ((), ["k"])
