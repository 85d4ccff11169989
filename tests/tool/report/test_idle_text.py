"""Where the GPU's idle time is: in the steps or between them, and what the CPU does there."""

from __future__ import annotations

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.document import report_html
from kinetoscope.report.headline import SPAN, headline
from kinetoscope.report.idle_text import unexplained_idle
from kinetoscope.report.trace_report import report_data
from kinetoscope.trace.events import PythonFunction, Trace
from kinetoscope.trace.totals import summarize
from tests.tool.diagnosis.traces import function, looped, without_gpu, written
from tests.tool.events import Event, annotation, op


def diagnosed(trace: Trace) -> DiagnosedTrace:
    return DiagnosedTrace("t.json", diagnose(trace), summarize(trace))


def decoding(wait: str = "", pause_us: float = 20_000.0, gpu_us: float = 2000.0) -> list[Event]:
    """Six steps, 25 us longer than their GPU work, with pauses between them."""
    return looped(6, lambda _, __: (0.0, []), gpu_us=gpu_us, name="decode", pause_us=pause_us, wait=wait)


PAUSES = [2025.0 + 22_025.0 * number for number in range(5)]
BETWEEN = "of the GPU's idle time (100 %) is between the steps, "
NOTHING, HARDLY = "where the trace shows nothing.", "where the trace shows hardly anything."
WORKS = "while the CPU does other work; aten::a takes the longest."


@pytest.mark.parametrize(
    ("events", "functions", "text"),
    [
        ([], [], NOTHING),
        ([annotation("epoch", 0.0, 130_000.0)], [], NOTHING),
        ([op("aten::item", at + 9000.0, 10.0) for at in PAUSES], [], NOTHING),
        ([annotation("log", at + 1500.0, 4000.0) for at in PAUSES], [], HARDLY),
        ([annotation("evaluate", at + 100.0, 19_000.0) for at in PAUSES], [], "most of it during evaluate."),
        ([op("aten::_save", at + 5000.0, 14_000.0) for at in PAUSES], [], "most of it during aten::_save."),
        ([op(f"aten::{chr(97 + n)}", at + 600.0 * n, 99.0 - n) for at in PAUSES for n in range(30)], [], WORKS),
        ([annotation(f"eval_{at}", at + 100.0, 19_000.0) for at in PAUSES], [], "most of it during eval_#.#."),
        (
            [],
            [function("train.py(3): <module>", 0.0, 9e6)]
            + [function("c.py(9): save", at + 100.0, 19e3) for at in PAUSES],
            "most of it during c.py(9): save.",
        ),
    ],
    ids=["nothing", "around", "a short event", "hardly", "annotation", "operator", "operators", "numbers", "function"],
)
def test_idle_between_steps(events: list[Event], functions: list[PythonFunction], text: str) -> None:
    trace = diagnosed(written(*decoding(), *events, functions=functions))
    assert not trace.diagnosis.findings
    assert unexplained_idle(trace) == f"No rule found why: most {BETWEEN}{text}"
    assert headline(trace).endswith(f"and the GPU works 11 % of {SPAN}. No rule found why: most {BETWEEN}{text}")
    data = report_data(trace)
    idle = [data[key] for key in ("idle_us", "idle_in_steps_us", "idle_between_steps_us")]
    assert idle == [100_150.0, 150.0, 100_000.0]
    assert "Between the steps the GPU is idle for 16.7 ms per step, 100 % of its idle time" in report_html(trace)


def test_a_small_finding_does_not_hide_the_pauses() -> None:
    trace = diagnosed(written(*decoding("cudaDeviceSynchronize", gpu_us=500.0)))
    assert headline(trace).endswith(
        f" Most {BETWEEN}{NOTHING} The CPU waits for the GPU inside a step: a fix saves at most 20.0 µs per step (4 %)."
    )


def test_a_finding_about_the_pauses_stands_alone() -> None:
    fetches = [annotation("enumerate(DataLoader)#_X.__next__", at + 100.0, 19_000.0) for at in PAUSES]
    text = headline(diagnosed(written(*decoding(), *fetches)))
    assert text.endswith(
        f"of {SPAN}. The step waits for data: a fix saves at most 19.0 ms per step "
        "(86 % of a step and the pause after it)."
    )


def test_short_pauses_are_not_named() -> None:
    trace = diagnosed(written(*decoding(pause_us=400.0)))
    assert unexplained_idle(trace) == ""
    assert report_data(trace)["idle_between_steps_us"] == 2000.0
    assert diagnosed(without_gpu(written(*decoding()))).idle is None
    assert report_data(diagnosed(without_gpu(written(*decoding()))))["idle_us"] is None


def test_pauses_in_which_nothing_is_recorded_are_no_work_of_the_cpu() -> None:
    """Short pauses of 0.4 ms are Python."""
    assert diagnosed(written(*decoding())).waits.only_cpu_us == 25.0
    assert diagnosed(written(*decoding(pause_us=400.0))).waits.neither_us == 0.0


@pytest.mark.parametrize(("stall_us", "is_named"), [(8e5, True), (1e5, True), (5e4, False), (0.0, False)])
def test_the_cause_of_all_steps(stall_us: float, is_named: bool) -> None:
    """The median step has no gap; the cause and its share come from all steps. The GPU works 12, 53 and 70 %."""
    fetch = "enumerate(DataLoader)#_X.__next__"
    events = looped(
        12, lambda n, at: (stall_us, [annotation(fetch, at, stall_us)]) if n == 7 and stall_us else (0.0, [])
    )
    text = "No rule found why: most of the GPU's idle time is data loading; 100 % of it is in one of 12 steps, "
    assert unexplained_idle(diagnosed(written(*events))) == (f"{text}ProfilerStep#7." if is_named else "")


def test_the_headline_names_a_single_step_with_most_of_the_idle_time() -> None:
    """One of six fetches takes 20 ms, the others 100 us: what each step could save explains little of the idle time."""

    def fetch(number: int, at: float) -> tuple[float, list[Event]]:
        us = 20_000.0 if number == 3 else 100.0
        return us, [annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, us)]

    trace = diagnosed(written(*looped(6, fetch, gpu_us=1000.0)))
    (loading,) = [each for each in trace.diagnosis.findings if each.rule.name == "loader-stall"]
    assert loading.title == "Fetching a batch takes 3.42 ms per step (77 %), most of it in 1 of 6 steps"
    assert loading.saving_us_per_step == 100.0
    assert (
        "Most of the GPU's idle time (97 %) is in one of 6 steps, ProfilerStep#3; most of it is data loading. "
        in headline(trace)
    )
