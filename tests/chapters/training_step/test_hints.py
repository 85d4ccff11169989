"""The page's hints about its own traces, and the texts that it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.trace.events import Span
from kinetoscope.trace.queries import recorded_step_us
from snippets.lab.finding import TraceError
from snippets.lab.recording.device import PROJECT
from snippets.training_step.findings import hints, tables, texts
from tests.chapters.altered import RECORDED, AlteredDevice, constant, replace

HEALTHY, TINY, TEN = "training_step/healthy", "training_step/tiny_before", "training_step/ten_lines"
PAGE = (PROJECT / "docs/training_step.md").read_text(encoding="utf-8")


def test_the_distance_of_a_kernel_in_two_steps(device: AlteredDevice) -> None:
    starts = iter((100.0, 350.0, 620.0))
    device.steps(
        HEALTHY,
        lambda step: replace(step, activities=(replace(step.kernels[0], start_us=next(starts)), *step.activities[-1:])),
    )
    assert hints.kernel_distance(device).number == 260


def test_the_row_of_a_step_is_its_span_on_the_cpu(device: AlteredDevice) -> None:
    device.steps(HEALTHY, lambda step: replace(step, start_us=10.0, end_us=22.5))
    assert hints.FIGURES["step_row"](device).number == 12.5


def test_a_share_of_the_recorded_step() -> None:
    most = hints.FAULTS["item"].ceiling(RECORDED).number
    share = hints.ceiling_share(RECORDED, "item")
    assert share.unit == "%"
    step_us = recorded_step_us(RECORDED["training_step/item_before"].trace.steps)
    assert share.number == pytest.approx(100 * most / step_us)


def test_backward_in_the_gpu_lane(device: AlteredDevice) -> None:
    device.trace(HEALTHY, gpu_annotations=(Span("backward", 0, 3), Span("backward", 9, 1), Span("loss", 5, 70)))
    assert hints.backward_annotation(device).number == 2
    device.trace(HEALTHY, gpu_annotations=())
    with pytest.raises(TraceError, match="no annotation 'backward'"):
        hints.backward_annotation(device)


def test_what_kernels_fill_of_a_mended_iteration(device: AlteredDevice) -> None:
    loop = "training_step/item_after"
    device.steps(
        loop, lambda step: replace(step, activities=(replace(step.kernels[0], start_us=100.0, duration_us=6.0),))
    )
    device.point(loop, iteration=constant(8))
    busy = hints.FIGURES["item_mended_busy"](device)
    assert (busy.number, busy.unit) == (75, "%")


def test_tiny_kernels(device: AlteredDevice) -> None:
    device.steps(TINY, lambda step: replace(step, activities=step.kernels[:2]))
    device.activities(TINY, lambda activity: replace(activity, duration_us=4.0))
    device.launches(TINY, lambda call: replace(call, duration_us=9.0))
    assert hints.FIGURES["tiny_kernel"](device).number <= 4
    assert hints.FIGURES["tiny_launch"](device).number == 9


def test_a_launch_takes_longer_than_a_tiny_kernel() -> None:
    """The page concludes so."""
    assert hints.FIGURES["tiny_kernel"](RECORDED).number < hints.FIGURES["tiny_launch"](RECORDED).number


def printed(*rows: tuple[str, int]) -> str:
    lines = [f"  {name}  {calls}" for name, calls in rows]
    rule = "----  ----\n"
    return rule + "Name  # of Calls\n" + rule + "\n".join(lines) + "\n" + rule + "Self CPU time total: 1us\n"


def test_calls_of_a_kernel_and_of_its_operator(device: AlteredDevice) -> None:
    device.data(TEN, printed=printed(("aten::x_attention_backward", 3), ("flash_bprop_wgmma", 4), ("forward", 3)))
    assert hints.FIGURES["attention_operator_calls"](device).value == 3
    assert hints.FIGURES["attention_kernel_calls"](device).value == 4
    device.data(TEN, printed=printed(("aten::mm", 3)))
    with pytest.raises(TraceError, match="0 rows"):
        hints.FIGURES["attention_kernel_calls"](device)


def test_recording_begins_while_an_earlier_iteration_runs() -> None:
    """Why the printed kernels are those of four iterations, although three were recorded, where all of one was left."""
    trace = RECORDED[HEALTHY].trace
    earlier = [activity for reason in trace.uncounted for activity in reason.activities if activity.kind == "kernel"]
    assert 0 < len(earlier) <= len(trace.steps[0].kernels)
    layers, recorded = 4, 3
    assert hints.FIGURES["attention_operator_calls"](RECORDED).value == layers * recorded
    assert hints.FIGURES["attention_kernel_calls"](RECORDED).value == layers * (recorded + 1)


@pytest.mark.parametrize("loop", ["tiny_before", "optimizer_before"])
def test_launch_bound_is_the_first_finding(loop: str) -> None:
    assert diagnose(RECORDED[f"training_step/{loop}"].trace).findings[0].rule.name == "launch-bound"


def test_texts_as_they_were_printed(device: AlteredDevice) -> None:
    data = RECORDED["training_step/lengths"].data
    texts_of_dynamo = ["something else", "hit recompile_limit (8)\n   last reason: x < 3  "]
    device.data("training_step/lengths", before={**data["before"], "warnings": texts_of_dynamo})
    assert ">hit recompile_limit (8)\n   last reason: x &lt; 3</code>" in texts.limit_warning(device)
    device.data("training_step/lengths", before={**data["before"], "warnings": ["something else"]})
    with pytest.raises(TraceError, match="no warning"):
        texts.limit_warning(device)
    assert "torch.cond" in texts.breaks_and_reason(RECORDED)
    assert "recompile_limit (8)" in texts.lengths_and_warning(RECORDED)
    assert "compile_inner (dynamo_timed)</code>" in texts.lengths_and_warning(RECORDED)
    assert texts.printed_text(RECORDED).startswith('<details class="lab-details"><summary>The complete table')
    assert "Input Shapes" in texts.printed_text(RECORDED)
    assert not re.search(r" \n|\n</code>", texts.printed_text(RECORDED))


def test_sizes_name_what_differs() -> None:
    html = tables.sizes(RECORDED)
    assert "length 1,024, batch 16" in html
    row = r"<td>An optimizer that loops over parameters</td>\s*<td>batch 4</td>"
    assert re.search(row, re.sub(r"<td [^>]*>", "<td>", html))


def test_the_lines_for_a_readers_own_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run as they are on the page, and record three steps."""
    (lines,) = re.findall(r"```python\n(plan = schedule.*?)```", PAGE, flags=re.DOTALL)
    names = {"loader": [torch.ones(2)] * 20, "seen": [], "profiler": None}
    body = lines.replace("...  # the body of your loop, unchanged", "seen.append(batch + 1)")
    assert body != lines
    exec("from torch.profiler import profile, schedule\n" + body, names)
    profiler, seen = names["profiler"], names["seen"]
    assert isinstance(seen, list)
    assert len(seen) == 10
    monkeypatch.chdir(tmp_path)
    profiler.export_chrome_trace("trace.json")  # type: ignore[attr-defined]
    text = (tmp_path / "trace.json").read_text(encoding="utf-8")
    assert re.findall(r'"name": "(ProfilerStep#\d+)"', text) == [f"ProfilerStep#{number}" for number in (7, 8, 9)]
