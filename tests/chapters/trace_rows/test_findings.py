"""The page on what each row means: its tables on the book's recordings, and on altered ones."""

from __future__ import annotations

import re

import pytest

from kinetoscope.trace.events import Step
from snippets.trace_rows.findings import events, gpu, launches, lines, rows
from snippets.trace_rows.findings.averages import average, averages, rows_of
from tests.chapters.altered import AlteredDevice, replace, status
from tests.lab.samples import BOOK, Markup, text_of


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


def test_rows_of_an_all_reduce_that_are_not_nested(device: AlteredDevice) -> None:
    assert status(device, "R22") == "holds"

    def later(step: Step) -> Step:
        ops = (replace(op, start_us=op.end_us) if op.name == "record_param_comms" else op for op in step.ops)
        return replace(step, ops=tuple(ops))

    device.steps("several_gpus/each_parameter", later)
    assert status(device, "R22") == "differs"


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
        ["before the first profile", "2.00 µs"],
        ["with the profiler's defaults", "9.00 µs"],
        ["after the profiler has stopped", "4.00 µs"],
    ]


def test_work_that_is_left_when_the_profiler_waits(device: AlteredDevice) -> None:
    assert launches.work_left(device).text == "nothing"
    end_us = next(call for call in device["mlp/eager"].trace.calls if call.name == "cudaDeviceSynchronize").start_us

    def later(step: Step) -> Step:
        *others, last = step.activities
        return replace(step, activities=(*others, replace(last, start_us=end_us, duration_us=5.0)))

    device.steps("mlp/eager", later)
    assert launches.work_left(device).text == "5.00 µs"
