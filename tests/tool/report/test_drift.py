"""Steps that get longer and longer are named with what grows; noise, a single slow step and a jump are not."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.report.drift import drift_text
from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.traces import written
from tests.tool.events import Event, kernel, launch, op, step
from tests.tool.report.samples import diagnosed

Of = Callable[[int], float]


def steps(
    count: int,
    *,
    gpu_us: Of,
    idle_us: Of = lambda _: 0.0,
    kernels: Callable[[int], int] = lambda _: 1,
    grows: bool = False,
) -> Trace:
    """Steps that end when their kernels do, after some idle time; `grows`: with a grid of their own."""
    events: list[Event] = []
    at, first = 0.0, 1
    for number in range(count):
        start = at + idle_us(number)
        begin = start + 20.0
        events += [op("aten::mm", start, 15.0)]
        for _ in range(kernels(number)):
            grid = [4 + number if grows else 4, 2, 1]
            events += [launch(first, start + 1.0), kernel("gemm", first, begin, gpu_us(number), grid=grid)]
            begin, first = begin + gpu_us(number), first + 1
        events.append(step(number, at, begin - at))
        at = begin
    return written(*events)


def ramp(count: int, low_us: float = 1000.0, high_us: float = 1400.0) -> Of:
    return lambda number: low_us + (high_us - low_us) * number / (count - 1)


def text(trace: Trace) -> str:
    return drift_text(Facts(trace))


def test_kernels_that_have_more_and_more_to_do() -> None:
    """Of 100 steps of 1,020 to 1,420 us, the middle of the first 33 is number 16, of the last 83."""
    trace = steps(100, gpu_us=ramp(100), grows=True)
    assert text(trace) == (
        "A step takes longer and longer: 1.08 ms in the first third of the steps, 1.36 ms in the last. The kernels "
        "have more to do: as many run, with other sizes."
    )
    assert headline(diagnosed(trace)).startswith(
        "A step takes 1.22 ms and the GPU works 98 % of it. A step takes longer and longer: 1.08 ms in the first third"
    )


def test_the_same_kernels_take_longer() -> None:
    cause = "The same kernels take longer: lower clocks, another program on the GPU, or other data in the same grids."
    assert text(steps(100, gpu_us=ramp(100))).endswith(cause)


def test_more_and_more_kernels() -> None:
    trace = steps(30, gpu_us=lambda _: 100.0, kernels=lambda number: 10 + number // 3)
    assert text(trace).endswith("They run more kernels: 11 in the first third, 18 in the last.")


def test_the_gpu_is_idle_for_longer_and_longer() -> None:
    trace = steps(30, gpu_us=lambda _: 500.0, idle_us=ramp(30, 0.0, 400.0))
    assert text(trace) == (
        "A step takes longer and longer: 582 µs in the first third of the steps, 858 µs in the last. The kernels do "
        "not: the GPU is idle longer."
    )


def test_a_cache_that_grows_is_expected() -> None:
    """Attention takes 100 us for the first of 30 tokens, and 20 us more for each further one."""
    events: list[Event] = []
    at = 0.0
    for number in range(30):
        first, attention_us = 3 * number + 1, 100.0 + 20.0 * number
        cached = [1, 8, 100 + number, 64]
        events += [
            step(number, at, attention_us + 40.0),
            op("aten::embedding", at + 1, 5.0, dims=[[32000, 64], [1, 1]]),
            launch(first, at + 2),
            kernel("indexSelect", first, at + 8, 2.0),
            op("aten::scaled_dot_product_attention", at + 8, 5.0, dims=[[1, 8, 1, 64], cached, cached]),
            launch(first + 1, at + 9),
            kernel("pytorch_flash::flash_fwd_splitkv_kernel<x>", first + 1, at + 15, attention_us),
            op("aten::argmax", at + 15, 5.0),
            launch(first + 2, at + 16),
            kernel("ArgMaxOps", first + 2, at + 20 + attention_us, 2.0),
        ]
        at += attention_us + 40.0
    assert text(written(*events)) == (
        "A token takes longer and longer: 230 µs in the first third of the tokens, 630 µs in the last. This is "
        "expected where a cache grows, because attention reads it for each token."
    )


@pytest.mark.parametrize(
    ("in_operator", "cause"),
    [(True, "The operators take longer."), (False, "The operators do not: code outside does.")],
)
def test_a_cpu_that_takes_longer_and_longer(in_operator: bool, cause: str) -> None:
    events: list[Event] = []
    at = 0.0
    for number in range(20):
        us = 1000.0 + 20.0 * number
        events += [step(number, at, us), op("aten::mm", at, us - 10.0 if in_operator else 500.0)]
        at += us
    assert text(written(*events)) == (
        f"A step takes longer and longer: 1.05 ms in the first third of the steps, 1.33 ms in the last. {cause}"
    )


def with_noise(seed: int, spread: float) -> Of:
    rng = Random(seed)
    return lambda _: 1000.0 * rng.lognormvariate(0.0, spread)


NOISE: dict[str, tuple[int, Of]] = {
    "none": (100, lambda _: 1000.0),
    "a ramp of 8 %": (100, ramp(100, high_us=1080.0)),
    "shorter and shorter": (100, ramp(100, 1400.0, 1000.0)),
    "nine steps": (9, ramp(9)),
    "a slow step": (30, lambda number: 9000.0 if number == 29 else 1000.0 + number / 100),
    "up and down": (60, lambda number: 1000.0 + 20.0 * min(number, 60 - number)),
    "every fourth step": (40, lambda number: 1400.0 if number % 4 == 3 else 1000.0),
}


@pytest.mark.parametrize(("count", "gpu_us"), NOISE.values(), ids=NOISE)
def test_what_is_no_drift(count: int, gpu_us: Of) -> None:
    assert text(steps(count, gpu_us=gpu_us)) == ""


@pytest.mark.parametrize("count", [10, 19, 20, 50])
def test_noise_is_no_drift(count: int) -> None:
    assert not any(text(steps(count, gpu_us=with_noise(seed, 0.2))) for seed in range(100))


def test_a_ramp_beneath_noise_is_a_drift() -> None:
    noise = with_noise(1, 0.05)
    rising = ramp(100)
    assert text(steps(100, gpu_us=lambda number: noise(number) * rising(number) / 1000.0)) != ""


def test_a_long_first_step_is_no_part_of_the_time_of_a_step() -> None:
    """20 ms of GPU work in the first of 31 steps would raise the mean by 0.6 ms, to about a step of its own."""
    rising = ramp(31, 1020.0, 1620.0)
    trace = steps(31, gpu_us=lambda number: 20_000.0 if number == 0 else rising(number))
    assert headline(diagnosed(trace)).startswith(
        "A step takes 1.36 ms and the GPU works 99 % of it. A step takes longer and longer: 1.15 ms in the first third "
        "of the steps, 1.55 ms in the last. The same kernels take longer"
    )
