"""The start of a GPU's runtime: long calls before the first GPU work, once."""

from __future__ import annotations

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.traces import BY_NAME, PAGEABLE_UPLOAD, cannot_tell, copied, found, looped, nothing, written
from tests.tool.events import Event, kernel, launch, op, step


def call(name: str, start: float, duration: float) -> Event:
    return {**launch(None, start, duration), "name": name}


def whole(*calls: Event) -> Trace:
    """A trace without steps: `calls` in an operator of 700 ms, then five kernels of 9 ms."""
    later = looped(5, lambda _, __: (0.0, []), gpu_us=9000.0, start_us=700_000.0)
    return written(
        op("aten::mm", 0.0, 700_000.0), *calls, *(each for each in later if each["cat"] != "user_annotation")
    )


@pytest.mark.parametrize(
    ("calls", "started"),
    [
        (
            [
                call("cudaFree", 100.0, 270_000.0),
                call("cudaFree", 280_000.0, 400_000.0),
                call("cudaMalloc", 6.9e5, 9e3),
            ],
            "CUDA: 2 calls of 670 ms, the longest cudaFree with 400 ms",
        ),
        (
            [call("hipFree", 100.0, 300_000.0), call("hipModuleLoadData", 310_000.0, 250_000.0)],
            "HIP: 2 calls of 550 ms, the longest hipFree with 300 ms",
        ),
        (
            [call("cuModuleLoadData", 40_000.0 * each, 30_000.0) for each in range(5)],
            "CUDA: 5 calls of 150 ms, the longest cuModuleLoadData with 30.0 ms",
        ),
        (
            [call("zeContextCreate", 100.0, 300_000.0)],
            "the GPU's runtime: 1 call of 300 ms, the longest zeContextCreate with 300 ms",
        ),
    ],
)
def test_a_start(calls: list[Event], started: str) -> None:
    diagnosis = diagnose(whole(*calls))
    assert diagnosis.findings[0].title == f"The trace starts {started}"
    assert "allocator-in-step" not in {finding.rule.name for finding in diagnosis.findings}
    runtime = started.partition(":")[0]
    reason = f"the trace starts {runtime}, and has no later step that is warm"
    assert cannot_tell(BY_NAME["allocator-in-step"], diagnosis.facts.trace).reason == reason


def jobs(durations: list[float]) -> list[Event]:
    """A step of calls of one function, one after another."""
    starts = [sum(durations[:index]) for index in range(len(durations))]
    calls = [call("runFunction - submit_job", at, us) for at, us in zip(starts, durations, strict=True)]
    return [step(7, 0.0, sum(durations)), op("aten::mul", 0.0, sum(durations)), *calls]


LONG = [120_000.0, *[12_000.0] * 19] * 3
UPLOAD = [{**launch(1, 10.0, 2e5), "name": "cudaMemcpyAsync"}, copied(PAGEABLE_UPLOAD, 1, 50.0, 1.99e5)]


@pytest.mark.parametrize(
    "events",
    [
        jobs(LONG),
        [*jobs(LONG), *(kernel("job", None, 130_000.0 + 14_000.0 * each, 9000.0) for each in range(40))],
        [step(0, 0.0, 4e5), *UPLOAD],
        [step(0, 0.0, 4e5), kernel("older", None, 0.0, 1.4e5), call("cudaLaunchKernel", 5.0, 1.4e5)],
        [step(0, 0.0, 4e5), call("cudaDeviceSynchronize", 5.0, 2e5), launch(1, 3e5, 5.0), kernel("k", 1, 3.1e5, 9e4)],
        [step(0, 0.0, 4e5), call("cudaFree", 5.0, 9e4), launch(1, 3e5, 5.0), kernel("k", 1, 3.1e5, 9e4)],
    ],
    ids=["full queue", "full queue and kernels", "upload", "older work", "wait", "short"],
)
def test_no_start(events: list[Event]) -> None:
    assert Facts(written(*events)).start_up == []


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_allocation_in_each_step_is_no_start(steps: int) -> None:
    """A step allocates twice for 150 ms."""

    def before(_: int, at: float) -> tuple[float, list[Event]]:
        return 310_000.0, [call("cudaHostAlloc", at, 150_000.0), call("cudaHostAlloc", at + 155_000.0, 150_000.0)]

    events = looped(steps, before)
    if steps == 1:  # the second of its allocations follows GPU work
        events += [launch(90, 152_000.0, 5.0), kernel("k", 90, 152_010.0, 1000.0)]
    finding = found(BY_NAME["allocator-in-step"], written(*events))
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (300_000.0, 300_000.0)


def test_only_the_step_that_starts_is_cold() -> None:
    """Of two steps that allocate, the first also makes the context."""

    def before(number: int, at: float) -> tuple[float, list[Event]]:
        context = [] if number else [call("cudaStreamCreateWithFlags", at, 300_000.0)]
        return 460_000.0, [*context, call("cudaHostAlloc", at + 300_000.0, 150_000.0)]

    trace = written(*looped(2, before))
    assert found(BY_NAME["first-step"], trace).title.startswith("The trace starts CUDA: 1 call of 300 ms")
    assert found(BY_NAME["allocator-in-step"], trace).evidence_us_per_step == 75_000.0


def test_a_start_before_the_steps_costs_them_nothing() -> None:
    start = [op("aten::mm", 0.0, 700_000.0), call("hipFree", 100.0, 300_000.0)]
    trace = written(*start, *looped(20, lambda _, __: (0.0, []), start_us=700_000.0))
    finding = found(BY_NAME["first-step"], trace)
    assert finding.title == "The trace starts HIP: 1 call of 300 ms, the longest hipFree with 300 ms"
    assert finding.saving_us_per_step == 0.0


def test_a_first_step_that_starts_the_runtime() -> None:
    def before(number: int, at: float) -> tuple[float, list[Event]]:
        return (0.0, []) if number else (600_000.0, [call("cudaFree", at, 500_000.0)])

    trace = written(*looped(10, before))
    assert found(BY_NAME["first-step"], trace).title == (
        "The first step takes 610 ms, the others 10.0 ms. It starts CUDA: 1 call of 500 ms, the longest cudaFree with "
        "500 ms"
    )
    assert nothing(BY_NAME["allocator-in-step"], trace)


def test_the_start_of_a_trace_that_lost_its_kernels() -> None:
    bare = [op("aten::mm", 0.0, 9e5), call("cudaFree", 100.0, 6e5), call("cudaMalloc", 6.1e5, 200.0)]
    facts = Facts(written(*bare, launch(1, 7e5, 2e5), launch(2, 9e5, 5.0)))
    assert [call.name for call in facts.start_up] == ["cudaFree", "cudaLaunchKernel"]
    assert cannot_tell(BY_NAME["allocator-in-step"], facts.trace).reason == "no step has GPU work"


def test_the_start_of_a_process_comes_before_its_own_gpu_work() -> None:
    """Of two merged ranks, the one with the median step starts later, while the other works."""
    mine = looped(3, lambda _, __: (0.0, []), start_us=400_000.0)
    start = call("cudaFree", 50_000.0, 300_000.0)
    theirs = [step(0, 0.0, 5000.0), launch(9, 10.0, 5.0), kernel("k", 9, 20.0, 4000.0, device=1)]
    theirs = [{**event, "pid": 999} if event["pid"] == 412 else event for event in theirs]
    assert [call.name for call in Facts(written(*theirs, start, *mine)).start_up] == ["cudaFree"]
    other = {**start, "pid": 999}
    assert Facts(written(*theirs, other, *mine)).start_up == []


@pytest.mark.parametrize(("next_device", "started"), [(1, ["cudaFree", "cudaMalloc"]), (0, ["cudaFree"])])
def test_each_gpu_of_a_process_starts_once(next_device: int, started: list[str]) -> None:
    """The GPU of a call is that of the next work of its thread."""
    events = [step(0, 0.0, 9e5), call("cudaFree", 5.0, 2e5), launch(1, 3e5, 5.0), kernel("k", 1, 3.1e5, 1000.0)]
    events += [call("cudaMalloc", 4e5, 1.5e5), launch(2, 6e5, 5.0), launch(3, 7e5, 5.0)]
    events += [kernel("k", 2, 6.1e5, 1000.0, device=next_device), kernel("k", 3, 7.1e5, 1000.0, device=1)]
    assert [call.name for call in Facts(written(*events)).start_up] == started
