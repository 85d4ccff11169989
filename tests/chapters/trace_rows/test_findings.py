"""The page on what each row means: its claims on the book's recordings, on altered ones, and its tables."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Step
from snippets.lab.finding.book import Verdict, findings, judge
from snippets.trace_rows.findings import events, gpu, launches, lines, rows
from snippets.trace_rows.findings.averages import average, averages, rows_of
from tests.chapters.altered import AlteredDevice
from tests.lab.samples import BOOK, Markup, text_of

CLAIMS = {claim.id: claim for claim in findings("trace_rows").claims}
replace = msgspec.structs.replace


def verdict(device: AlteredDevice, name: str) -> Verdict:
    return judge(CLAIMS[name], "trace_rows", device)


@pytest.fixture
def device() -> AlteredDevice:
    return AlteredDevice()


@pytest.mark.parametrize("name", CLAIMS)
def test_on_the_default_device_each_claim_holds(name: str) -> None:
    assert judge(CLAIMS[name], "trace_rows", BOOK).status == "holds"


def test_kernels_one_after_the_other_are_counted_once(device: AlteredDevice) -> None:
    def in_turn(step: Step) -> Step:
        start, found = step.start_us, []
        for activity in step.activities:
            found.append(replace(activity, start_us=start))
            start += activity.duration_us
        return replace(step, activities=tuple(found))

    device.steps("trace_rows/two_streams", in_turn)
    found = verdict(device, "R2")
    assert found.status == "differs"
    assert found.measured is not None
    assert found.measured.number == pytest.approx(1.0, abs=0.01)


def test_an_annotation_on_one_stream(device: AlteredDevice) -> None:
    annotations = device["trace_rows/two_streams"].trace.gpu_annotations
    device.trace("trace_rows/two_streams", gpu_annotations=annotations[::2])
    assert verdict(device, "R3").status == "differs"


def with_calls(step: Step, **changed: Any) -> Step:
    """Every launch with other fields."""
    calls = (replace(call, **changed) if "LaunchKernel" in call.name else call for call in step.calls)
    return replace(step, calls=tuple(calls))


def test_launches_that_all_take_as_long(device: AlteredDevice) -> None:
    device.steps("trace_rows/full_queue", lambda step: with_calls(step, duration_us=20.0))
    assert [verdict(device, name).status for name in ("R4", "R5", "R18")] == ["differs"] * 3


def test_a_full_queue_without_its_row(device: AlteredDevice) -> None:
    device.trace("trace_rows/full_queue", overheads=())
    assert verdict(device, "R6").status == "differs"


def test_a_wait_that_ends_early(device: AlteredDevice) -> None:
    def short(step: Step) -> Step:
        calls = (replace(c, duration_us=1.0) if c.name == "cudaStreamSynchronize" else c for c in step.calls)
        return replace(step, calls=tuple(calls))

    device.steps("trace_rows/item", short)
    assert verdict(device, "R7").status == "differs"


def test_a_copy_of_another_name(device: AlteredDevice) -> None:
    def renamed(op: CpuOp) -> CpuOp:
        return replace(op, name="aten::move") if op.name == "aten::copy_" else op

    device.ops("trace_rows/copies", renamed)
    assert verdict(device, "R8").status == "differs"
    found = verdict(device, "R21")
    assert (found.status, found.measured and found.measured.text) == ("differs", "0 of 3 and 0 of 3")


def test_pinned_memory_that_is_as_slow(device: AlteredDevice) -> None:
    def same(activity: GpuActivity) -> GpuActivity:
        return replace(activity, duration_us=100.0) if "Memcpy HtoD" in activity.name else activity

    device.activities("trace_rows/copies", same)
    assert verdict(device, "R9").status == "differs"


def test_kernels_outside_of_the_graph(device: AlteredDevice) -> None:
    def renamed(op: CpuOp) -> CpuOp:
        return replace(op, name="aten::call") if op.name.startswith("## Call") else op

    for experiment in ("mlp/compiled", "trace_rows/compiled"):
        device.ops(experiment, renamed)
    assert [verdict(device, name).status for name in ("R11", "R19")] == ["differs"] * 2


def test_no_lookup(device: AlteredDevice) -> None:
    device.ops("mlp/compiled", lambda op: replace(op, name="x") if op.name == "Pregraph bytecode" else op)
    found = verdict(device, "R20")
    assert (found.status, found.measured and found.measured.text) == ("differs", "1 and 0")


def test_backward_on_the_same_thread(device: AlteredDevice) -> None:
    device.ops("trace_rows/train", lambda op: replace(op, thread="1/1"))
    assert verdict(device, "R12").status == "differs"


def test_kernels_that_are_launched_singly(device: AlteredDevice) -> None:
    def single(call: CudaCall) -> CudaCall:
        return replace(call, name="cudaLaunchKernel")

    device.launches("trace_rows/graph", single)
    assert verdict(device, "R15").status == "differs"


def test_memory_that_is_never_freed(device: AlteredDevice) -> None:
    device.data("trace_rows/memory", rows=[{"name": "a", "self_bytes": 8, "bytes": 8, "calls": 1}])
    assert verdict(device, "R13").status == "differs"


def test_rows_in_the_order_of_the_patterns() -> None:
    names = [row.name for row in averages(BOOK, "mlp/eager", "aten::mm", "aten::linear", "aten::m*")]
    assert names == ["aten::mm", "aten::linear", "aten::mul", "aten::matmul"]
    assert average(BOOK, "mlp/eager", "aten::mm").calls == 9
    with pytest.raises(StopIteration):
        average(BOOK, "mlp/eager", "aten::none")


def test_a_table_of_rows() -> None:
    text = Markup(rows_of(BOOK, "mlp/eager", ("ProfilerStep*", "aten::t"), "Two rows")).text
    assert "Two rows" in text
    assert "annotation" in text
    assert "aten::t" in text


def test_memory_with_its_sign(device: AlteredDevice) -> None:
    data = [
        {"name": name, "self_bytes": number, "bytes": number, "calls": 2}
        for name, number in (("aten::mm", 8), ("[memory]", -9))
    ]
    device.data("trace_rows/memory", rows=data)
    text = Markup(rows.memory_rows(device)).text
    assert text.index("[memory]") < text.index("aten::mm")
    assert "-9 bytes" in text


def test_copies_from_the_host_by_name() -> None:
    text = Markup(gpu.host_copies(BOOK)).text
    assert text.index("Pageable -> Device") < text.index("Pinned -> Device")
    assert text.count("33.6 MB") == 2


def cells(html: str) -> list[list[str]]:
    """The rows of a table without its head, each as the texts of its cells."""
    return [[text_of(cell).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", row)] for row in html.split("<tr")[2:]]


def test_events_of_a_trace_by_name_and_place() -> None:
    assert [row[:3] for row in cells(events.annotations(BOOK))[:3]] == [
        ["ProfilerStep*", "CPU, annotation", "3"],
        ["two_streams", "CPU, annotation", "3"],
        ["two_streams", "GPU, annotation", "6"],
    ]
    assert [row[1:3] for row in cells(events.annotations(BOOK))[3:]] == [
        ["GPU, stream 7", "3"],
        ["GPU, stream 14", "3"],
    ]
    assert cells(events.closing_wait(BOOK)) == [
        ["ProfilerStep*", "CPU, annotation", "3", "347 µs", "647 µs"],
        ["cudaDeviceSynchronize", "CPU, CUDA call", "1", "21.5 µs", "21.5 µs"],
    ]
    assert cells(events.fills(BOOK))[1] == ["Memset (Device)", "GPU, stream 7", "3", "736 ns", "768 ns"]
    assert [row[:3] for row in cells(events.replays(BOOK))[:2]] == [
        ["aten::copy_", "CPU, operator", "3"],
        ["cudaGraphLaunch", "CPU, CUDA call", "3"],
    ]
    assert cells(events.requests(BOOK))[0][:4] == ["Activity Buffer Request", "profiler, overhead", "1", "2.38 ms"]


def test_kernels_with_their_line() -> None:
    places = [row[-2] for row in cells(lines.lines(BOOK))]
    # Which layer's product took longest differs from recording to recording
    operators = [re.sub(r"model\.py\(\d+\)", "model.py()", re.sub(r"Linear_\d+", "Linear", place)) for place in places]
    assert operators == [
        "aten::cross_entropy_loss at snippets/training_step/model.py(): next_token_loss",
        "aten::linear in nn.Module: Linear at snippets/training_step/model.py(): forward",
        "aten::cross_entropy_loss at snippets/training_step/model.py(): next_token_loss",
        "aten::linear in nn.Module: Linear at snippets/training_step/model.py(): forward",
    ]


def test_a_step_by_the_clock(device: AlteredDevice) -> None:
    device.data("capture_faults/overhead", before_us=[1.0, 3.0, 2.0], samples_us={"nothing": [9.0], "without": [4.0]})
    assert cells(lines.stopwatch(device)) == [
        ["no profile yet", "2.00 µs"],
        ["under the profiler's defaults", "9.00 µs"],
        ["the profiler is off again", "4.00 µs"],
    ]


def test_work_that_is_left_when_the_profiler_waits(device: AlteredDevice) -> None:
    assert launches.work_left(device).text == "nothing"
    end_us = next(call for call in device["mlp/eager"].trace.calls if call.name == "cudaDeviceSynchronize").start_us

    def later(step: Step) -> Step:
        *others, last = step.activities
        return replace(step, activities=(*others, replace(last, start_us=end_us, duration_us=5.0)))

    device.steps("mlp/eager", later)
    assert launches.work_left(device).text == "5.00 µs"
