"""Memory that grows from step to step is named; memory that a step gives back, or takes once, is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.report.headline import headline
from kinetoscope.report.memory_growth import memory_growth_text
from tests.tool.diagnosis.traces import work, written
from tests.tool.events import Event, kernel, launch, memory, op, step
from tests.tool.report.samples import diagnosed

MB = 1_000_000
KEPT = "Something keeps what a step allocates: a list of tensors, or a loss that is summed up with its graph."
Levels = Callable[[int], Sequence[int]]
"""Number of a step -> the bytes allocated after each event in it, in MB."""


def steps(count: int, levels: Levels, *, device: int = 0) -> list[Event]:
    """Steps of 1 ms with a product, and an event of the allocator every 10 us."""
    events: list[Event] = []
    before = 0
    for number in range(count):
        at = 1000.0 * number
        events += [step(number, at, 1000.0), *work(number + 1, at + 5.0, at + 20.0, 900.0)]
        for index, level in enumerate(levels(number)):
            total = level * MB
            given = {"total": total, "reserved": 10_000 * MB, "device": device}
            events.append(memory(at + 100.0 + 10 * index, total - before, 1000 + number, **given))
            before = total
    return events


def text(*events: Event) -> str:
    return memory_growth_text(Facts(written(*events)))


def leak(number: int) -> list[int]:
    """400 MB, 500 more within a step, and 20 more after each."""
    return [900 + 20 * number, 420 + 20 * number]


def test_memory_that_a_loop_keeps() -> None:
    assert text(*steps(11, leak)) == (
        f"The GPU's allocated memory grows by 20.0 MB per step, from 420 MB to 620 MB. {KEPT}"
    )
    assert headline(diagnosed(written(*steps(11, leak)))).endswith(f"from 420 MB to 620 MB. {KEPT}")


def test_the_gpu_whose_memory_grows_most() -> None:
    other = [event for event in steps(11, lambda number: [50 * number + 50], device=1) if event["ph"] == "i"]
    assert "grows by 50.0 MB per step, from 50.0 MB to 550 MB." in text(*steps(11, leak), *other)


def test_a_cache_grows_as_expected() -> None:
    events: list[Event] = []
    for number in range(6):
        at, first = 1000.0 * number, 3 * number + 1
        cached = [1, 8, 100 + number, 64]
        level = (100 + 10 * number) * MB
        events += [
            step(number, at, 1000.0),
            op("aten::embedding", at + 1, 5.0, dims=[[32000, 64], [1, 1]]),
            launch(first, at + 2),
            kernel("indexSelect", first, at + 8, 2.0),
            op("aten::scaled_dot_product_attention", at + 8, 5.0, dims=[[1, 8, 1, 64], cached, cached]),
            launch(first + 1, at + 9),
            kernel("pytorch_flash::flash_fwd_splitkv_kernel<x>", first + 1, at + 15, 800.0),
            op("aten::argmax", at + 15, 5.0),
            launch(first + 2, at + 16),
            kernel("ArgMaxOps", first + 2, at + 820, 2.0),
            memory(at + 10, 10 * MB, 1000 + number, total=level),
        ]
    assert text(*events) == (
        "The GPU's allocated memory grows by 10.0 MB per token, from 100 MB to 150 MB. This is expected "
        "where a cache grows."
    )


STEADY: dict[str, tuple[int, Levels]] = {
    "given back": (11, lambda _: [900, 400]),
    "four steps": (4, leak),
    "once": (11, lambda number: [900, 400 if number < 5 else 800]),
    "every fifth step": (20, lambda number: [400 + 100 * (number // 5)]),
    "up and down": (20, lambda number: [400 + 100 * (number % 5)]),
    "less and less": (11, lambda number: [900 - 20 * number]),
    "hardly": (11, lambda number: [10_000 + 20 * number]),
    "nothing recorded": (11, lambda _: []),
}


@pytest.mark.parametrize(("count", "levels"), STEADY.values(), ids=STEADY)
def test_memory_that_does_not_grow(count: int, levels: Levels) -> None:
    assert text(*steps(count, levels)) == ""


def test_memory_of_the_cpu_is_not_of_a_gpu() -> None:
    assert text(*steps(11, leak, device=-1)) == ""
