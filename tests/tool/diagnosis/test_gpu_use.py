"""How steps use their GPUs: GPUs that work in turns, and copies that no kernel hides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import Finding
from kinetoscope.diagnosis.rules.exposed_copies import RULE as EXPOSED_COPIES
from kinetoscope.diagnosis.rules.gpu_bubbles import RULE as GPU_BUBBLES
from kinetoscope.diagnosis.rules.sync_in_step import RULE as SYNC_IN_STEP
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.traces import (
    DOWNLOAD,
    PAGEABLE_UPLOAD,
    PINNED_UPLOAD,
    found,
    looped,
    nothing,
    without_cpu,
    written,
)
from tests.tool.events import Event, kernel, launch, memcpy, memset, op, step

Time = tuple[float, float]


def used(*gpus: Sequence[Time], steps: int = 2) -> Trace:
    """Steps of 1000 us; the times of each GPU's kernels in a step, start and end."""
    events: list[Event] = []
    for number in range(steps):
        at = 1000.0 * number
        events += [step(number, at, 1000.0)]
        for device, times in enumerate(gpus):
            for start, end in times:
                identity = len(events)
                events += [launch(identity, at + 1.0)]
                events += [kernel("k", identity, at + start, end - start, device=device)]
    return written(*events)


IN_TURNS = used([(10, 410)], [(410, 810)])
FOUR_IN_TURNS = used([(0, 100)], [(100, 400)], [(400, 600)], [(600, 1000)])
COPIED = written(
    *(step(1, 0.0, 1000.0), launch(1, 1.0), kernel("k", 1, 0.0, 500.0), launch(2, 2.0)),
    *(memcpy(2, 500.0, 100.0, 9) | {"args": {"device": 1, "stream": 7, "correlation": 2}},),
)
"""A kernel on GPU 0, and a copy that the profiler records for GPU 1."""


@pytest.mark.parametrize(
    ("trace", "shares", "bubbles_us", "take_turns"),
    [
        (IN_TURNS, [0.4, 0.4], [400.0, 400.0], True),
        (FOUR_IN_TURNS, [0.1, 0.3, 0.2, 0.4], [900.0, 700.0, 800.0, 600.0], True),
        (used([(0, 500)], [(450, 950)]), [0.5, 0.5], [450.0, 450.0], True),
        (used([(10, 910)], [(20, 900)]), [0.9, 0.88], [0.0, 20.0], False),
        (used([(0, 600)], [(200, 800)]), [0.6, 0.6], [200.0, 200.0], False),
        (used(*[[(0, 500)]] * 2, *[[(500, 1000)]] * 2), [0.5] * 4, [500.0] * 4, False),
        (used([(0, 150)], [(150, 300)]), [0.15, 0.15], [150.0, 150.0], False),
        (used([(0, 900)], [(0, 8)]), [0.9], [0.0], False),
        (COPIED, [0.5], [0.0], False),
        (used([(0, 300), (600, 700)]), [0.4], [0.0], False),
    ],
    ids=[
        *("in turns", "four in turns", "a short overlap", "at once", "pipeline", "pairs in turns"),
        *("mostly idle", "touched", "copies alone", "one GPU"),
    ],
)
def test_each_gpu_by_itself(trace: Trace, shares: list[float], bubbles_us: list[float], take_turns: bool) -> None:
    use = Facts(trace).gpu_use
    assert [gpu.share for gpu in use.gpus] == shares
    assert [gpu.bubble_us for gpu in use.gpus] == bubbles_us
    assert use.take_turns is take_turns


def test_gpus_in_turns() -> None:
    finding = found(GPU_BUBBLES, FOUR_IN_TURNS)
    assert finding.title == (
        "The 4 GPUs work in turns: GPU 0 idles 900 µs per step (90 %) while another GPU works; "
        "the mean of the 4 GPUs is 750 µs"
    )
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (1000.0, 750.0)
    assert finding.where == "GPU 0, GPU 1, GPU 2, GPU 3"


def test_a_pipeline_with_bubbles_does_not_work_in_turns() -> None:
    finding = found(GPU_BUBBLES, used([(0, 800)], [(200, 600)]))
    assert finding.title == (
        "GPU 1 idles 400 µs per step (40 %) while another GPU works; the mean of the 2 GPUs is 200 µs"
    )
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (400.0, 200.0)


@pytest.mark.parametrize(
    "trace",
    [used([(10, 910)], [(90, 930)]), used([(0, 100)], [(10, 90)]), used([(0, 500)])],
    ids=["busy", "idle", "one"],
)
def test_no_bubbles(trace: Trace) -> None:
    assert nothing(GPU_BUBBLES, trace)


def test_ranks_in_one_file_are_not_gpus_of_one_process() -> None:
    events: list[Event] = []
    for pid, at in ((412, 0.0), (999, 500.0)):
        of_rank = [step(1, 0.0, 1000.0), launch(1, 1.0), kernel("k", 1, at + 10.0, 480.0, device=pid % 2)]
        events += [{**event, "pid": pid} if event["pid"] == 412 else event for event in of_rank]
    trace = written(*events)
    assert len(trace.processes) == 2
    assert nothing(GPU_BUBBLES, trace)


def copying(*copies: tuple[str, float, float], step_us: float = 1000.0, steps: int = 1, every: int = 1) -> Trace:
    """Steps with a kernel in 0..500 us, and copies by name, start and end on stream 9 in each step or `every` nth."""
    events: list[Event] = []
    for number in range(steps):
        at = 1000.0 * number
        events += [step(number, step_us * number, step_us), launch(100 * number + 1, step_us * number)]
        events += [kernel("k", 100 * number + 1, at, 500.0)]
        for index, (name, start, end) in enumerate(copies if number % every == 0 else ()):
            correlation = 100 * number + index + 2
            events += [launch(correlation, step_us * number + 1.0, name="cudaMemcpyAsync")]
            events += [memcpy(correlation, at + start, end - start, 1_000_000, stream=9) | {"name": name}]
    return written(*events)


@pytest.mark.parametrize(
    ("trace", "title", "saving_us"),
    [
        (copying((DOWNLOAD, 400, 900)), "Copies to the host that no kernel hides take 400 µs per step (40 %)", 400.0),
        (copying((PINNED_UPLOAD, 500, 600)), "Copies from the host that no kernel hides take 100 µs", 100.0),
        (copying((DOWNLOAD, 100, 700), (PINNED_UPLOAD, 600, 800)), "Copies to and from the host that no", 300.0),
        (
            copying(("Memcpy DtoH (Device -> Pageable)", 500, 800)),
            "Copies to the host that no kernel hides take",
            300.0,
        ),
        (copying(("Memcpy HtoD (Host -> Device)", 500, 800)), "Copies from the host that no kernel hides", 300.0),
        (copying(("Memcpy M2D (Memory -> Device)", 500, 800)), "Copies from the host that no kernel hides", 300.0),
        (
            copying((DOWNLOAD, 500, 1000), steps=8, every=4),
            "Copies to the host that no kernel hides take 125 µs",
            125.0,
        ),
        (copying((DOWNLOAD, 500, 1000), step_us=20.0, steps=4), "Copies to the host that no kernel hides take", 500.0),
        (without_cpu(copying((PAGEABLE_UPLOAD, 500, 800))), "Copies from the host that no kernel hides", 300.0),
    ],
    ids=[
        *("download", "upload", "both", "pageable download", "ROCm", "XPU"),
        *("every fourth step", "CPU ahead", "no CPU"),
    ],
)
def test_exposed_copies(trace: Trace, title: str, saving_us: float) -> None:
    finding: Finding = found(EXPOSED_COPIES, trace)
    assert finding.title.startswith(title)
    assert finding.saving_us_per_step == saving_us


@pytest.mark.parametrize(
    "trace",
    [
        copying((DOWNLOAD, 10, 490)),
        copying((PINNED_UPLOAD, 480, 549)),
        copying((PAGEABLE_UPLOAD, 500, 900)),
        copying(("Memcpy DtoD (Device -> Device)", 500, 900)),
        copying(("Memcpy PtoP (Device -> Device)", 500, 900)),
        written(step(1, 0.0, 1000.0), launch(1, 1.0), memset(1, 100.0, 800.0, 4096)),
    ],
    ids=["hidden", "below 5 %", "pageable upload", "within the GPU", "to another GPU", "fill"],
)
def test_no_exposed_copies(trace: Trace) -> None:
    assert nothing(EXPOSED_COPIES, trace)


def test_a_long_download_is_no_part_of_the_wait_for_it() -> None:
    """The CPU waits in a copy of 400 us that begins when the kernel ends; 100 us later, the next kernel begins."""
    copy = [op("aten::to", 5.0, 980.0), launch(2, 6.0, 895.0, name="cudaMemcpyAsync")]
    copy += [memcpy(2, 500.0, 400.0, 1_000_000) | {"name": "Memcpy DtoH (Device -> Pageable)"}]
    rest = [launch(1, 1.0), kernel("k", 1, 3.0, 497.0), launch(3, 990.0), kernel("k", 3, 1000.0, 100.0)]
    trace = written(step(1, 0.0, 1100.0), *copy, *rest)
    assert found(EXPOSED_COPIES, trace).saving_us_per_step == 400.0
    assert found(SYNC_IN_STEP, trace).saving_us_per_step == 103.0


def test_a_kernel_of_another_gpu_hides_a_copy() -> None:
    events = [step(1, 0.0, 1000.0), *(launch(number, 1.0) for number in (1, 2, 3))]
    events += [kernel("k", 1, 0.0, 500.0), kernel("k", 2, 500.0, 500.0, device=1)]
    assert nothing(EXPOSED_COPIES, written(*events, memcpy(3, 500.0, 400.0, 9) | {"name": DOWNLOAD}))


def test_operators_of_a_helper_process_are_not_the_process_of_the_gpu() -> None:
    """A loader's worker, which launches nothing, runs an operator at the start of each of three steps."""
    events = looped(3, lambda _, __: (0.0, []), gpu_us=475.0)
    helper = [{**op("aten::stack", 500.0 * number, 400.0), "pid": 555, "tid": 555} for number in range(3)]
    facts = Facts(written(*events, *helper))
    assert facts.trace.steps[0].ops[0].thread == "555/555"
    assert ([gpu.share for gpu in facts.gpu_use.gpus], len(facts.steps)) == ([0.95], 3)
