"""The rule about a GPU that is slow in some steps: it compares only steps that do the same work."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.test_time_rules import several
from tests.tool.diagnosis.traces import BY_NAME, PINNED_UPLOAD, cannot_tell, copied, found, nothing, work, written
from tests.tool.events import Event, annotation, launch, op, step


def test_gpu_slowed() -> None:
    finding = found(BY_NAME["gpu-slowed"], several([1000.0] * 5, gpu_us=[500.0, 510.0, 950.0, 500.0, 505.0]))
    assert finding.title == (
        "In ProfilerStep#2 the same kernels take 1.9 times as long as in other steps; 89.0 µs per step in all"
    )
    assert (finding.where, finding.saving_us_per_step) == ("ProfilerStep#2", 89.0)


def test_a_gpu_that_is_slow_in_half_of_the_steps() -> None:
    finding = found(BY_NAME["gpu-slowed"], several([1000.0] * 4, gpu_us=[400.0, 400.0, 800.0, 800.0]))
    assert finding.title.startswith("In ProfilerStep#3 the same kernels take 2.0 times as long as in other steps")
    assert finding.saving_us_per_step == 200.0


def test_gpu_slowed_mended() -> None:
    assert nothing(BY_NAME["gpu-slowed"], several([1000.0] * 5, gpu_us=[500.0, 510.0, 520.0, 500.0, 505.0]))


def test_other_kernels_cannot_be_compared() -> None:
    steps = [step(n, 1000.0 * n, 900.0) for n in range(3)]
    events = [event for n in range(3) for event in work(n + 1, 1000.0 * n, 1000.0 * n + 10.0, 800.0, grid=[n, 1, 1])]
    assert "same grids" in cannot_tell(BY_NAME["gpu-slowed"], written(*steps, *events)).reason


def of_kinds(
    gpu_us: Sequence[float],
    *,
    shapes: Sequence[object] = (),
    names: Sequence[str] = (),
    inner: Sequence[str] = (),
    uploads: Sequence[int] = (),
) -> Trace:
    """Steps of one kernel with one grid; what else the trace tells of each step's work is given."""
    events: list[Event] = []
    for number, us in enumerate(gpu_us):
        start = 10_000.0 * number
        mark = names[number] if names else f"ProfilerStep#{number}"
        events += [annotation(mark, start, 9000.0)]
        events += [annotation(inner[number], start + 5.0, 50.0)] if inner else []
        if uploads:
            events += [launch(100 + number, start + 6.0, name="cudaMemcpyAsync")]
            events += [copied(PINNED_UPLOAD, 100 + number, start + 10.0, 1.0, uploads[number])]
        matmul, *rest = work(number + 1, start + 10.0, start + 20.0, us)
        dims = shapes[number] if shapes else None
        events += [op("aten::mm", start + 10.0, 10.0, external=number + 1, dims=dims) if shapes else matmul, *rest]
    return written(*events)


PROMPT, TOKEN = [[512, 64], [64, 64]], [[1, 64], [64, 64]]
TWICE = (800.0, 400.0, 400.0, 400.0, 800.0, 400.0, 400.0, 400.0)
KINDS = (0, 1, 1, 1, 0, 1, 1, 1)


@pytest.mark.parametrize(
    "trace",
    [
        of_kinds(TWICE, shapes=[(PROMPT, TOKEN)[kind] for kind in KINDS]),
        of_kinds(TWICE, names=[("prompt", "token")[kind] for kind in KINDS]),
        of_kinds(TWICE, names=[f"serve({(512, 1)[kind]})" for kind in KINDS]),
        of_kinds(TWICE, inner=[("prompt", "token")[kind] for kind in KINDS]),
        of_kinds(TWICE, uploads=[(4096, 8)[kind] for kind in KINDS]),
    ],
    ids=["shapes", "names of steps", "numbers that repeat", "annotations in steps", "uploads"],
)
def test_steps_that_do_other_work_are_not_compared(trace: Trace) -> None:
    """Two prompts among six tokens run the same kernel with the same grid, and take twice as long."""
    assert nothing(BY_NAME["gpu-slowed"], trace)


def test_a_token_is_compared_with_tokens() -> None:
    """Of six tokens one takes twice as long as the others: 4,000 us more in one of eight steps."""
    gpu_us = [8000.0, 4000.0, 4000.0, 8000.0, 8000.0, 4000.0, 4000.0, 4000.0]
    finding = found(BY_NAME["gpu-slowed"], of_kinds(gpu_us, shapes=[(PROMPT, TOKEN)[kind] for kind in KINDS]))
    assert finding.title == (
        "In ProfilerStep#3 the same kernels take 2.0 times as long as in other steps; 500 µs per step in all"
    )


def test_from_three_times_on_only_shapes_tell_that_the_work_is_the_same() -> None:
    gpu_us = [400.0, 2000.0, 400.0, 400.0, 2000.0, 400.0]
    unable = cannot_tell(BY_NAME["gpu-slowed"], of_kinds(gpu_us))
    assert unable.reason == (
        "in ProfilerStep#4 the same kernels take 5.0 times as long, and without shapes it may do other work"
    )
    assert unable.option.startswith("record_shapes=True")
    finding = found(BY_NAME["gpu-slowed"], of_kinds(gpu_us, shapes=[TOKEN] * 6))
    assert (finding.where, finding.saving_us_per_step) == ("ProfilerStep#4", 533.333)
    of_other_sizes = of_kinds(gpu_us, shapes=[PROMPT if us > 400.0 else TOKEN for us in gpu_us])
    assert nothing(BY_NAME["gpu-slowed"], of_other_sizes)
