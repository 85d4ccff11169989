"""The steps of a rank on its GPU: their parts, and why the GPU is idle."""

from __future__ import annotations

from typing import Any

from kinetoscope.job.windows import Window, windows_of
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import kernel, launch, op, step, trace_bytes

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def windows(*events: Any) -> tuple[list[Window], list[tuple[int, int]]]:
    return windows_of(read_trace(trace_bytes(*events)).steps)


def test_a_step_lasts_from_the_end_of_the_step_before() -> None:
    """Launches run ahead; the first step's start on the GPU is that of its work, as this was launched long before."""
    found, exposed = windows(
        step(1, 0, 100), launch(1, 10), launch(2, 20), step(2, 100, 100), launch(3, 110),
        kernel("gemm", 1, 200, 300), kernel(ALL_REDUCE, 2, 400, 200, stream=9), kernel("gemm", 3, 650, 50),
    )  # fmt: skip
    assert exposed == [(500_000, 600_000)]
    assert found == [
        Window(1, 200_000, 600_000, 300_000, 100_000, 100_000, 0, 0, 0),
        Window(2, 600_000, 700_000, 50_000, 0, 0, 50_000, 0, 0),
    ]
    assert found[0].length_ns == 400_000


def test_a_first_step_that_launches_into_an_idle_gpu_starts_on_the_cpu() -> None:
    (found,), _ = windows(step(1, 0, 100), launch(1, 60), kernel("gemm", 1, 70, 30))
    assert (found.start_ns, found.idle_ns, found.launching_ns) == (0, 70_000, 60_000)


def test_idle_time_in_which_the_thread_works_is_launching() -> None:
    """2,000 us between two kernels: the thread runs an operator every 200 us until the launch."""
    events = [op("aten::view", 110.0 + 200 * number, 5.0) for number in range(10)]
    (found,), _ = windows(
        step(1, 0, 3000), launch(1, 50), *events, launch(2, 2090), kernel("a", 1, 60, 40), kernel("b", 2, 2100, 10)
    )
    assert (found.idle_ns, found.stalled_ns, found.launching_ns) == (2_060_000, 0, 2_040_000)


def test_idle_time_in_which_the_thread_records_nothing_is_a_stall() -> None:
    """From 115 to 2,090 us the program sleeps; then it takes 10 us to launch."""
    (found,), _ = windows(
        step(1, 0, 3000), launch(1, 50), op("aten::view", 110, 5), launch(2, 2090), kernel("a", 1, 60, 40),
        kernel("b", 2, 2100, 10),
    )  # fmt: skip
    assert (found.idle_ns, found.stalled_ns, found.launching_ns) == (2_060_000, 1_975_000, 65_000)


def test_idle_time_after_a_launch_is_a_stall() -> None:
    """The second kernel was launched at 60 us and waits until 500 us for something that is not in the trace."""
    (found,), _ = windows(
        step(1, 0, 100), launch(1, 50), launch(2, 60), kernel("a", 1, 60, 40), kernel("b", 2, 500, 10)
    )
    assert (found.idle_ns, found.stalled_ns, found.launching_ns) == (460_000, 400_000, 50_000)


def test_idle_time_without_a_launch_is_not_blamed_on_launching() -> None:
    (found,), _ = windows(kernel("a", None, 60, 40), kernel("b", None, 500, 10))
    assert (found.idle_ns, found.stalled_ns, found.launching_ns) == (400_000, 400_000, 0)
