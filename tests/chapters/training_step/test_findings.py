"""The page's figures: fixes as short diffs, the recorded graph, and a rule that finds a fault in no trace."""

from __future__ import annotations

import re

import pytest

from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import busy_us
from snippets.lab.finding import NotTimed, TraceError
from snippets.lab.page.mends import changed_lines, mend_lines
from snippets.lab.recording.device import PROJECT
from snippets.training_step.findings.compiling import eager_in_silence, recompile_unused
from snippets.training_step.findings.healthy import HEALTHY, gpu_busy, pointwise_of_iteration, pointwise_share, purpose
from snippets.training_step.findings.loops import FAULTS
from snippets.training_step.findings.pictures import MIN_FILLED, MIN_RUN_SHARE, phase_spans, reduced
from snippets.training_step.findings.probes import printed_rows
from snippets.training_step.findings.tables import first_steps
from tests.chapters.altered import RECORDED, AlteredDevice

PAGE = (PROJECT / "docs/training_step_faults.md").read_text(encoding="utf-8")
MENDS = re.findall(r'mend, "(\w+)", "(\w+)"', PAGE)


@pytest.mark.parametrize("pair", MENDS, ids="-".join)
def test_a_mend_is_a_few_lines(pair: tuple[str, str]) -> None:
    assert 1 <= changed_lines(mend_lines("training_step", *pair)) <= 5


def test_a_mend_as_it_is_shown() -> None:
    signed = [line for line in mend_lines("training_step", "recompile_before", "recompile_after") if line[0] in "+-"]
    assert signed == ["-model.compile(dynamic=False)", "+model.compile()", "+    torch._dynamo.mark_dynamic(inputs, 1)"]


def test_what_compiling_again_leaves_of_the_ceiling() -> None:
    seconds = [6.0, 1.0, 3.0, 0.0, 2.0, 0.0]  # graphs 1 to 3, an iteration that compiles nothing, the fourth
    device = AlteredDevice()
    lengths = {"us": [1e6 * second for second in seconds], "graphs": [1, 2, 3, 3, 4, 4]}
    device.data("training_step/lengths", before=lengths, after={"us": [9e6, 0.5e6], "graphs": [1, 1]})
    most_us = FAULTS["recompile"].ceiling(device).number + 0.5e6
    left = recompile_unused(device)
    assert (left.number, left.spread) == (most_us - 2e6, (most_us - 3e6, most_us - 1e6))


def test_eager_iterations_are_compared_with_compiled_ones_of_the_same_length(device: AlteredDevice) -> None:
    lengths, graphs = [64, 32, 96, 64, 32, 96], [1, 2, 2, 2, 2, 2]  # 96 has no graph
    before = {"length": lengths, "us": [9e6, 9e6, 1e5, 3000.0, 2000.0, 5000.0], "graphs": graphs}
    after = {"length": lengths, "us": [9e6, 2000.0, 4000.0, 3000.0, 2000.0, 4000.0], "graphs": [1] * 6}
    device.data("training_step/lengths", before=before, after=after)
    assert eager_in_silence(device).value == 5000 / 4000
    device.data("training_step/lengths", before={**before, "graphs": [1, 2, 3, 3, 3, 3]}, after=after)
    with pytest.raises(NotTimed, match="Dynamo compiled each length"):
        eager_in_silence(device)


def test_two_equal_functions_are_no_mend() -> None:
    with pytest.raises(ValueError, match="equal"):
        mend_lines("training_step", "attend", "attend")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_not_there_has_no_ceiling(fault: str) -> None:
    before, after = FAULTS[fault].loops
    device = AlteredDevice(traces={before: RECORDED[after].trace})
    assert FAULTS[fault].found_in(device).value == "neither"
    with pytest.raises(TraceError, match="finds nothing"):
        FAULTS[fault].ceiling(device)


PRINTED_TABLE = """\
----------  -----------  -----------------
      Name  CUDA time avg       Input Shapes
----------  -----------  -----------------
  aten::mm        2.0us  [[8, 4], [4, 2]]
   forward        6.0us                []
----------  -----------  -----------------
Self CPU time total: 9.0us
"""


def test_a_printed_table_is_read_by_its_headings() -> None:
    assert printed_rows(PRINTED_TABLE) == [
        {"Name": "aten::mm", "CUDA time avg": "2.0us", "Input Shapes": "[[8, 4], [4, 2]]"},
        {"Name": "forward", "CUDA time avg": "6.0us", "Input Shapes": "[]"},
    ]
    with pytest.raises(ValueError, match="shorter"):
        printed_rows(PRINTED_TABLE.replace("6.0us", "     "))


def test_what_pointwise_kernels_take_of_an_iteration() -> None:
    share, busy = pointwise_share(RECORDED), gpu_busy(RECORDED)
    assert pointwise_of_iteration(RECORDED).number == pytest.approx(share.number * busy.number / 100)


def test_what_attention_launches_is_attention_whatever_its_name() -> None:
    step = AlteredDevice()[HEALTHY].step
    launched = [each for each in step.kernels if each.op is not None and "attention" in each.op.name]
    assert {purpose(phase_spans(step), each) for each in launched} == {"attention"}
    names = {decode_kernel_name(each.name).operation for each in launched}
    assert names > {"attention"}, "by their names alone, some would be sums or casts"


def test_only_long_runs_are_drawn_as_one() -> None:
    step = RECORDED["training_step/optimizer_before"].step
    least = MIN_RUN_SHARE * (step.end_us - step.start_us)
    runs = [each for each in reduced(step).activities if each.name.endswith(" kernels")]
    assert runs
    assert all(each.duration_us >= least for each in runs)


@pytest.mark.parametrize("name", ["tiny_before", "breaks_before", "item_before"])
def test_a_reduced_lane_is_as_full_as_the_step(name: str) -> None:
    """Before, a run of short kernels was one solid block."""
    step = RECORDED[f"training_step/{name}"].step
    drawn, real = (busy_us(each) for each in (reduced(step).activities, step.activities))
    assert real <= drawn <= real / MIN_FILLED


def test_the_first_step_of_a_process_by_phase() -> None:
    html = first_steps(RECORDED)
    assert html.count("<tr>") == 1 + 8
    assert html.index("DataLoader") < html.index("forward") < html.index("the whole step")
