"""Who waits for whom over all steps: exact on events written by hand."""

from __future__ import annotations

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits
from kinetoscope.report.waiting import gaps_html, gpu_busy_us, waiting_html, waits_per_step
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import kernel, launch, op, step, trace_bytes
from tests.tool.report.samples import Page, traced


def test_the_four_parts() -> None:
    """The CPU waits 40..90, the GPU works 30..70 and 80..85, of 100 us."""
    waits = waits_per_step(Facts(traced()))
    assert waits == Waits(both_busy_us=10, only_cpu_us=40, only_gpu_us=35, neither_us=15)
    assert (waits.step_us, gpu_busy_us(waits)) == (100, 45)


def test_the_last_step_lasts_until_the_gpu_is_done() -> None:
    trace = read_trace(
        trace_bytes(
            step(1, 0, 50),
            op("aten::mm", 1, 5),
            step(2, 50, 50),
            launch(1, 60, 5),
            kernel("k", 1, 80, 100),
            kernel("k", None, 20, 30),
        )
    )
    waits = waits_per_step(Facts(trace))
    assert waits == Waits(both_busy_us=25, only_cpu_us=25, only_gpu_us=40, neither_us=0)
    assert waits.step_us == 90


def test_the_bar_says_the_same_in_words() -> None:
    found = Page(waiting_html(Waits(10, 40, 35, 15), 2))
    assert "CPU and GPU work 10 %, only the GPU works 35 %, only the CPU works 40 %, neither works 15 %" in found.of(
        "aria-label"
    )
    assert found.of("x")[::2] == ["0.000%", "10.000%", "45.000%", "85.000%"]
    assert "only the CPU works 40.0 µs, 40.0 %" in found.text


def test_gaps_by_cause() -> None:
    facts = Facts(traced())
    text = Page(gaps_html(facts)).text
    for cause, us in facts.gaps_us.items():
        assert (cause in text) == bool(us)
    assert sum(facts.gaps_us.values()) == 55
    assert gaps_html(Facts(read_trace(trace_bytes(step(1, 0, 100), op("aten::mm", 1, 5))))) == ""
