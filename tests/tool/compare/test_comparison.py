"""The sentence below a comparison: the busy time of the GPU, and a step's time where that changed more."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kinetoscope.compare.compare import compare
from kinetoscope.compare.comparison import SHOWN, change_text, comparison_notes, comparison_parts
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


def test_the_limits_of_a_comparison() -> None:
    result = replace(compare([three_steps(900, 400)], [three_steps(900, 400)]), devices=("A", "B"), left_out=(1, 2))
    assert comparison_notes(result)[:2] == [
        "Different GPUs: A before, B after.",
        "1 steps before and 2 after do other work than most; they count in the totals only.",
    ]


def test_a_slow_step_that_the_test_leaves_out_is_told() -> None:
    """One of six steps takes ten times as long: the mean rises by 150 %, the trimmed mean by nothing."""
    even, slow = (trace_of([[(GEMM, 0.0, us)] for us in [600.0] * 5 + [last]]) for last in (600.0, 6000.0))
    assert comparison_notes(compare([even], [slow]))[0] == (
        "The mean of the GPU's busy time changes by +150.0 %, but the change of +0.0 % is without the longest and the "
        "shortest fifth of the steps: a few steps differ much from the others."
    )
    assert len(comparison_notes(compare([even], [even]))) == 1


def test_one_step_has_no_known_noise() -> None:
    one, other = (trace_of([[(GEMM, 0.0, us)]]) for us in (100.0, 110.0))
    assert change_text(compare([one], [other])) == (
        "Per step the GPU is busy for 10.0 % longer; the noise is unknown, from 1 and 1 steps."
    )


def test_small_changes_are_folded() -> None:
    trace = trace_of([[(f"k{index}", 20.0 * index, 10.0) for index in range(40)]] * 3)
    result = compare([trace], [trace])
    assert len(result.differences) == 40
    assert f"{40 - SHOWN} smaller changes" in comparison_parts(result, ("a", "b"))[1].html
