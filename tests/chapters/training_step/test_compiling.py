"""The pages' figures of a compiled loop's first iterations, of its breaks, and of times that do not fit a trace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kinetoscope.trace.queries import recorded_step_us
from snippets.lab.finding import TraceError
from snippets.lab.recording.consistency import SLOWER
from snippets.training_step.findings import compiling, healthy, probes
from snippets.training_step.findings.loops import FAULTS
from tests.chapters.altered import RECORDED, AlteredDevice, constant, measured, status, verdict
from tests.lab.samples import cells


def iteration(kernels: int, busy_us: float, us: float) -> dict[str, Any]:
    return {"kernels": kernels, "busy_us": busy_us, "us": us, "names": {"fill": kernels // 2, "triton": kernels // 4}}


def tuned(*steps: dict[str, Any]) -> AlteredDevice:
    device = AlteredDevice()
    device.data("training_step/tuning", steps=list(steps))
    return device


DEVICE = tuned(iteration(4000, 60_000.0, 7e6), iteration(100, 1500.0, 6000.0), iteration(100, 1200.0, 5000.0))


def test_the_kernels_that_only_time_configurations() -> None:
    assert compiling.tuning_kernels(DEVICE).value == 4000
    assert compiling.tuned_kernels(DEVICE).value == 100
    assert (measured(DEVICE, "TS76").number, status(DEVICE, "TS76")) == (97.5, "holds")
    busy = measured(DEVICE, "TS77")
    assert busy.number == pytest.approx(60_000 / 1350)
    assert busy.spread == (40.0, 50.0)


def test_later_iterations_run_as_many_kernels() -> None:
    device = tuned(iteration(4000, 1.0, 1.0), iteration(100, 1.0, 1.0), iteration(101, 1.0, 1.0))
    with pytest.raises(TraceError, match="iterations of \\[100, 101\\] kernels"):
        compiling.tuned_kernels(device)


def test_the_first_three_iterations_are_shown() -> None:
    html = compiling.tuning(tuned(*[iteration(4000, 60_000.0, 7e6)] * 5))
    assert html.count("<tr>") == 1 + 3
    assert "4,000" in html
    assert "60.0 ms" in html
    assert "7.00 s" in html


def test_a_model_with_and_without_breaks(device: AlteredDevice) -> None:
    reasons = ["Data-dependent branching\n  Explanation: one", "Another\n  Hint: two"]
    device.data(
        "training_step/graph_breaks", before={"graphs": 13, "breaks": reasons}, after={"graphs": 1, "breaks": []}
    )
    html = compiling.breaks(device)
    assert "Data-dependent branching; Another" in html
    assert "Explanation" not in html
    assert measured(device, "TS73").text == "13 graphs, then 1"


def test_a_loop_that_was_slower_than_its_trace_tells_nothing_of_the_ceiling() -> None:
    before, _ = FAULTS["item"].loops
    step_us = recorded_step_us(RECORDED[before].trace.steps)
    for factor, is_conclusive in ((SLOWER - 0.01, True), (SLOWER + 0.01, False)):
        device = AlteredDevice()
        device.point(before, iteration=slower(before, factor * step_us))
        figure = FAULTS["item"].unused(device)
        assert figure.conclusive == is_conclusive
        assert bool(figure.doubt) != is_conclusive
    judged = verdict(device, "TS2")
    assert judged.status == "inconclusive"
    assert judged.reason == (
        f"training_step/item_before took {step_us:.0f} us in the trace, "
        f"but {1.11 * step_us:.0f} us without the profiler"
    )


def slower(loop: str, us: float) -> Any:
    """The times of a loop, each of them `us`, in as many processes."""
    times = RECORDED[loop].point.iteration
    return msgspec.structs.replace(
        constant(us), samples_us=(us,) * len(times.samples_us), rounds=times.rounds, median_us=us, q1_us=us, q3_us=us
    )


def test_the_trace_of_a_thousand_iterations(device: AlteredDevice) -> None:
    device.data("training_step/ten_lines", trace_bytes=240_000)
    assert probes.thousand_iterations(device).text == "80.0 MB"


def test_the_opening_has_the_numbers_of_the_table_of_phases() -> None:
    _, *phases = cells(healthy.phases(RECORDED))
    _, *parts = cells(healthy.opening(RECORDED))
    assert [part[2:4] for part in parts if part[0] == "CPU"] == [phase[:2] for phase in phases]
    assert [part[2:4] for part in parts if part[0] == "GPU"] == [[phase[0], phase[2]] for phase in phases]
    assert {phase[0]: phase[2] for phase in phases}["backward"] == healthy.FIGURES["backward_gpu"](RECORDED).text
