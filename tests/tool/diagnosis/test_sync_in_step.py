"""The rule about waits for the GPU: each test on a trace with the fault, or on one that only looks like it."""

from __future__ import annotations

import msgspec
import pytest

from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.traces import (
    BY_NAME,
    DOWNLOAD,
    STACK,
    cannot_tell,
    copied,
    found,
    nothing,
    work,
    written,
)
from tests.tool.events import Event, annotation, kernel, launch, op, step
from tests.tool.report.samples import diagnosed


def waiting(*, reads: bool) -> Trace:
    """Three steps of two kernels, between which the CPU reads a value of the GPU, or not."""
    events = []
    for number in range(3):
        start, ids = 1000.0 * number, 10 * number
        events += [step(number, start, 1000.0), *work(ids + 1, start, start + 10.0, 490.0)]
        if reads:
            events += [
                op("aten::item", start + 20.0, 500.0),
                op("aten::_local_scalar_dense", start + 21.0, 498.0, external=ids + 2),
                launch(ids + 2, start + 25.0, 5.0, name="cudaMemcpyAsync", external=ids + 2),
                copied(DOWNLOAD, ids + 2, start + 500.0, 2.0),
                launch(None, start + 31.0, 480.0, name="cudaStreamSynchronize"),
            ]
        later = start + (600.0 if reads else 500.0)
        events += work(ids + 3, start + (530.0 if reads else 30.0), later, start + 1000.0 - later)
    return written(*events, functions=STACK)


def test_sync_in_step() -> None:
    finding = found(BY_NAME["sync-in-step"], waiting(reads=True))
    assert finding.title == "The CPU waits for the GPU 1 time per step, 480 µs, in cudaStreamSynchronize"
    assert finding.where == "aten::item at train.py(12): step"
    assert [span.name for span in finding.evidence] == ["cudaStreamSynchronize"]
    # The GPU is idle for 10 us before the first kernel and 98 us around the copy; the copy of 2 us would go, too.
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (480.0, 110.0)


def test_one_slow_step_does_not_raise_the_saving() -> None:
    """The first of three steps starts 600 us late; without the wait, the other two would be 110 us shorter."""
    trace = waiting(reads=True)
    first = msgspec.structs.replace(trace.steps[0], start_us=-600.0)
    slow = msgspec.structs.replace(trace, steps=(first, *trace.steps[1:]))
    assert found(BY_NAME["sync-in-step"], slow).saving_us_per_step == 110.0


def test_waits_in_numbered_annotations_are_of_one_place() -> None:
    events = []
    for number in range(3):
        start, ids = 1000.0 * number, 10 * number
        events += [step(number, start, 1000.0), *work(ids + 1, start, start + 10.0, 490.0)]
        events += [annotation(f"batch {number}", start + 15.0, 510.0)]
        events += [launch(None, start + 31.0, 480.0, name="cudaStreamSynchronize")]
        events += work(ids + 3, start + 530.0, start + 600.0, 400.0)
    finding = found(BY_NAME["sync-in-step"], written(*events))
    assert finding.where == "cudaStreamSynchronize in batch #"
    assert finding.title == "The CPU waits for the GPU 1 time per step, 480 µs, in cudaStreamSynchronize"


def test_idle_time_of_steps_without_a_wait_is_not_its_fault() -> None:
    """One of five steps waits for 480 us, and its GPU is idle for 110 us; in the others, it is idle for 510 us."""
    events = []
    for number in range(5):
        start, reads = 1000.0 * number, number == 2
        events += [step(number, start, 1000.0), *work(2 * number + 1, start, start + 10.0, 490.0 if reads else 90.0)]
        events += work(2 * number + 2, start + (515.0 if reads else 530.0), start + 600.0, 400.0)
        events += [launch(None, start + 25.0, 480.0, name="cudaStreamSynchronize")] * reads
    finding = found(BY_NAME["sync-in-step"], written(*events))
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (96.0, 22.0)


def test_sync_in_step_mended() -> None:
    assert nothing(BY_NAME["sync-in-step"], waiting(reads=False))


def test_a_last_wait_is_no_fault() -> None:
    last = launch(None, 600.0, 390.0, name="cudaDeviceSynchronize")
    assert nothing(BY_NAME["sync-in-step"], written(step(1, 0.0, 1000.0), *work(1, 0.0, 300.0, 690.0), last))


def test_a_wait_in_which_the_trace_shows_no_gpu_work() -> None:
    wait = launch(None, 110.0, 300.0, name="hipMemcpyWithStream")
    trace = written(step(1, 0.0, 1000.0), *work(1, 0.0, 10.0, 90.0), wait, *work(2, 420.0, 430.0, 570.0))
    unable = cannot_tell(BY_NAME["sync-in-step"], trace)
    assert unable.reason == "in 300 µs of the waits of a step no GPU work was recorded: it may be older"


@pytest.mark.parametrize(("ends", "claimed"), [(150.0, 60.0), (180.0, 90.0), (400.0, 110.0)])
def test_a_wait_claims_little_after_the_last_work(ends: float, claimed: float) -> None:
    """The GPU works until 100 us, the wait begins at 60 and ends later; 10 us on, the next kernel starts."""
    wait = launch(None, 60.0, ends - 60.0, name="cudaStreamSynchronize")
    kernels = [*work(1, 0.0, 0.0, 100.0), *work(2, ends + 1.0, ends + 10.0, 990.0 - ends)]
    finding = found(BY_NAME["sync-in-step"], written(step(1, 0.0, 1000.0), wait, *kernels))
    assert finding.saving_us_per_step == claimed


def replayed(pause_us: float, *, operators: bool = False, annotated: bool = False) -> Trace:
    """Eight CUDA graphs of 2,000 us, each after the wait for the one before and a pause.

    `operators`: copies before each launch and a read as the wait. Each replay is idle for 8 us before the GPU starts,
    10 us until the CPU learns of its end, and then for the pause and 12 us more.
    """
    events: list[Event] = []
    for number in range(8):
        at, first = (2035.0 + pause_us) * number, 10 * number + 1
        events += [annotation("decode", at, 2030.0 + pause_us)] if annotated else []
        events += [op("aten::copy_", at, 5.0), op("aten::item", at + 16.0, 2018.0)] if operators else []
        events += [launch(first, at + 5.0, 7.0, name="cudaGraphLaunch")]
        events += [kernel(f"k{part}", first, at + 20.0 + 500.0 * part, 500.0) for part in range(4)]
        events += [launch(None, at + 17.0, 2013.0, name="cudaStreamSynchronize")]
    return written(*events)


@pytest.mark.parametrize("operators", [False, True], ids=["calls alone", "operators"])
@pytest.mark.parametrize("annotated", [False, True], ids=["replays", "annotated"])
def test_a_wait_claims_no_time_in_which_nothing_is_recorded(*, operators: bool, annotated: bool) -> None:
    """For 5,000 us between a replay and the next the trace shows nothing: 0.2 % of a step is idle time in waits."""
    trace = replayed(5000.0, operators=operators, annotated=annotated)
    assert nothing(BY_NAME["sync-in-step"], trace)
    slow = f"The GPU waits for slow code on the CPU: a fix saves at most {'5.00' if annotated else '5.01'} ms per step"
    unknown = "No rule found why: most of the GPU's idle time is time in which the trace shows nothing."
    assert (slow if operators else unknown) in headline(diagnosed(trace, *RULES))


def test_between_operators_python_may_run_in_a_short_pause() -> None:
    """A pause of 200 us. Without the wait, the CPU launches during the replay, and the GPU continues."""
    assert nothing(BY_NAME["sync-in-step"], replayed(200.0))
    finding = found(BY_NAME["sync-in-step"], replayed(200.0, operators=True))
    assert finding.title == "The CPU waits for the GPU 1 time per step, 2.01 ms, in cudaStreamSynchronize"
    assert finding.saving_us_per_step == 206.25


def test_without_stacks_the_operator_is_named() -> None:
    trace = msgspec.structs.replace(waiting(reads=True), functions=())
    assert found(BY_NAME["sync-in-step"], trace).where == "aten::item"
