"""A trace without GPU work: what takes the CPU's time, in the report and in its headline."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from kinetoscope.diagnosis.cpu_times import call_times, cpu_causes, function_times, operator_times
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.cpu_time import dominant
from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import report_data
from kinetoscope.trace.events import PythonFunction, Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.missing_gpu import why_no_kernels
from tests.tool.events import HOST, Event, annotation, kernel, launch, op, step, trace_bytes
from tests.tool.report.samples import SHAPES, Page, diagnosed

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def two_steps(fetch_us: float, product_us: float) -> Trace:
    """Two steps of 1 ms: a fetch with an operator inside, a layer around a product, and another thread."""
    events = []
    for number in range(2):
        at = 1000.0 * number
        events += [step(number, at, 1000.0), annotation(FETCH, at, fetch_us), op("aten::stack", at + 1, 10.0)]
        events += [op("aten::linear", at + 450, product_us + 20), op("aten::mm", at + 460, product_us)]
        events += [op("aten::other", at + 500, 20, tid=HOST + 1)]
    return read_trace(trace_bytes(*events))


def test_what_the_cpu_does_adds_up_to_a_step() -> None:
    facts = Facts(two_steps(200.0, 400.0))
    assert cpu_causes(facts) == {"launching": 420.0, "Python": 380.0, "data loading": 200.0}
    assert report_data(diagnosed(two_steps(200.0, 400.0)))["cpu_us_per_step"] == {
        "operators": 420.0,
        "code outside operators": 380.0,
        "fetching batches": 200.0,
    }
    expected = {"aten::mm": (400.0, 2), "aten::linear": (20.0, 2)}
    assert operator_times(facts) == expected, "a batch is not stacked by the model"


def test_python_functions_by_their_own_time() -> None:
    functions = tuple(
        PythonFunction(name, at + start, us, f"{HOST}/{HOST}")
        for at in (0.0, 1000.0)
        for name, start, us in (
            ("train.py(3): step", 1.0, 990.0),
            ("<built-in function sleep>", 50.0, 700.0),
            (f"<built-in method mean of Tensor object at 0x7f{at:.0f}>", 800.0, 50.0),
        )
    )
    facts = Facts(msgspec.structs.replace(two_steps(1.0, 20.0), functions=functions))
    assert function_times(facts) == {
        "<built-in function sleep>": (700.0, 2),
        "train.py(3): step": (240.0, 2),
        "<built-in method mean of Tensor object>": (50.0, 2),
    }
    assert dominant(facts) == (
        "most of a step goes to code outside operators (95 %), the longest <built-in function sleep> (70 %)"
    )


def test_the_headline_says_that_few_steps_have_most_of_it() -> None:
    """One of four steps sleeps for 9 ms; the others compute for 1 ms."""
    events: list[Event] = []
    for number, us in enumerate((1000.0, 1000.0, 10_000.0, 1000.0)):
        at = 1000.0 * number + 9000.0 * (number > 2)
        events += [step(number, at, us), op("aten::mm", at, 1000.0)]
    assert headline(diagnosed(read_trace(trace_bytes(*events)))).endswith(
        "No rule found a fault: most of a step goes to code outside operators (69 %), most of it in 1 of 4 steps."
    )


def test_the_headline_names_what_dominates() -> None:
    no_gpu = "A step takes 1.00 ms; the trace shows no work on a GPU. "
    operators = "most of a step goes to operators (52 %), the longest aten::mm (50 %)"
    assert headline(diagnosed(two_steps(20.0, 500.0), SHAPES)) == f"{no_gpu}No rule found a fault: {operators}."
    assert headline(diagnosed(two_steps(20.0, 250.0))) == (
        f"{no_gpu}No rule found a fault: most of a step goes to code outside operators (71 %)."
    )
    assert headline(diagnosed(two_steps(400.0, 250.0), *RULES)) == (
        f"{no_gpu}The step waits for data: a fix saves at most 400 µs per step (40 %)."
    )


def test_the_report_says_where_the_time_goes_and_why_there_is_no_gpu() -> None:
    found = Page(report_html(diagnosed(two_steps(20.0, 500.0), SHAPES)))
    assert "cpu-time" in found.of("id")
    assert not {"waiting", "kernels"} & set(found.of("id"))
    assert "No finding. No rule found a fault: most of a step goes to operators (52 %)" in found.text
    assert "kernels with the most time" not in found.text
    assert "from a machine without a GPU, from a PyTorch without CUDA, or only the CPU was recorded" in found.text
    assert "operators PyTorch computes, or calls CUDA 520 µs 52.0 %" in found.text
    assert "aten::mm 1 500 µs 50.0 %" in found.text
    assert "On the threads of the steps, means over 2 steps. Record with with_stack=True to see which" in found.text
    assert found.open_elements == found.wrong == []


def test_rules_about_a_gpu_are_one_line() -> None:
    made = diagnosed(two_steps(20.0, 500.0), *RULES)
    html = report_html(made)
    lacking = [each.rule.title for each in made.diagnosis.cannot_tell if each.reason == "no step has GPU work"]
    assert html.count("no step has GPU work</span>") == 1
    assert f"<summary><strong>{len(lacking)} rules</strong></summary>" in html
    assert "<strong>Python collects garbage inside a step</strong>" in html, "one rule, in the open"
    assert not any(f"<strong>{title}</strong>" in html for title in lacking)


def test_a_mean_far_from_the_median_says_so_without_a_gpu() -> None:
    events = []
    for number, start in enumerate((0, 100, 200)):
        events += [step(number, start, 250 if number == 2 else 100), op("aten::mm", start + 10, 60)]
    found = Page(report_html(diagnosed(read_trace(trace_bytes(*events)), SHAPES)))
    assert "time of a step 100 µs median of 3; 150 µs in the mean findings" in found.text


def test_a_saving_between_steps_is_a_share_of_a_step_and_its_pause() -> None:
    """A loader works for 500 us between steps of 200 us."""
    events = []
    for number in range(3):
        at = 700.0 * number
        events += [annotation("train", at, 200), op("aten::mm", at + 5, 50), launch(number + 1, at + 10)]
        events += [kernel("k", number + 1, at + 20, 150), annotation(FETCH, at + 200, 500)]
    made = diagnosed(read_trace(trace_bytes(*events)), *(rule for rule in RULES if rule.name == "loader-stall"))
    assert headline(made).endswith(
        "The step waits for data: a fix saves at most 500 µs per step (71 % of a step and the pause after it)."
    )
    assert "Saves at most 500 µs per step, 71 % of a step and the pause after it" in Page(report_html(made)).text


def test_a_real_trace_of_this_machine(tmp_path: Path) -> None:
    """A loader of 20 ms per batch before a layer of microseconds, profiled with ProfilerActivity.CPU alone."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(0.005)
            return torch.ones(8)

    layer = torch.nn.Linear(8, 8)
    plan = schedule(wait=1, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for _, batch in zip(range(6), DataLoader(Slow(), batch_size=4), strict=False):
            layer(batch)
            profiler.step()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    made = read_diagnosed(path)
    assert "The step waits for data: a fix saves at most" in headline(made)
    assert made.diagnosis.findings[0].severity(made.step_us) == "high"
    assert next(iter(cpu_causes(made.facts))) == "data loading"
    assert "no GPU kernels" in made.summary.notes[0]
    assert "_SingleProcessDataLoaderIter" in made.summary.operators[0].name


def of_accelerator(category: str, runtime: str = "") -> Trace:
    """Three steps of 10 ms: a view of 9 us, a call of 8 ms, and an event on a device for 7 ms. The last call ends 1 ms
    after its step."""
    events: list[Event] = []
    for number in range(3):
        at = 10_000.0 * number
        events += [step(number, at, 10_000.0), op("aten::view", at + 10, 9.0)]
        if runtime:
            call = launch(number + 1, at + (3000.0 if number == 2 else 100.0), 8000.0, name="cudaMalloc")
            events.append({**call, "cat": runtime, "name": "run_model"})
        events.append({**kernel("fused_block", number + 1, at + 500.0, 7000.0), "cat": category})
    return read_trace(trace_bytes(*events))


def test_work_of_an_accelerator_that_is_not_read() -> None:
    """Of the step, 9 us are an operator, and (8,000 + 8,000 + 7,000) / 3 a call."""
    made = diagnosed(of_accelerator("mtia_ccp_events", "mtia_runtime"), *RULES)
    assert {name: (round(own.us), own.calls) for name, own in call_times(made.facts).items()} == {
        "run_model": (7667, 3)
    }
    assert headline(made) == (
        "A step takes 10.0 ms; 3 events of mtia_ccp_events are not read, so what the accelerator does is unknown. "
        "No rule found a fault on the CPU: most of a step goes to operators and calls (77 %), the longest "
        "run_model (77 %)."
    )
    reasons = {each.reason for each in made.diagnosis.cannot_tell if "GPU work" in each.reason}
    assert reasons == {"no step has GPU work that is read"}
    text = Page(report_html(made)).text
    assert "run_model 1 7.67 ms 76.7 %" in text
    assert "the trace shows no work on a GPU" not in text


def test_events_that_may_be_of_an_accelerator() -> None:
    """Without any call of a runtime, nothing tells that they are."""
    assert headline(diagnosed(of_accelerator("my_stages"), *RULES)).startswith(
        "A step takes 10.0 ms; 3 events of my_stages are not read, and may be an accelerator's work."
    )


def test_calls_of_an_accelerator_whose_work_is_not_in_the_trace() -> None:
    call = {**launch(1, 100.0, 8000.0), "cat": "mtia_runtime", "name": "runFunction - submit_job"}
    made = read_trace(trace_bytes(step(0, 0.0, 9000.0), op("aten::mul", 50.0, 8100.0), call))
    assert why_no_kernels(made).startswith(
        "no work of an accelerator, though the trace has calls of its runtime, such as runFunction - submit_job; "
        "check: the accelerator's ProfilerActivity"
    )
    assert headline(diagnosed(made)).endswith("goes to operators (90 %), the longest aten::mul (90 %).")
