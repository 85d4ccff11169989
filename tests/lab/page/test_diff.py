"""The change from one step to another as tables: exact cells, spreads, bytes, and incomparable steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_recorded_trace, read_trace
from snippets.lab.finding.device import Device
from snippets.lab.page.diff import StepWork, diff_of, diff_table
from snippets.lab.recording.schema import NotRecorded
from tests.lab import samples
from tests.lab.samples import EVIL, assert_only_text, sample, save_all
from tests.tool import events
from tests.tool.trace.test_alignment import ADD, FUSED, GELU, GEMM, MUL


def cells(table: str) -> list[list[str]]:
    """Text of each row's cells but the head's; of a kernel only the short form."""
    return samples.cells(table)[1:]


def steps(*kernels: tuple[str, float], op_us: float = 30.0, dims: object = None, label: str = "fwd") -> Trace:
    """Three steps of 100 us, each a label of 80 us with one operator a kernel of so many us."""
    listed = []
    for place in range(3):
        start, correlation = 1000.0 * place, 10 * place + 1
        listed += [events.step(place, start, 100), events.annotation(label, start + 1, 80)]
        for which, (name, lasts) in enumerate(kernels):
            begin = start + 2 + (op_us + 1) * which
            given = {"dims": dims, "types": ["float"] * 2, "strides": [[4, 1], [4, 1]]} if dims else {}
            listed += [
                events.op("aten::mul", begin, op_us, external=correlation + which, **given),
                events.launch(correlation + which, begin + 5, external=correlation + which),
                events.kernel(name, correlation + which, start + 100 + 50 * which, lasts),
            ]
    return read_trace(events.trace_bytes(*listed))


def test_the_tables() -> None:
    before = steps((GEMM, 40), (MUL, 20), dims=[[8, 4], [8, 4]])
    after = steps((GEMM, 40.5))
    content = diff_of({"one": before, "two": after}, "From one to two", labels=("fwd", "fwd"))
    first, second = content.split("</table>")[:2]
    assert "<caption>From one to two</caption>" in first
    assert "<caption>From one to two: totals of one step</caption>" in second
    gemm = "cuBLAS GEMM bf16 · 64x8x64 · NNT"
    assert cells(first) == [
        ["= same", gemm, "40.0 µs", "40.5 µs", "+500 ns+1 %"],
        ["− vanished", "mul (ATen, vectorized)", "20.0 µs", "–", "−20.0 µs"],
    ]
    assert cells(second) == [
        ["GPU busy", "60.0 µs", "40.5 µs", "−19.5 µs−32 %"],
        ["GPU time from first start to last end", "70.0 µs", "40.5 µs", "−29.5 µs−42 %"],
        ["sum of kernel times", "60.0 µs", "40.5 µs", "−19.5 µs−32 %"],
        ["GPU activities", "2", "1", "−1"],
        ["CUDA calls that launch GPU work", "2", "1", "−1"],
        ["all CUDA calls", "2", "1", "−1"],
        ["operators and regions", "2", "1", "−1"],
        ["CPU time", "80.0 µs", "80.0 µs", "0"],
        ["bytes moved", "768 bytes", "–", "–"],
    ]


def test_a_group_is_one_row_with_its_sums() -> None:
    before, after = steps((GELU, 4), (MUL, 20)), steps((FUSED, 12))
    (row,) = cells(diff_of({"one": before, "two": after}, "c").split("</table>")[0])
    assert row[0] == "→ replaced"
    assert row[1].startswith("GELU (ATen, vectorized)mul (ATen, vectorized)→ ")
    assert row[2:] == ["24.0 µs", "12.0 µs", "−12.0 µs−50 %"]


def test_a_kernel_that_overlaps_is_told_and_the_sum_is_not_the_busy_time() -> None:
    overlapping = steps((GEMM, 60), (MUL, 20))  # the second starts 50 us after the first
    first, second = diff_of({"one": steps((GEMM, 40), (MUL, 20)), "two": overlapping}, "c").split("</table>")[:2]
    assert cells(first)[1][2:] == ["20.0 µs", "20.0 µsof it 10.0 µs overlapping the kernel before", "0"]
    assert cells(second)[:3] == [
        ["GPU busy", "60.0 µs", "70.0 µs", "+10.0 µs+17 %"],
        ["GPU time from first start to last end", "70.0 µs", "70.0 µs", "0"],
        ["sum of kernel times", "60.0 µs", "80.0 µs", "+20.0 µs+33 %"],
    ]


def test_no_difference_is_made_by_arithmetic() -> None:
    (row,) = cells(diff_of({"a": steps((GELU, 0.1), (MUL, 0.2)), "b": steps((FUSED, 0.3))}, "c").split("</table>")[0])
    assert row[2:] == ["300 ns", "300 ns", "0"]


def test_new_work_and_the_whole_step_without_a_label() -> None:
    first, second = diff_of({"one": steps((ADD, 3)), "two": steps((ADD, 3), (GEMM, 12))}, "c").split("</table>")[:2]
    assert [row[0] for row in cells(first)] == ["= same", "+ new"]
    assert cells(first)[1][2:] == ["–", "12.0 µs", "+12.0 µs"]
    assert ["CPU time", "100 µs", "100 µs", "0"] in cells(second)
    with pytest.raises(TraceError, match="no annotation 'other'"):
        diff_of({"one": steps((ADD, 3)), "two": steps((ADD, 3))}, "c", labels=("", "other"))


def test_bytes_of_what_only_the_caller_knows() -> None:
    known, open_ = steps((MUL, 20), dims=[[8, 4], [8, 4]]), steps((FUSED, 12), (MUL, 2))

    def moved(work: tuple[StepWork, StepWork]) -> list[str]:
        return cells(diff_of({"one": known, "two": open_}, "c", work=work).split("</table>")[1])[-1]

    assert moved((None, None)) == ["bytes moved", "384 bytes", "–", "–"]
    assert moved((None, {0: (0, 100)})) == ["bytes moved", "384 bytes", "at least 100 bytes", "–"]
    assert moved((None, {0: (0, 100), 1: (0, 92)})) == ["bytes moved", "384 bytes", "192 bytes", "−192 bytes−50 %"]


def test_a_difference_within_the_spread_is_called_so() -> None:
    def steps_of(*lasting: float) -> Trace:
        listed = []
        for place, lasts in enumerate(lasting):
            listed += [events.step(place, 1000.0 * place, 100), events.launch(place + 1, 1000.0 * place + 10)]
            listed += [events.kernel(GEMM, place + 1, 1000.0 * place + 50, lasts)]
        return read_trace(events.trace_bytes(*listed))

    first, second = diff_of({"a": steps_of(10, 20, 30), "b": steps_of(26, 27, 28)}, "c").split("</table>")[:2]
    assert cells(first) == [
        ["= same", "cuBLAS GEMM bf16 · 64x8x64 · NNT", "20.0 µs", "27.0 µs", "+7.00 µswithin the spread"]
    ]
    assert cells(second)[0] == [
        "GPU busy",
        "20.0 µs10.0 to 30.0 µs",
        "27.0 µs26.0 to 28.0 µs",
        "+7.00 µswithin the spread",
    ]
    first, _ = diff_of({"a": steps_of(10, 20, 24), "b": steps_of(26, 27, 28)}, "c").split("</table>")[:2]
    assert cells(first)[0][4] == "+9.00 µs+50 %"


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def test_two_recordings(device: Device) -> None:
    save_all(device.root, sample("mlp/compiled"), trace=samples.trace_json(name="other", kernels=(1, 1, 1)))
    content = diff_table(device, {"eager": "mlp/eager", "compiled": "mlp/compiled"}, "c")
    assert content.count('role="region"') == 2
    first, second = content.split("</table>")[:2]
    assert cells(first) == [
        ["→ replaced", "gemmgemm→ other", "20.0 µs", "10.0 µs", "−10.0 µs−50 %"],
        ["= same", "fill of memory (Device)", "4.00 µs", "4.00 µs", "0"],
    ]
    assert ["CPU time", "80.0 µs", "80.0 µs", "0"] in cells(second)
    assert ["bytes moved", "at least 64 bytes", "at least 64 bytes", "–"] in cells(second)


def test_no_recording_no_step_no_kernel(device: Device) -> None:
    for before, after in (("mlp/eager", "mlp/liger"), ("mlp/liger", "mlp/eager")):
        with pytest.raises(NotRecorded, match="make record CHAPTER=mlp"):
            diff_table(device, {"a": before, "b": after}, "c")
    good = steps((GEMM, 1))
    no_step = read_recorded_trace(events.trace_bytes(events.launch(1, 0), events.kernel("k", 1, 5, 5)))
    no_kernel = read_trace(events.trace_bytes(events.step(2, 0, 100)))
    for bad, message in ((no_step, "no active steps"), (no_kernel, "no GPU kernels")):
        for one, other in ((good, bad), (bad, good)):
            with pytest.raises(TraceError, match=message):
                diff_of({"a": one, "b": other}, "c")


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_names(device: Device, name: str) -> None:
    save_all(device.root, sample("mlp/compiled", label=name), trace=samples.trace_json(name=name, op=name, label=name))
    for before, after in (("mlp/eager", "mlp/compiled"), ("mlp/compiled", "mlp/eager")):
        assert_only_text(diff_table(device, {name: before, f"{name} again": after}, name), name)
