"""Who works when: exact on events written by hand."""

from __future__ import annotations

from snippets.lab.report.waiting import Waiting, waiting
from snippets.lab.trace.kineto import read_trace
from tests.lab.events import annotation, kernel, launch, op, step, trace_bytes
from tests.lab.report.samples import traced


def test_the_four_parts() -> None:
    """CPU 10..40, GPU 30..70 and 80..85, of 100 us."""
    assert waiting(traced()) == Waiting(both_busy_us=10, only_gpu_us=35, only_cpu_us=20, neither_us=35)


def test_a_wait_inside_an_operator_is_no_work() -> None:
    trace = read_trace(
        trace_bytes(step(1, 0, 100), op("aten::item", 10, 80), launch(1, 20, 60, name="cudaStreamSynchronize"))
    )
    assert waiting(trace) == Waiting(both_busy_us=0, only_gpu_us=0, only_cpu_us=20, neither_us=80)


def test_two_threads_are_one_cpu() -> None:
    trace = read_trace(trace_bytes(step(1, 0, 100), op("a", 10, 30), op("b", 20, 40, tid=7), annotation("c", 0, 100)))
    assert waiting(trace) == Waiting(both_busy_us=0, only_gpu_us=0, only_cpu_us=50, neither_us=50)


def test_the_last_step_lasts_until_the_gpu_is_done() -> None:
    trace = read_trace(
        trace_bytes(
            step(1, 0, 50), step(2, 50, 50), launch(1, 60, 5), kernel("k", 1, 80, 100), kernel("k", None, 20, 30)
        )
    )
    parts = waiting(trace)
    assert parts == Waiting(both_busy_us=0, only_gpu_us=65, only_cpu_us=2.5, neither_us=22.5)
    assert (parts.step_us, parts.gpu_busy_us) == (90, 65)
