"""The summary: exact on events written by hand and on a synthetic trace whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.trace.documents import document_text
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.json_events import MAX_WINDOW_BYTES
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.summaries import KernelSummary, OperatorSummary, Summary, UncountedSummary, summary_document
from kinetoscope.trace.summary import COLUMNS, print_summary, summary_text
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, kernel, launch, memcpy, memset, op, step, trace_bytes

TRACES = Path(__file__).parents[2] / "traces"
EVIL = "</title><script>\x1b[2J\x07\x9b31m\u202e\ud7ff核"


def summarized(*events: Any, **top: Any) -> Summary:
    return summarize(read_trace(trace_bytes(*events, **top)))


def two_steps() -> list[Event]:
    events: list[Event] = []
    for number, at, identity in ((2, 0.0, 10), (3, 100.0, 20)):
        events += [
            step(number, at, 80),
            op("aten::mm", at + 1, 20, external=identity),
            launch(identity, at + 5, name="cudaOccupancyMaxActiveBlocksPerMultiprocessor"),
            launch(identity + 1, at + 6, name="cuLaunchKernelEx", external=identity),
            launch(identity + 2, at + 30, name="cudaMemsetAsync"),
            kernel("gemm", identity + 1, at + 10, 8.5, **{"External id": identity}),
            kernel("gemm", identity + 1, at + 20, 1.5, **{"External id": identity}),
            kernel("gemm", identity + 1, at + 20.5, 4, stream=13, grid=[1, 1, 1]),
            memset(identity + 2, at + 40, 1, 4),
        ]
    return events


class TestSummary:
    def test_exact(self) -> None:
        found = summarized(*two_steps(), kernel("stray", None, 900, 50), deviceProperties=[{"name": "NVIDIA H200"}])
        shape: dict[str, Any] = {"block": (384, 1, 1), "registers": 168, "shared_memory_bytes": 164308}
        assert found == Summary(
            device="NVIDIA H200",
            steps=2,
            steps_agree=True,
            kernels_per_step=3,
            memcpy_per_step=0,
            memset_per_step=1,
            launches_per_step=2,
            kernel_time_us_per_step=14.0,
            overlap_us_per_step=0.0,
            gpu_busy_us_per_step=14.0,
            gpu_idle_us_per_step=17.0,
            unattributed=1,
            steps_from="ProfilerStep",
            uncounted=(UncountedSummary("no launch in the trace", 1, 50.0),),
            step_us=80.0,
            syncs_per_step=0,
            h2d_us_per_step=0.0,
            d2h_us_per_step=0.0,
            collectives_us_per_step=0.0,
            exposed_collectives_us_per_step=0.0,
            devices=(),
            processes=(),
            is_cut=False,
            launches=2,
            notes=(),
            kernels=(
                KernelSummary("gemm", 4, 20.0, 5.0, "aten::mm", (4, 2, 1), **shape),
                KernelSummary("gemm", 2, 8.0, 4.0, "aten::mm", (1, 1, 1), **shape),
            ),
        )

    def test_steps_that_differ(self) -> None:
        events = [*two_steps(), step(4, 200, 80), launch(31, 205), kernel("lone", 31, 210, 1), memcpy(31, 220, 1, 8)]
        found = summarized(*events)
        assert (found.steps, found.steps_agree) == (3, False)
        assert (found.kernels_per_step, found.memset_per_step, found.memcpy_per_step) == (3, 1, 0)
        assert found.kernel_time_us_per_step == 9.667
        assert found.kernels[-1].op == "ProfilerStep#4"  # nothing else encloses its launch

    def test_even_steps_take_the_low_median(self) -> None:
        events = [*two_steps(), step(4, 200, 80), step(5, 300, 80), op("aten::t", 310, 5)]
        assert summarized(*events).kernels_per_step == 0

    def test_the_op_that_launched_it_most_often(self) -> None:
        ops = [op(name, n * 10, 5, external=n) for n, name in enumerate(("z", "b", "a", "b", "a"), start=1)]
        kernels = [kernel("k", None, n * 10, 1, **{"External id": n}) for n in range(1, 6)]
        events = [launch(9, 1), *ops, *(k | {"args": k["args"] | {"correlation": 9}} for k in kernels)]
        assert summarized(step(2, 0, 100), *events).kernels[0].op == "a"

    def test_nothing_to_summarize(self) -> None:
        with pytest.raises(TraceError, match="no active steps"):
            summarized()

    def test_of_a_cpu_all_times_of_a_gpu_are_zero(self) -> None:
        found = summarized(step(2, 0, 10), op("aten::linear", 1, 6), op("aten::mm", 2, 4), op("aten::mm", 8, 1))
        assert (found.kernels_per_step, found.gpu_busy_us_per_step, found.kernels) == (0, 0.0, ())
        assert found.operators == (
            OperatorSummary("aten::mm", 2, 5.0, 5.0),
            OperatorSummary("ProfilerStep*", 1, 3.0, 10.0),
            OperatorSummary("aten::linear", 1, 2.0, 6.0),
        )
        (note,) = found.notes
        lines = summary_text(found).splitlines()
        assert " ".join(line[19:] for line in lines[3 : lines.index("")]) == note
        assert lines[lines.index("") + 1 :] == [
            "the CPU's time by operator, annotation and CUDA call, over the whole trace",
            "calls  self us  total us  name",
            "    2    5.000     5.000  aten::mm",
            "    1    3.000    10.000  ProfilerStep* (outside of operators)",
            "    1    2.000     6.000  aten::linear",
        ]
        assert max(map(len, lines)) <= COLUMNS
        assert "kernels," not in "".join(lines[:3]), "zeros of a GPU say nothing"
        assert lines[1] == "active steps       1", "no GPU work agrees"

    def test_of_many_operators_the_first(self) -> None:
        ops = [op(f"aten::operator_{index:02}", 10 * index, 9 - index / 10) for index in range(40)]
        lines = summary_text(summarized(step(2, 0, 400), *ops)).splitlines()
        assert lines[-2].endswith("aten::operator_10")
        assert lines[-1] == "and 29 more"

    @pytest.mark.parametrize(
        ("events", "devices", "why"),
        [
            ([], [], "no GPU kernels, no CUDA call and no GPU in this trace: from a machine without a GPU"),
            ([], [{"name": "NVIDIA H200"}], "no GPU kernels and no launch, though the trace names NVIDIA H200; check"),
            ([launch(1, 1, name="cudaGetDevice")], [], "no GPU kernels and no launch, though the trace has CUDA calls"),
            ([launch(1, 1)], [], "no GPU kernels, though the trace has 1 launch: the GPU's events are lost"),
            ([launch(1, 1), launch(2, 3)], [], "no GPU kernels, though the trace has 2 launches"),
            ([{**kernel("k", 1, 1, 1), "cat": "xla_op"}], [], "no GPU kernels that are read: a trace of another"),
        ],
    )
    def test_why_there_is_no_gpu_work(self, events: list[Event], devices: list[Event], why: str) -> None:
        found = summarized(step(2, 0, 10), op("aten::mm", 1, 2), *events, deviceProperties=devices)
        assert found.notes[0].startswith(why)

    @pytest.mark.parametrize(("lost", "is_told"), [(1, False), (2, True), (19, True)])
    def test_launches_without_a_kernel(self, lost: int, is_told: bool) -> None:
        launched = [
            event for n in range(20) for event in (launch(n + 1, 10.0 * n), kernel("k", n + 1, 10.0 * n + 5, 2))
        ]
        summary = summarized(*launched[: -2 * lost], *launched[-2 * lost :: 2])
        assert (summary.launches, summary.launches_without_kernel) == (20, lost)
        told = [
            note for note in summary.notes if note.startswith(f"{lost} of 20 launches ({5 * lost}%) have no kernel")
        ]
        assert bool(told) == is_told

    def test_copies_alone(self) -> None:
        found = summarized(step(2, 0, 10), launch(1, 1, name="cudaMemcpyAsync"), memcpy(1, 5, 2, 64))
        assert (found.kernels_per_step, found.memcpy_per_step, found.gpu_busy_us_per_step) == (0, 1, 2.0)
        assert found.notes == ("no kernels: the GPU only copied and filled memory",)

    @pytest.mark.parametrize(
        ("name", "kernels", "memsets", "launches", "kernel_time_us"),
        [
            ("linear_eager", 1, 0, 1, 2.784),
            ("matmul_add_64_eager", 2, 0, 2, 2.774),
            ("mlp_eager", 5, 2, 7, 230.218),
            ("mlp_compile", 4, 2, 6, 203.264),
            ("mlp_liger", 4, 2, 6, 210.025),
        ],
    )
    def test_real(self, name: str, kernels: int, memsets: int, launches: int, kernel_time_us: float) -> None:
        found = summarize(read_trace(TRACES / f"{name}.json.gz"))
        assert (found.device, found.steps, found.steps_agree, found.unattributed) == ("NVIDIA H200", 3, True, 0)
        assert (found.kernels_per_step, found.memset_per_step, found.launches_per_step) == (kernels, memsets, launches)
        assert found.kernel_time_us_per_step == kernel_time_us
        assert sum(k.calls for k in found.kernels) == 3 * kernels
        assert sum(k.total_us for k in found.kernels) == pytest.approx(3 * kernel_time_us, abs=0.003)

    def test_a_file_of_several_megabytes(self) -> None:
        """It is read in several windows. Kernels of two streams overlap by 1 us."""
        events = []
        for number in range(20):
            events.append(step(number, 2000.0 * number, 1200))
            for index in range(100):
                at, correlation = 2000.0 * number + 10 * index, 200 * number + 2 * index + 2
                events += [op("aten::mm", at, 9, external=correlation, dims=[[64, 128, 3072]] * 9)]
                events += [launch(correlation + stream, at + 1, external=correlation) for stream in (0, 1)]
                events += [kernel("gemm", correlation, at + 2, 4), kernel("add", correlation + 1, at + 5, 6, stream=20)]
        content = trace_bytes(*events)
        assert len(content) > 2 * MAX_WINDOW_BYTES
        trace = read_trace(content)
        found = summarize(trace)
        assert (found.steps, found.unattributed) == (20, 0)
        assert [(k.name, k.calls, k.total_us, k.op) for k in found.kernels] == [
            ("add", 2000, 12_000.0, "aten::mm"),
            ("gemm", 2000, 8_000.0, "aten::mm"),
        ]
        assert [busy_us(each.activities) for each in trace.steps] == [900.0] * 20


class TestOutput:
    def test_json(self) -> None:
        found = summarized(*two_steps())
        text = document_text(summary_document(found, "train.json"))
        assert json.loads(text)["kernels"][0] == {
            "name": "gemm", "calls": 4, "total_us": 20.0, "mean_us": 5.0, "op": "aten::mm", "grid": [4, 2, 1],
            "block": [384, 1, 1], "registers": 168, "shared_memory_bytes": 164308, "overlap_us": 0.0,
        }  # fmt: skip
        assert list(json.loads(text))[:6] == ["kind", "schema_version", "file", "device", "steps", "steps_agree"]

    def test_text(self) -> None:
        found = summarized(*two_steps(), kernel("stray", None, 900, 50), deviceProperties=[{"name": "NVIDIA H200"}])
        assert summary_text(found).splitlines() == [
            "device             NVIDIA H200",
            "active steps       2 (all steps agree)",
            "work per step      3 kernels, 0 memcpy, 1 memset, put there by 2 calls",
            "GPU time per step  busy 14.000 us, idle between 17.000 us; kernels add up to 14.000 us",
            "CPU time per step  80.000 us (median)",
            "unattributed       1 GPU activities belong to no step and are not counted:",
            "                   1 no launch in the trace, kernels of 50.000 us",
            "",
            "calls  total us  mean us  op        kernel",
            "    4    20.000    5.000  aten::mm  gemm",
            "    2     8.000    4.000  aten::mm  gemm",
        ]

    def test_text_of_kernels_that_overlap(self) -> None:
        events = [step(2, 0, 50), launch(1, 5), launch(2, 8), launch(3, 9)]
        events += [kernel("first", 1, 10, 20), kernel("second", 2, 26, 10), kernel("second", 3, 36, 5.5)]
        assert summary_text(summarized(*events)).splitlines()[3:] == [
            "GPU time per step  busy 31.500 us, idle between 0.000 us; kernels add up to 35.500 us",
            "CPU time per step  50.000 us (median)",
            "overlap per step   4.000 us in which the kernel before on a stream still ran",
            "",
            "calls  total us  mean us  overlap us  op              kernel",
            "    1    20.000   20.000       0.000  ProfilerStep#2  first",
            "    2    15.500    7.750       4.000  ProfilerStep#2  second",
        ]
        assert summarized(*events).overlap_us_per_step == 4.0

    def test_text_says_when_steps_differ(self) -> None:
        assert "steps DIFFER" in summary_text(summarized(*two_steps(), step(4, 200, 80), op("aten::t", 210, 5)))

    def test_names_cannot_steer_a_terminal(self) -> None:
        found = summarized(
            step(2, 0, 50), op(EVIL, 1, 9, external=1), launch(1, 2, external=1), kernel(EVIL, 1, 5, 1),
            deviceProperties=[{"name": EVIL}],
        )  # fmt: skip
        text, data = summary_text(found), document_text(summary_document(found, "train.json"))
        assert all(c.isprintable() for c in text.replace("\n", ""))
        assert "</title><script>\\x1b[2J\\x07\\x9b31m\\u202e" in text
        assert data.isascii()
        assert "\x1b" not in data
        assert json.loads(data)["kernels"][0]["name"] == json.loads(data)["device"] == EVIL

    @pytest.mark.parametrize("length", [40, 60, 100, 5000])
    def test_long_names_are_shortened_in_the_middle(self, length: int) -> None:
        name = "".join(str(n % 10) for n in range(length))
        found = summarized(step(2, 0, 50), op(name, 1, 9, external=1), launch(1, 2, external=1), kernel(name, 1, 5, 1))
        lines = summary_text(found).splitlines()
        assert max(map(len, lines)) <= COLUMNS
        assert lines[-1].endswith(name[-8:])
        assert (f"  {name}" in lines[-1]) == (length == 40)
        assert ("..." in lines[-1].split("  ")[-1]) == (length > 40)

    def test_main_prints_and_returns_zero(self, capsys: pytest.CaptureFixture[str]) -> None:
        path = TRACES / "mlp_eager.json.gz"
        assert print_summary(str(path), as_json=True) == 0
        assert json.loads(capsys.readouterr().out)["kernels_per_step"] == 5
        assert print_summary(path) == 0
        assert "5 kernels, 0 memcpy, 2 memset" in capsys.readouterr().out

    def test_main_leaves_errors_to_the_command_line(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="cannot be read"):
            print_summary(tmp_path / "missing.json")
