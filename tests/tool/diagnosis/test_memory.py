"""What a device's memory holds at its peak."""

from __future__ import annotations

import json

from msgspec.json import encode

from kinetoscope.diagnosis.memory import MemoryPeak, memory_peaks
from kinetoscope.report.document import report_html
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import memory_data
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.diagnosis.traces import function, written
from tests.tool.events import Event, annotation, memory, op, step, trace_bytes
from tests.tool.report.samples import SHAPES, Page, diagnosed

NODE = "autograd::engine::evaluate_function: MmBackward0"
STEP = [
    step(1, 0.0, 1000.0),
    annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0.0, 50.0),
    op("aten::stack", 5.0, 20.0),
    op("aten::linear", 100.0, 50.0),
    op("aten::addmm", 110.0, 20.0),
    op("aten::mse_loss", 160.0, 20.0),
    op(NODE, 300.0, 100.0, tid=7),
    op(NODE, 450.0, 50.0, tid=7),
    annotation("Optimizer.step#AdamW.step", 600.0, 100.0),
    op("aten::_foreach_sqrt", 610.0, 20.0),
]
FUNCTIONS = [function("train.py(3): main", 0.0, 1000.0), function("model.py(9): forward", 90.0, 65.0)]


def block(start: float, size: int, address: int, freed: float | None, **more: int) -> list[Event]:
    released = [] if freed is None else [memory(freed, -size, address, **more)]
    return [memory(start, size, address, **more), *released]


def peak(*events: Event) -> MemoryPeak:
    """The peak of a step with these blocks, without totals."""
    (found,) = memory_peaks(written(*STEP, *events, functions=FUNCTIONS))
    return found


def test_blocks_by_operator_line_and_kind() -> None:
    """All blocks but one are in memory at 620 us, at which the last is allocated."""
    found = peak(
        *block(10.0, 10, 1, None),  # a batch
        *block(115.0, 100, 2, 455.0),  # released before the peak
        *block(116.0, 1000, 3, 990.0),  # outputs, released at the end
        *block(165.0, 4, 5, None),  # the loss
        *block(310.0, 500, 6, 900.0, tid=7),  # released by zero_grad
        *block(320.0, 500, 7, None, tid=7),
        *block(615.0, 2000, 8, None),
        *block(620.0, 200, 9, 650.0),
    )
    assert (found.peak_bytes, found.at_us, found.before_bytes) == (4214, 620.0, None)
    assert found.alive == (
        ("aten::_foreach_sqrt", "train.py(3): main", "optimizer state", 2000, 1),
        ("MmBackward0", "", "gradient", 1000, 2),
        ("aten::linear", "model.py(9): forward", "other", 1000, 1),
        ("aten::_foreach_sqrt", "train.py(3): main", "temporary", 200, 1),
        ("aten::stack", "train.py(3): main", "input", 10, 1),
        ("aten::mse_loss", "train.py(3): main", "other", 4, 1),
    )
    assert found.by_category == {
        "optimizer state": 2000,
        "other": 1004,
        "gradient": 1000,
        "temporary": 200,
        "input": 10,
    }


def test_an_activation_is_released_in_the_backward_pass() -> None:
    """At 310 us a node has its result, and the activation that the next node reads; the address is used again."""
    found = peak(
        *block(115.0, 64, 1, 120.0),
        *block(121.0, 900, 1, 460.0),
        *block(310.0, 50, 2, 470.0, tid=7),
        *block(700.0, 10, 1, None),
    )
    assert (found.peak_bytes, found.at_us) == (950, 310.0)
    assert found.alive == (
        ("aten::linear", "model.py(9): forward", "activation", 900, 1),
        ("MmBackward0", "", "temporary", 50, 1),
    )
    assert peak(*block(115.0, 64, 1, 200.0)).by_category == {"temporary": 64}


def full(
    reserved: int, *more: Event, properties: tuple[Event, ...] = ({"name": "GPU", "totalGlobalMem": 1000},)
) -> Trace:
    """An activation of 300 bytes above 400 from before the trace; PyTorch reserves `reserved`."""
    events = [memory(110.0, 300, 1, total=700, reserved=reserved), memory(310.0, -300, 1, total=400, reserved=reserved)]
    return read_trace(trace_bytes(*STEP, *events, *more, deviceProperties=properties))


def test_blocks_from_before_the_trace() -> None:
    (found,) = memory_peaks(full(800))
    assert (found.peak_bytes, found.before_bytes, found.reserved_bytes, found.total_bytes) == (700, 400, 800, 1000)
    assert json.loads(encode(memory_data([found]))) == {
        "device": "GPU 0",
        "peak_bytes": 700,
        "at_us": 110.0,
        "reserved_bytes": 800,
        "total_bytes": 1000,
        "before_trace_bytes": 400,
        "bytes_by_category": {"activation": 300},
        "alive": [{"op": "aten::linear", "where": "", "category": "activation", "bytes": 300, "count": 1}],
        "other_devices": [],
    }
    assert memory_data([]) is None


def test_the_headline_says_when_a_gpu_is_nearly_full() -> None:
    assert "nearly full" not in headline(diagnosed(full(899), SHAPES))
    assert "nearly full" not in headline(diagnosed(full(900, properties=()), SHAPES)), "of a GPU of unknown size"
    made = diagnosed(full(900), SHAPES)
    sentence = (
        "The memory of GPU 0 is nearly full: PyTorch holds 900 bytes of 1.00 kB; the largest part of the peak, 57 %, "
        "is of blocks from before the trace."
    )
    assert headline(made).endswith(f" {sentence}")
    found = Page(report_html(made))
    assert found.text.count(sentence) == 2, "in the headline and above the curve"
    assert "blocks from before the trace – unknown 400 bytes 57.1 %" in found.text
    assert "aten::linear – activation 300 bytes 42.9 % 1" in found.text
    assert "Activation: allocated outside of the backward pass, released in it." in found.text
    assert found.open_elements == found.wrong == []


def test_gpus_come_before_the_cpu_and_the_largest_first() -> None:
    more = [memory(120.0, 5000, 9, device=-1), memory(121.0, 701, 9, device=1, total=701)]
    peaks = memory_peaks(full(800, *more))
    assert [each.name for each in peaks] == ["GPU 1", "GPU 0", "CPU"]
    data = memory_data(peaks)
    assert data is not None
    assert [each.device for each in data.other_devices] == ["GPU 0", "CPU"]


def test_events_of_an_old_profiler_have_neither_addresses_nor_totals() -> None:
    found = peak(memory(110.0, 300, None), memory(120.0, 50, None), memory(310.0, -300, None))
    assert (found.peak_bytes, found.at_us, found.before_bytes, found.alive) == (350, 120.0, None, ())
