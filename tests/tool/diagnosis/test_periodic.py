"""What happens in some of the steps counts by its mean; one slow step does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.per_step import usual, winsorized_mean
from kinetoscope.trace.text import slow_steps
from tests.tool.diagnosis.traces import (
    BY_NAME,
    DOWNLOAD,
    Before,
    cannot_tell,
    copied,
    found,
    function,
    looped,
    nothing,
    without_gpu,
    written,
)
from tests.tool.events import Event, annotation, kernel, launch, op, step

FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def call(name: str, start: float, duration: float) -> Event:
    return {**launch(None, start, duration), "name": name}


@pytest.mark.parametrize(
    ("times", "mean", "taken"),
    [
        ([7.0], 7.0, 7.0),
        ([1.0, 9.0], 1.0, 5.0),
        ([1.0, 2.0, 90.0], 5 / 3, 2.0),
        ([1.0] * 9 + [101.0], 1.0, 1.0),
        ([1.0] * 8 + [101.0] * 2, 21.0, 21.0),
        ([0.0] * 6 + [40.0, 60.0], 10.0, 10.0),
    ],
)
def test_the_longest_time_counts_as_the_second_longest(times: list[float], mean: float, taken: float) -> None:
    assert winsorized_mean(times) == pytest.approx(mean)
    assert usual(times) == pytest.approx(taken)


def test_in_how_many_steps_most_of_the_time_is() -> None:
    assert slow_steps([0.0, 0.0, 0.0, 40.0] * 300) == ", most of it in 300 of 1,200 steps"
    for even in ([1.0, 1.0, 1.0], [1.0, 2.0], [0.0, 0.0], [10.0, 10.0, 10.0, 25.0]):
        assert slow_steps(even) == ""


def fetching(us: Callable[[int], float]) -> Before:
    return lambda number, at: (us(number), [annotation(FETCH, at, us(number))])


@pytest.mark.parametrize("wait", ["cudaDeviceSynchronize", "hipDeviceSynchronize", "urQueueFinish"])
def test_a_loader_that_stalls_every_third_step(wait: str) -> None:
    trace = written(*looped(9, fetching(lambda number: 30_000.0 if number % 3 == 2 else 50.0), wait=wait))
    for each in (trace, without_gpu(trace)):
        finding = found(BY_NAME["loader-stall"], each)
        assert finding.title == "Fetching a batch takes 10.0 ms per step (50 %), most of it in 3 of 9 steps"
        assert finding.saving_us_per_step == finding.evidence_us_per_step == 10_033.333
        assert [span.duration_us for span in finding.evidence[:4]] == [30_000.0] * 3 + [50.0]


def test_a_stall_of_another_length_counts_as_the_shorter() -> None:
    trace = written(*looped(12, fetching(lambda number: {5: 30_000.0, 11: 50_000.0}.get(number, 50.0))))
    assert found(BY_NAME["loader-stall"], trace).saving_us_per_step == 5041.667


@pytest.mark.parametrize("steps", [12, 100])
def test_one_stall_is_no_finding(steps: int) -> None:
    """It may be one of every Nth step if the loader has workers."""
    events = looped(steps, fetching(lambda number: 900_000.0 if number == 7 else 50.0))
    unable = cannot_tell(BY_NAME["loader-stall"], written(*events))
    assert unable.reason == f"one of {steps} fetches takes 900 ms: with N workers, it may be every Nth"
    single = [{**event, "name": event["name"].replace("_Multi", "_Single")} for event in events]
    assert nothing(BY_NAME["loader-stall"], written(*single))


@pytest.mark.parametrize(("stalls", "saving_us"), [((1, 3, 5), 12_000.0), ((3,), 0.0)])
def test_a_loader_that_stalls_between_steps(stalls: tuple[int, ...], saving_us: float) -> None:
    """Of six pauses of 30 ms, some have a fetch of 24 ms, the others of 0.1 ms."""
    events = looped(7, lambda _, at: (0.0, []), name="train", pause_us=30_000.0)
    for number in range(6):
        us = 24_000.0 if number in stalls else 100.0
        events.append(annotation(FETCH, 10_025.0 + 40_025.0 * number + 5.0, us))
    if not saving_us:
        assert nothing(BY_NAME["loader-stall"], written(*events))
    else:
        finding = found(BY_NAME["loader-stall"], written(*events))
        assert finding.title == "Fetching a batch takes 12.1 ms between steps of 10.0 ms"
        assert finding.saving_us_per_step == 12_050.0


def logging(times: tuple[int, ...]) -> Before:
    """In these steps, the CPU reads a value for 30 us and writes a file for 19,970 us."""

    def before(number: int, at: float) -> tuple[float, list[Event]]:
        reads = [op("aten::item", at + 5.0, 30.0), call("cudaStreamSynchronize", at + 10.0, 20.0)]
        return (20_000.0, reads) if number in times else (0.0, [])

    return before


def test_logging_every_fifth_step() -> None:
    finding = found(BY_NAME["slow-cpu-code"], written(*looped(20, logging((4, 9, 14, 19)), wait="")))
    assert finding.title == (
        "The GPU waits 4.00 ms (29 % of the step) in 0.2 long gaps per step, most of it in 4 of 20 steps: 0 µs in "
        "operators and calls, 4.00 ms outside"
    )
    # Of each gap of 20,020 us, 20 us are a wait.
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (4004.0, 4000.0)


def test_the_function_of_every_fifth_step_is_named() -> None:
    starts = [10_025.0 * 4, 10_025.0 * 9 + 20_000.0]
    functions = [function("log.py(7): write", start + 50.0, 19_900.0) for start in starts]
    finding = found(BY_NAME["slow-cpu-code"], written(*looped(10, logging((4, 9))), functions=functions))
    assert (finding.where, finding.evidence[0].duration_us) == ("log.py(7): write", 19_900.0)


def test_slow_code_of_one_step_is_no_finding() -> None:
    assert nothing(BY_NAME["slow-cpu-code"], written(*looped(20, logging((4,)))))


def saving(number: int, at: float) -> tuple[float, list[Event]]:
    """Every fourth step is a checkpoint: a copy of 8 ms to the host, then 52 ms of Python."""
    if number % 4 != 3:
        return 0.0, []
    copy = [
        op("aten::copy_", at, 8010.0, external=900 + number),
        launch(900 + number, at + 5.0, 5.0, name="cudaMemcpyAsync", external=900 + number),
        copied(DOWNLOAD, 900 + number, at + 10.0, 7990.0, 100_000_000),
        call("cudaStreamSynchronize", at + 10.0, 7995.0),
    ]
    return 60_000.0, copy


def test_a_checkpoint_every_fourth_step() -> None:
    trace = written(*looped(12, saving))
    slow = found(BY_NAME["slow-cpu-code"], trace)
    assert slow.title.startswith("The GPU waits 13.0 ms (52 % of the step) in 0.25 long gaps per step")
    assert slow.saving_us_per_step == 13_002.5  # from 8,000 us on until the kernel at 60,020, less 10 us of waiting
    assert found(BY_NAME["exposed-copies"], trace).saving_us_per_step == 7990.0 / 4


def test_an_allocation_every_fourth_step() -> None:
    def before(number: int, at: float) -> tuple[float, list[Event]]:
        return (8000.0, [call("cudaHostAlloc", at, 7000.0)]) if number % 4 == 3 else (0.0, [])

    finding = found(BY_NAME["allocator-in-step"], written(*looped(12, before)))
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (1750.0, 1750.0)


def test_steps_do_not_get_shorter_than_their_gpu_work_in_the_mean() -> None:
    """The CPU runs ahead for two steps of 100 us; the GPU needs 400 us for each of the three."""
    steps = [step(0, 0.0, 100.0), step(1, 100.0, 100.0), step(2, 200.0, 1000.0)]
    launches = [launch(number + 1, 100.0 * number, 5.0) for number in range(3)]
    kernels = [kernel("k", number + 1, 400.0 * number + 5.0, 400.0) for number in range(3)]
    assert Facts(written(*steps, *launches, *kernels)).periodic_us([0.0, 600.0, 600.0]) == 0.0
    longer = Facts(written(*steps, *launches, *kernels[:2]))
    assert longer.periodic_us([0.0, 600.0, 600.0]) == 133.333
    assert longer.periodic_us([0.0, 60.0, 600.0]) == 40.0
