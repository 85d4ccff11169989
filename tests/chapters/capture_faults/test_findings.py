"""The page on what a capture gets wrong: its figures and tables on the book's recordings, and on altered ones."""

from __future__ import annotations

from kinetoscope.trace.events import Step
from snippets.capture_faults.findings import captures
from snippets.capture_faults.findings.dependent import early_when_recomputing, second_starts
from snippets.capture_faults.findings.doctor import LOST, doctor, doctor_of_lost, without_first_kernels
from tests.chapters.altered import AlteredDevice, replace
from tests.lab.samples import BOOK, Markup


def test_a_slowdown_is_that_of_each_repeat(device: AlteredDevice) -> None:
    device.data("capture_faults/overhead", samples_us={"without": [1.0, 10.0, 100.0], "nothing": [2.0, 20.0, 300.0]})
    assert (captures.slowdown(device, "nothing").number, captures.slowdown(device, "nothing").spread) == (
        2.0,
        (2.0, 2.5),
    )


def test_quartiles() -> None:
    figure = captures.quartiles([10.0, 20.0, 30.0], "us", "hand")
    assert (figure.number, figure.spread, figure.origin) == (20.0, (15.0, 25.0), "hand")


def test_tables_of_captures() -> None:
    assert "without prof.step()" in Markup(captures.forgotten(BOOK)).text
    assert "step in a new thread" in Markup(captures.threads(BOOK)).text
    assert "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" in Markup(captures.subscribers(BOOK)).text
    assert "warmup=2" in Markup(captures.first_steps(BOOK)).text


def test_a_table_of_prices() -> None:
    html = captures.cost_of_options(BOOK)
    assert all(written in Markup(html).text for written in captures.OPTIONS.values())
    assert html.count("<tr") == 3 + len(captures.OPTIONS)


def test_a_table_of_sizes(device: AlteredDevice) -> None:
    row = {"steps": 1000, "events": 5000, "bytes": 2_000_000, "export_ms": 3.0}
    device.data("capture_faults/huge", traces=[row])
    text = Markup(captures.sizes(device)).text
    assert all(value in text for value in ("1,000", "5,000", "2.00 MB", "3.00 ms"))


def test_what_doctor_says() -> None:
    text = Markup(doctor(BOOK)).text
    assert "of replayed CUDA graphs" in text
    assert "the first step takes" in text
    assert "nothing" in text


def test_doctor_counts_what_was_removed() -> None:
    trace = BOOK["trace_rows/train"].trace
    assert len(trace.activities) - len(without_first_kernels(trace, LOST).activities) == LOST
    assert without_first_kernels(trace, 0).activities == trace.activities
    text = Markup(doctor_of_lost(BOOK)).text
    assert "none: all 66 launches have their work" in text
    assert "12 of 66 launches (18.2%) have no kernel in the trace, all at the start" in text
    assert text.count("failed") == 1


def test_when_the_second_kernel_starts(device: AlteredDevice) -> None:
    assert second_starts(device).text.endswith(" before the first kernel ends")
    assert early_when_recomputing(device).text == "3 of 3 steps"

    def later(step: Step) -> Step:
        first, *others = step.kernels
        moved = [replace(each, start_us=each.start_us + 1000 * place) for place, each in enumerate(others, 1)]
        return replace(step, activities=(first, *moved))

    for name in ("fused", "training_fused_recompute"):
        device.steps(f"fused_mlp/{name}", later)
    assert second_starts(device).text.endswith(" after the first kernel ends")
    assert early_when_recomputing(device).text == "0 of 3 steps"
