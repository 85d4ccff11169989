"""The sentence below a comparison: the busy time of the GPU, and a step's time where that changed more."""

from __future__ import annotations

import msgspec
import pytest

from kinetoscope.compare.compare import compare
from kinetoscope.compare.comparison import change_text
from kinetoscope.trace.events import Trace
from tests.tool.runs import GEMM, trace_of, with_steps

LESS = "since the GPU idles less. The profiler lengthens such gaps: time both without it."


def three_steps(step_us: float, busy_us: float) -> Trace:
    """A CPU that takes `step_us` for each step, and a kernel that takes `busy_us`."""
    trace = trace_of([[(GEMM, 0.0, busy_us)]] * 3)
    return with_steps(trace, (msgspec.structs.replace(each, end_us=each.start_us + step_us) for each in trace.steps))


def step_text(before: tuple[float, float], after: tuple[float, float]) -> str:
    text = change_text(compare([three_steps(*before)], [three_steps(*after)]))
    busy, _, step = text.partition("from 3 and 3 steps.")
    assert "GPU" in busy
    return step.strip()


def test_a_step_that_waits_less_or_longer() -> None:
    assert step_text((1000.0, 400.0), (900.0, 400.0)) == (
        f"A step takes 10.0 % less, 1,000.0 us before and 900.0 us after, {LESS}"
    )
    assert step_text((800.0, 400.0), (840.0, 390.0)) == (
        "A step takes 5.0 % longer, 800.0 us before and 840.0 us after, since the GPU idles longer. "
        "The profiler lengthens such gaps: time both without it."
    )


def test_a_cpu_that_ran_ahead_and_no_longer_does() -> None:
    """The step ends with the GPU before, and with the CPU after."""
    assert step_text((300.0, 1000.0), (500.0, 400.0)) == ""
    assert step_text((300.0, 1000.0), (1500.0, 900.0)).startswith("A step takes 50.0 % longer, 1,000.0 us before")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1000.0, 400.0), (981.0, 400.0)),  # 1.9 %
        ((1000.0, 400.0), (800.0, 300.0)),  # half of it is work
        ((1000.0, 400.0), (1000.0, 300.0)),
    ],
)
def test_nothing_to_tell(before: tuple[float, float], after: tuple[float, float]) -> None:
    assert step_text(before, after) == ""
