"""The trace reader: exact on events written by hand, known facts of real traces, no surprise on bad input."""

from __future__ import annotations

import gc
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.trace.events import Collective, Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.left_out import NO_OBJECT, NO_PHASE, NO_TIME
from kinetoscope.trace.queries import (
    busy_us,
    extent_us,
    find_op,
    gpu_names,
    idle_us,
    kernel_names,
    kernel_time_us,
    longest_kernel,
    op_name,
    overlap_us,
    overlaps_us,
    require_kernels,
    require_steps,
    step_overlaps_us,
    steps_agree,
)
from tests.tool.events import (
    Event,
    annotation,
    gpu_annotation,
    kernel,
    launch,
    memcpy,
    memset,
    op,
    overhead,
    step,
    trace_bytes,
)

TRACES = Path(__file__).resolve().parents[2] / "traces"


def read(*events: Any, **top: Any) -> Trace:
    return read_trace(trace_bytes(*events, **top))


def real(name: str) -> Trace:
    return read_trace(TRACES / f"{name}.json.gz")


# Two steps of a matmul and an add; times from 1,000,000 on, as a profiler's clock does not begin at zero.
def two_steps() -> list[Event]:
    events = []
    for number, at, identity in ((2, 1_000_000.0, 10), (3, 1_000_200.0, 20)):
        events += [
            step(number, at, 150, external=identity),
            annotation("matmul_add", at + 5, 120, external=identity + 1),
            op("aten::matmul", at + 10, 50, external=identity + 2, dims=[[64, 64], [64, 64]]),
            op("aten::mm", at + 12, 45, external=identity + 3, dims=[[64, 64], [64, 64]]),
            launch(identity + 3, at + 20, name="cuLaunchKernelEx", external=identity + 3),
            op("aten::add", at + 70, 30, external=identity + 4, dims=[[64, 64], [64, 64], []]),
            launch(identity + 4, at + 80, external=identity + 4),
            kernel("gemm", identity + 3, at + 30, 8.5, **{"External id": identity + 3}),
            kernel("add", identity + 4, at + 90, 1.25, **{"External id": identity + 4}),
        ]
    return [*events, launch(99, 1_000_400, 40, name="cudaDeviceSynchronize")]


def names(items: Any) -> list[str]:
    return [item.name for item in items]


def parents(trace: Trace) -> list[tuple[str, str | None]]:
    """Each op with the name of the one around it."""
    return [(each.name, each.parent and each.parent.name) for each in trace.cpu_ops]


def as_data(trace: Trace) -> Any:
    """A trace without the identity of its ops: they are equal only to themselves."""
    return msgspec.to_builtins(trace)


class TestWhatIsRead:
    def test_times_are_relative_to_the_first_event(self) -> None:
        trace = read(op("a", 4346902577329.998, 302.496), op("b", 4346902577391.06, 86.83))
        assert [(o.start_us, o.duration_us, o.end_us) for o in trace.cpu_ops] == [
            (0.0, 302.496, 302.496),
            (61.062, 86.83, 147.892),
        ]

    def test_steps_hold_ops_calls_and_gpu_work(self) -> None:
        trace = read(*two_steps())
        first, second = trace.steps
        assert (first.number, first.name, first.start_us, first.end_us) == (2, "ProfilerStep#2", 0.0, 150.0)
        assert (second.number, second.start_us) == (3, 200.0)
        assert names(first.ops) == ["matmul_add", "aten::matmul", "aten::mm", "aten::add"]
        assert names(first.calls) == ["cuLaunchKernelEx", "cudaLaunchKernel"]
        assert names(first.kernels) == names(first.activities) == ["gemm", "add"]
        assert names(trace.calls)[-1] == "cudaDeviceSynchronize"
        assert trace.unattributed == ()

    def test_fields_of_an_op(self) -> None:
        trace = read(*two_steps())
        mm = trace.steps[0].ops[2]
        assert (mm.name, mm.thread, mm.external_id, mm.is_annotation) == ("aten::mm", "412/412", 13, False)
        assert mm.input_shapes == ((64, 64), (64, 64))
        assert trace.steps[0].ops[3].input_shapes == ((64, 64), (64, 64), ())
        assert trace.steps[0].ops[0].is_annotation
        assert mm in trace.cpu_ops

    def test_fields_of_gpu_activities(self) -> None:
        trace = read(
            kernel("k", 5, 0, 2.5, stream=13, device=1, **{"est. achieved occupancy %": 19}),
            memcpy(6, 10, 1, 4096),
            memset(7, 20, 1, 4),
        )
        first, copy, fill = trace.activities
        assert (first.kind, first.device, first.stream, first.correlation, first.external_id) == (
            "kernel",
            1,
            13,
            5,
            None,
        )
        assert (first.grid, first.block, first.registers) == ((4, 2, 1), (384, 1, 1), 168)
        assert (first.shared_memory_bytes, first.moved_bytes, first.occupancy_percent) == (164308, None, 19.0)
        assert (copy.kind, copy.moved_bytes, copy.grid) == ("memcpy", 4096, None)
        assert (fill.kind, fill.moved_bytes) == ("memset", 4)

    def test_fields_of_a_collective_and_of_graph_work(self) -> None:
        group = {"Group size": 2, "dtype": "Float", "Process Group Name": "3", "Process Group Ranks": "[0, 4]"}
        given = {"Collective name": "send", "In msg nelems": 8, "Out msg nelems": 8, **group, "Seq": 41}
        given |= {"Comms Id": 2**63 + 7, "Src Rank": 0, "Dst Rank": 4, "graph id": 9, "graph node id": 77}
        (sent,) = read(kernel("ncclDevKernel_SendRecv", 1, 0, 5, **given)).activities
        assert sent.collective == Collective("send", 8, 8, "Float", 2, "3", (0, 4), 41, 4, 2**63 + 7)
        assert (sent.graph_id, sent.graph_node_id) == (9, 77)
        (outside,) = read(kernel("k", 1, 0, 5, **{"graph id": 0, "graph node id": 0})).activities
        assert (outside.collective, outside.graph_id, outside.graph_node_id) == (None, None, None)

    def test_device_is_the_first_of_its_properties(self) -> None:
        trace = read(deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}, {"name": "other"}])
        assert (trace.device, trace.device_properties["numSms"]) == ("NVIDIA H200", 132)

    @pytest.mark.parametrize("properties", [None, [], {}, "H200", [3], [{"id": 0}], [{"name": 7}]])
    def test_device_may_be_unknown(self, properties: Any) -> None:
        assert read(deviceProperties=properties).device is None
        assert read().device_properties == {}

    def test_overheads_and_gpu_annotations(self) -> None:
        trace = read(overhead("Activity Buffer Request", 5, 3), gpu_annotation("mlp_fwd", 0, 9))
        assert [(s.name, s.start_us, s.duration_us) for s in trace.overheads] == [("Activity Buffer Request", 5.0, 3.0)]
        assert [(s.name, s.end_us) for s in trace.gpu_annotations] == [("mlp_fwd", 9.0)]


class TestWhatTiesThemTogether:
    def test_launch_and_delay(self) -> None:
        trace = read(*two_steps())
        gemm, add = trace.steps[0].kernels
        call = gemm.launch
        assert call is not None
        assert (call.name, call.is_driver, call.correlation, call.external_id) == ("cuLaunchKernelEx", True, 13, 13)
        assert (gemm.launch_delay_us, add.launch_delay_us) == (10.0, 10.0)

    def test_chain_from_the_step_down(self) -> None:
        trace = read(*two_steps())
        mm = trace.steps[1].kernels[0].op
        assert mm is not None
        assert names(mm.chain) == ["ProfilerStep#3", "matmul_add", "aten::matmul", "aten::mm"]

    def test_annotation_children_and_calls_in_an_op(self) -> None:
        first, second = read(*two_steps()).steps
        label = second.find_annotation("matmul_add")
        assert label is not None
        assert label.start_us == 205.0
        assert names(second.children(label)) == ["aten::matmul", "aten::add"]
        assert names(second.calls_in(label)) == ["cuLaunchKernelEx", "cudaLaunchKernel"]
        matmul, add = second.children(label)
        assert names(second.calls_in(matmul)) == ["cuLaunchKernelEx"]
        assert names(second.calls_in(add)) == ["cudaLaunchKernel"]
        assert second.children(add) == ()
        assert first.children(label) == ()
        assert first.find_annotation("aten::mm") is None  # an op, not an annotation

    def test_ops_are_equal_only_to_themselves(self) -> None:
        first, second = read(op("a", 0, 1), op("a", 0, 1)).cpu_ops
        assert first != second
        assert {first: 1, second: 2}[first] == 1

    def test_op_by_launch_when_no_external_id_leads_to_one(self) -> None:
        trace = read(
            op("outer", 0, 100), op("inner", 10, 20), op("later", 40, 5), op("elsewhere", 0, 100, tid=9),
            launch(1, 15), launch(2, 35), launch(3, 200), launch(4, 42, external=77),
            kernel("in inner", 1, 50, 1), kernel("in outer", 2, 60, 1), kernel("in none", 3, 210, 1),
            kernel("unknown id", 4, 70, 1, **{"External id": 78}), kernel("no launch", 5, 80, 1),
        )  # fmt: skip
        assert {activity.name: activity.op and activity.op.name for activity in trace.activities} == {
            "in inner": "inner", "in outer": "outer", "in none": None, "unknown id": "later", "no launch": None,
        }  # fmt: skip

    def test_external_id_of_the_launch_counts_when_the_activity_has_none(self) -> None:
        trace = read(
            op("a", 0, 10, external=4), op("b", 10, 10, external=5), launch(1, 12, external=4), kernel("k", 1, 30, 1)
        )
        owner = trace.activities[0].op
        assert owner is not None
        assert owner.name == "a"

    def test_no_launch_no_delay(self) -> None:
        trace = read(kernel("k", None, 0, 1), kernel("l", 8, 2, 1))
        assert [activity.launch for activity in trace.activities] == [None, None]
        assert [activity.launch_delay_us for activity in trace.activities] == [None, None]

    def test_one_graph_launch_owns_many_kernels(self) -> None:
        trace = read(
            step(2, 0, 100), step(3, 100, 100),
            launch(1, 10, name="cudaGraphLaunch"), launch(2, 110, name="cudaGraphLaunch"),
            *(kernel(f"k{n}", 1, 20 + 50 * n, 5) for n in range(4)), kernel("next", 2, 230, 5),
        )  # fmt: skip
        assert names(trace.steps[0].kernels) == ["k0", "k1", "k2", "k3"]  # though two ran in the next step's window
        assert names(trace.steps[1].kernels) == ["next"]
        assert [k.launch and k.launch.name for k in trace.steps[0].kernels] == ["cudaGraphLaunch"] * 4

    def test_threads_nest_apart_and_launch_into_the_same_step(self) -> None:
        trace = read(
            step(2, 0, 100), op("forward", 10, 80), op("backward", 20, 30, tid=9), launch(1, 30, tid=9),
            kernel("k", 1, 40, 5),
        )  # fmt: skip
        assert parents(trace) == [("ProfilerStep#2", None), ("forward", "ProfilerStep#2"), ("backward", None)]
        assert names(trace.steps[0].ops) == ["forward", "backward"]
        assert names(trace.steps[0].kernels) == ["k"]

    def test_same_start_the_longer_is_outside(self) -> None:
        trace = read(op("inner", 10, 5), op("outer", 10, 9), op("outermost", 10, 20))
        assert parents(trace) == [("outermost", None), ("outer", "outermost"), ("inner", "outer")]

    def test_overlapping_ops_are_not_nested(self) -> None:
        trace = read(op("whole", 0, 100), op("first", 10, 20), op("second", 20, 20), op("in second", 35, 2))
        assert parents(trace) == [
            ("whole", None), ("first", "whole"), ("second", "whole"), ("in second", "second"),
        ]  # fmt: skip

    def test_neighbors_that_touch_are_not_nested_at_a_late_clock(self) -> None:
        late = 7_346_902_577_000.0  # where a float64 holds steps of 0.98 ns
        trace = read(
            op("whole", late, 50), op("a", late + 1.003, 3.217), op("b", late + 4.220, 2.780), op("c", late + 7, 43)
        )
        assert [parent for _, parent in parents(trace)] == [None, "whole", "whole", "whole"]

    def test_many_open_ops_stay_fast(self) -> None:
        trace = read(*(op("staircase", start, 50_000) for start in range(30_000)))
        assert all(o.parent is None for o in trace.cpu_ops)


class TestSteps:
    def test_without_a_launch_the_gpu_annotation_decides(self) -> None:
        trace = read(
            step(2, 0, 10), step(3, 10, 10),
            gpu_annotation("ProfilerStep#2", 100, 50), gpu_annotation("ProfilerStep#2", 110, 5, stream=13),
            gpu_annotation("ProfilerStep#3", 200, 50), gpu_annotation("ProfilerStep#7", 300, 50),
            kernel("a", None, 140, 5), kernel("b", 77, 200, 5), kernel("c", None, 160, 5), kernel("d", None, 310, 5),
        )  # fmt: skip
        assert [names(s.activities) for s in trace.steps] == [["a"], ["b"]]
        assert names(trace.unattributed) == ["c", "d"]

    def test_launched_outside_every_step_belongs_to_none(self) -> None:
        trace = read(
            launch(1, 0), step(2, 10, 10), launch(2, 20), launch(3, 19.999),
            gpu_annotation("ProfilerStep#2", 0, 1000),
            kernel("before", 1, 12, 1), kernel("at the end", 2, 30, 1), kernel("inside", 3, 40, 1),
        )  # fmt: skip
        assert names(trace.steps[0].activities) == ["inside"]
        assert names(trace.unattributed) == ["before", "at the end"]

    def test_steps_that_touch_share_nothing(self) -> None:
        trace = read(step(2, 0, 10), step(3, 10, 10), launch(1, 10), kernel("k", 1, 15, 1))
        assert [len(s.activities) for s in trace.steps] == [0, 1]
        assert [len(s.calls) for s in trace.steps] == [0, 1]

    @pytest.mark.parametrize(
        "name", ["ProfilerStep#", "ProfilerStep#x", "ProfilerStep", "ProfilerStep#1 ", "ProfilerStep#٣"]
    )
    def test_only_numbered_annotations_are_steps(self, name: str) -> None:
        trace = read(annotation(name, 0, 10), op("aten::mm", 2, 5))
        assert (trace.steps_from, [s.name for s in trace.steps]) == ("the whole trace", ["whole trace"])

    def test_steps_agree(self) -> None:
        assert steps_agree(read(*two_steps()))
        assert steps_agree(read(step(2, 0, 10)))
        assert not steps_agree(read())

    @pytest.mark.parametrize("lost", ["gemm", "add"])
    def test_steps_disagree_when_a_kernel_is_lost_or_another(self, lost: str) -> None:
        events = two_steps()
        at = next(i for i, e in enumerate(events) if e["name"] == lost)
        assert not steps_agree(read(*events[:at], *events[at + 1 :]))
        assert not steps_agree(read(*events[:at], {**events[at], "name": "other"}, *events[at + 1 :]))
        assert not steps_agree(read(*events[:at], {**events[at], "cat": "gpu_memset"}, *events[at + 1 :]))


class TestTime:
    def test_busy_is_a_union_over_streams(self) -> None:
        trace = read(
            kernel("a", 1, 0, 10), kernel("b", 2, 5, 10, stream=13), kernel("inside b", 3, 6, 2),
            memset(4, 15, 1, 4), kernel("c", 5, 20.5, 0.25), memcpy(6, 30, 2, 8),
        )  # fmt: skip
        assert busy_us(trace.activities) == 18.25
        assert extent_us(trace.activities) == 32.0
        assert idle_us(trace.activities) == 13.75
        assert kernel_time_us(trace.activities) == 22.25

    def test_a_kernel_overlaps_what_is_still_running_before_it_on_its_stream(self) -> None:
        trace = read(
            step(2, 0, 100), *(launch(number, number) for number in range(1, 8)),
            kernel("a", 1, 10, 20), kernel("b", 2, 24.5, 10), kernel("inside both", 3, 26, 2),
            kernel("next to a", 4, 25, 9, stream=13), kernel("another device", 5, 25, 9, device=1),
            kernel("after b", 6, 34.5, 5), memset(7, 39, 3, 4),
        )  # fmt: skip
        (only,) = trace.steps
        assert dict(zip([a.name for a in only.activities], overlaps_us(only), strict=True)) == {
            "a": 0, "b": 5.5, "next to a": 0, "another device": 0, "inside both": 2, "after b": 0,
            "Memset (Device)": 0.5,
        }  # fmt: skip
        assert [overlap_us(a, only) for a in only.activities] == list(overlaps_us(only))
        assert overlaps_us(read(step(2, 0, 10)).steps[0]) == ()

    def test_overlaps_of_a_real_step_with_programmatic_dependent_launch(self) -> None:
        trace = real("fused_mlp_forward")
        assert [overlaps_us(active) for active in trace.steps] == [(0, 7.04), (0, 7.232), (0, 6.88)]
        assert step_overlaps_us(trace) == ((0, 0, 0), (7.04, 7.232, 6.88))
        for active in trace.steps:
            summed, union = kernel_time_us(active.activities), busy_us(active.activities)
            assert summed - union == pytest.approx(sum(overlaps_us(active)), abs=1e-6)
            assert union == extent_us(active.activities)

    def test_nothing_takes_no_time(self) -> None:
        assert (busy_us(()), idle_us(()), kernel_time_us(())) == (0.0, 0.0, 0.0)


class TestTolerance:
    def test_odd_pids_categories_phases_and_arguments(self) -> None:
        trace = read(
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch", "ts": 0},
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 5},
            {"ph": "M", "name": "process_name", "pid": 412, "tid": 0, "args": {"name": "python3"}},
            {"ph": "s", "id": 3, "pid": 412, "tid": 412, "ts": 3, "cat": "ac2g", "name": "ac2g"},
            {"ph": "B", "cat": "cpu_op", "name": "begin", "ts": 1},
            {"ph": "X", "cat": "cpu_op", "name": "no time"},
            {"ph": "X", "cat": ["cpu_op"], "name": "list"},
            {"ph": 4, "cat": "cpu_op", "name": "number", "ts": 1},
            {"ph": "X", "cat": "python_function", "name": "nn.Module", "ts": 1, "dur": 2},
            {"ph": "X", "cat": "kernel from the future", "name": "x", "ts": 1, "dur": 2},
            {"ph": "X", "cat": "cpu_op", "name": "kept", "pid": "host", "tid": "worker", "ts": 7, "dur": 0,
             "args": None},
            7, None, "text", [],
        )  # fmt: skip
        assert [(o.name, o.thread, o.start_us, o.duration_us) for o in trace.cpu_ops] == [
            ("kept", "host/worker", 6.0, 0.0)
        ]
        assert trace.activities == ()
        assert trace.calls == ()
        assert names(trace.functions) == ["nn.Module"]
        assert {damage.reason: damage.count for damage in trace.damaged} == {NO_PHASE: 2, NO_TIME: 1, NO_OBJECT: 4}
        assert dict(trace.unread) == {"no object": 4, "kernel from the future": 1, "cpu_op in B and E events": 1, "": 1}

    def test_gpu_arguments_of_other_types(self) -> None:
        odd = {
            "External id": "5",
            "registers per thread": "many",
            "shared memory": 12.0,
            "est. achieved occupancy %": "37",
        }
        trace = read(kernel("k", "9", 1, 1, stream="13", device="2", grid=[1, 2], block="384", **odd))
        k = trace.activities[0]
        assert (k.stream, k.device, k.correlation, k.external_id) == (13, 2, 9, 5)
        assert (k.grid, k.block, k.registers, k.shared_memory_bytes, k.occupancy_percent) == (
            None,
            None,
            None,
            12,
            37.0,
        )

    def test_device_and_stream_from_pid_and_tid(self) -> None:
        event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}
        trace = read({**event, "pid": 3, "tid": "7"}, {**event, "pid": "GPU", "args": {"device": None}})
        assert [(a.device, a.stream) for a in trace.activities] == [(3, 7), (0, 0)]

    @pytest.mark.parametrize(
        ("dims", "shapes"),
        [
            ([[64, 128, 768], [3072, 768], []], ((64, 128, 768), (3072, 768), ())),
            ([[[2, 3], [4]], [5], []], ((2, 3), (4,), (5,), ())),  # aten::cat takes a list of tensors
            ("", ()),
            ([], ()),
            (["", [4]], ((), (4,))),
            ({"a": 1}, ()),
            ([["x", 2]], ()),
            ([[-1, 2], [3]], ()),
            ([[2], [10**400]], ()),
        ],
    )
    def test_input_dims(self, dims: Any, shapes: Any) -> None:
        assert read(op("a", 0, 1, dims=dims)).cpu_ops[0].input_shapes == shapes
        assert read(op("a", 0, 1, strides=dims)).cpu_ops[0].input_strides == shapes

    @pytest.mark.parametrize(
        ("types", "read_as"),
        [
            (["c10::BFloat16", "", "Scalar"], ("c10::BFloat16", "", "Scalar")),
            (["float", 7, None], ("float", "", "")),
            ([], ()),
            (None, ()),
            ("float", ()),
        ],
    )
    def test_types_of_inputs(self, types: Any, read_as: tuple[str, ...]) -> None:
        assert read(op("a", 0, 1, types=types)).cpu_ops[0].input_types == read_as

    def test_a_shape_that_cannot_be_read_spoils_no_other(self) -> None:
        content = trace_bytes(op("a", 0, 1, dims=[[2, 3]]), op("b", 2, 1, dims=["huge"]))
        trace = read_trace(content.replace(b'["huge"]', b"[[1e400, 4]]"))
        assert [o.input_shapes for o in trace.cpu_ops] == [((2, 3),), ()]

    def test_a_call_without_correlation_owns_nothing(self) -> None:
        trace = read(launch(None, 0), launch(0, 1), kernel("k", 0, 5, 1), kernel("l", None, 7, 1))
        assert [call.correlation for call in trace.calls] == [0, 0]
        assert [activity.launch for activity in trace.activities] == [None, None]

    def test_names_stay_raw(self) -> None:
        evil = [
            "</title><script>alert(1)</script>",
            "\x1b[2J\x1b]0;x\x07",
            "a\u202eb",
            "é 核 \U0001f525",
            "",
            "x" * 100_000,
            "\0",
        ]
        trace = read(*(kernel(name, n, n, 1) for n, name in enumerate(evil)), deviceProperties=[{"name": evil[0]}])
        assert names(trace.activities) == evil
        assert trace.device == evil[0]

    def test_a_bare_list_of_events(self) -> None:
        assert as_data(read_trace(b" \n" + json.dumps(two_steps()).encode())) == as_data(read(*two_steps()))

    def test_byte_order_mark_and_gzip(self, tmp_path: Path) -> None:
        data = trace_bytes(*two_steps())
        packed = tmp_path / "trace.json"  # the content decides, not the name
        packed.write_bytes(gzip.compress(data))
        expected = as_data(read_trace(data))
        for source in (b"\xef\xbb\xbf" + data, packed, str(packed), packed.read_bytes()):
            assert as_data(read_trace(source)) == expected


class TestBadInput:
    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "empty"),
            (gzip.compress(b"", mtime=0), "empty"),
            (b"  \n", r"^trace is not a \.json or \.json\.gz trace$"),
            (b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "ca', "not complete JSON .*before the first event"),
            (b'{"schemaVersion": 1, "trace', "not complete JSON .*truncated"),
            (trace_bytes(*two_steps()) + b"x", "not complete JSON .*trailing"),
            (gzip.compress(trace_bytes(*two_steps()), mtime=0)[:5], "gzip stream is cut off"),
            (b"\x1f\x8b" + b"\xff" * 40, "gzip stream is damaged"),
            (gzip.compress(trace_bytes(*two_steps()), mtime=0)[:-8] + b"\0" * 8, "gzip stream is damaged"),
            (b"{}", "not a Kineto trace .*traceEvents"),
            (b'{"traceEvents": 3}', "not a Kineto trace"),
            (b'{"traceEvents": {}}', "not a Kineto trace"),
            (b"42", "not a Kineto trace"),
            (b'"text"', "not a Kineto trace"),
            (b"null", "not a Kineto trace"),
            ("{}".encode("utf-16"), "not a Kineto trace"),
            (b'{"traceEvents": [], "traceEvents": []}', "two lists of events"),
            (b"[]{}", "not complete JSON"),
            (b'{"traceEvents": [], "deviceProperties": ' + b"[" * 100_000, "not complete JSON"),
            (b'{"traceEvents": [], "deviceProperties": NaN}', "not complete JSON"),
        ],
    )
    def test_says_what_is_wrong(self, data: bytes, says: str) -> None:
        with pytest.raises(TraceError, match=says):
            read_trace(data)

    def test_missing_file_and_directory(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"nowhere\.json: cannot be read \(No such file.*call profiler\.step\(\)"):
            read_trace(tmp_path / "nowhere.json")
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(tmp_path)
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace("a\0b")

    def test_size_limit_holds_for_what_is_packed(self) -> None:
        bomb = gzip.compress(b" " * 50_000_000)
        with pytest.raises(TraceError, match="over 1,000,000 bytes"):
            read_trace(bomb, limit_bytes=1_000_000)
        with pytest.raises(TraceError, match="over 10 bytes"):
            read_trace(trace_bytes(), limit_bytes=10)
        data = trace_bytes()
        assert read_trace(gzip.compress(data), limit_bytes=len(data)).steps == ()

    @pytest.mark.parametrize("ts", [1e300, -1e300, 10**30, "1e999"])
    def test_impossible_times_are_left_out(self, ts: Any) -> None:
        assert names(read({"ph": "X", "cat": "cpu_op", "name": "a", "ts": ts}, op("b", 0, 1)).cpu_ops) == ["b"]

    def test_required_steps_and_kernels(self) -> None:
        require_steps(read(*two_steps()))
        require_kernels(read(*two_steps()))
        with pytest.raises(TraceError, match=r"no active steps: .*prof\.step\(\)"):
            require_steps(read())
        with pytest.raises(TraceError, match=r"no GPU kernels, though the trace has 1 launch.*driver"):
            require_kernels(read(step(2, 0, 10), launch(1, 2), memset(1, 3, 1, 4)))

    def test_collector_is_left_as_it_was(self) -> None:
        for data in (trace_bytes(), b"{"):
            for enabled in (True, False):
                (gc.enable if enabled else gc.disable)()
                try:
                    read_trace(data)
                except TraceError:
                    assert data == b"{"
                assert gc.isenabled() is enabled
        gc.enable()


def exercise(trace: Trace) -> None:
    """Ask everything: an answer may be empty, never an exception."""
    for activity in trace.activities:
        assert (activity.launch_delay_us is None) == (activity.launch is None)
        if activity.op is not None:
            assert activity.op.chain[-1] is activity.op
    for active in trace.steps:
        for each in active.ops:
            assert all(child.parent is each for child in active.children(each))
            assert all(call.thread == each.thread for call in active.calls_in(each))
        active.find_annotation("matmul_add")
    busy_us(trace.activities), idle_us(trace.activities), kernel_time_us(trace.activities)
    steps_agree(trace)


CALL = {"library": "cuLaunchKernelEx", "torch": "cudaLaunchKernel", "triton": "cuLaunchKernel"}


class TestRealTraces:
    @pytest.mark.parametrize(
        ("name", "kernels", "memsets", "label", "by"),
        [
            ("linear_eager", 1, 0, "linear_fwd", "library"),
            ("matmul_add_64_eager", 2, 0, "matmul_add", "library torch"),
            ("mlp_eager", 5, 2, "mlp_fwd", "library torch library torch library"),
            ("mlp_compile", 4, 2, "mlp_fwd", "library library triton library"),
            ("mlp_liger", 4, 2, "mlp_fwd", "library library library library"),
        ],
    )
    def test_counts(self, name: str, kernels: int, memsets: int, label: str, by: str) -> None:
        trace = real(name)
        assert trace.device == "NVIDIA H200"
        assert [s.number for s in trace.steps] == [2, 3, 4]
        assert steps_agree(trace)
        assert trace.unattributed == ()
        exercise(trace)
        for active in trace.steps:
            assert (len(active.kernels), len(active.memsets), len(active.memcpys)) == (kernels, memsets, 0)
            assert active.find_annotation(label) is not None
            calls = names(activity.launch for activity in active.kernels)
            assert calls == [CALL[whose] for whose in by.split()]

    def test_what_a_kernel_of_the_eager_mlp_knows(self) -> None:
        trace = real("mlp_eager")
        first = trace.steps[0].kernels[0]
        assert first.name == "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
        assert (first.grid, first.block, first.registers) == ((2, 66, 1), (384, 1, 1), 168)
        assert (first.shared_memory_bytes, first.duration_us, first.stream) == (213188, 55.808, 7)
        assert first.launch_delay_us == 11.68
        assert first.op is not None
        chain = ["ProfilerStep#2", "mlp_fwd", "aten::linear", "aten::matmul", "aten::mm"]
        assert names(first.op.chain) == chain
        assert first.op.input_shapes == ((8192, 768), (768, 3072))

    def test_the_eager_mlp_in_order(self) -> None:
        trace = real("mlp_eager")
        ops = [names(activity.op for activity in active.kernels) for active in trace.steps]
        assert ops == [["aten::mm", "aten::gelu", "aten::mm", "aten::mul", "aten::mm"]] * 3
        gate, _, up, _, down = names(trace.steps[1].kernels)
        assert gate == up != down
        memset_calls = names(activity.launch for activity in trace.steps[0].memsets)
        assert memset_calls == ["cudaMemsetAsync"] * 2
        assert [a.moved_bytes for a in trace.steps[0].memsets] == [4, 4]

    def test_kernels_that_triton_launches(self) -> None:
        compiled, liger = real("mlp_compile"), real("mlp_liger")
        fused = compiled.steps[0].kernels[2].op
        assert fused is not None
        assert fused.name == "triton_poi_fused__unsafe_view_gelu_mul_0"
        assert [name.split(" ")[0] for name in names(fused.chain)] == [
            "ProfilerStep#2", "mlp_fwd", "Torch-Compiled", "##", "triton_poi_fused__unsafe_view_gelu_mul_0",
        ]  # fmt: skip
        geglu = liger.steps[0].kernels[2]
        assert geglu.name == "_geglu_tanh_forward_kernel"
        assert geglu.op is not None
        assert names(geglu.op.chain)[1:] == ["mlp_fwd", "LigerGELUMulFunction"]

    def test_synchronization_waits_after_the_steps(self) -> None:
        trace = real("matmul_add_64_eager")
        last = trace.calls[-1]
        assert (last.name, last.is_driver, last.duration_us) == ("cudaDeviceSynchronize", False, 23.074)
        assert last.start_us > trace.steps[-1].end_us
        assert names(trace.steps[-1].calls) == ["cuLaunchKernelEx", "cudaLaunchKernel"]


def test_an_operator_is_found_by_its_whole_name() -> None:
    first, _ = read(*two_steps()).steps
    assert find_op(first, "aten::mm").start_us == first.start_us + 12, "not aten::matmul"
    assert find_op(first, "matmul_add").is_annotation
    with pytest.raises(TraceError, match=r"^ProfilerStep#2 has no aten::m$"):
        find_op(first, "aten::m")


def test_gpu_work_has_a_name_and_the_name_of_its_operator() -> None:
    first, _ = read(*two_steps()).steps
    assert gpu_names(first) == "gemm + add"
    assert [op_name(activity) for activity in first.activities] == ["aten::mm", "aten::add"]
    (lost,) = read(kernel("lost", 1, 3, 1)).activities
    assert op_name(lost) == ""


def test_kernels_have_names_and_one_takes_longest() -> None:
    first, _ = read(*two_steps()).steps
    assert (kernel_names(first), longest_kernel(first).name) == ("gemm, add", "gemm")
    (empty,) = read(step(2, 0, 10)).steps
    assert kernel_names(empty) == ""
    with pytest.raises(TraceError, match=r"^ProfilerStep#2 has no kernel$"):
        longest_kernel(empty)
