"""Traces of others about GPUs: several of a process, copies that no kernel hides, types of a compiled function."""

from __future__ import annotations

from functools import cache

import pytest

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import report_data
from tests.tool.trace.public import PROJECT

CASES = PROJECT.parent / "shared" / "traces" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no cases in ../shared/traces/cases")


@cache
def case(name: str) -> DiagnosedTrace:
    return read_diagnosed(CASES / f"{name}.json")


def found(name: str) -> dict[str, float]:
    """Rule -> ceiling per step, the largest first."""
    return {finding.rule.name: finding.saving_us_per_step for finding in case(name).diagnosis.findings}


def test_gpus_in_turns() -> None:
    assert found("naive_pp") == {"gpu-bubbles": 4980.0}
    data = report_data(case("naive_pp"))
    assert [gpu["device"] for gpu in data["gpus"]] == [0, 1]
    assert [gpu["bubble_us_per_step"] for gpu in data["gpus"]] == [4980.0, 4980.0]
    assert [gpu["share"] for gpu in data["gpus"]] == pytest.approx([0.498, 0.498], abs=0.003)
    assert headline(case("naive_pp")).startswith("A step takes 9.99 ms and its 2 GPUs work in turns, each 50 % of it.")


@pytest.mark.parametrize(
    ("name", "alone_us", "kernels_us", "others"),
    [("offload_d2h", 7805.0, 2000.0, {}), ("copy_d2h_same", 4500.0, 4950.0, {"sync-in-step": 485.0})],
)
def test_copies_that_no_kernel_hides(name: str, alone_us: float, kernels_us: float, others: dict[str, float]) -> None:
    assert list(found(name).items()) == [("exposed-copies", alone_us), *others.items()]
    data = report_data(case(name))
    assert (data["copies_alone_us_per_step"], data["kernels_us_per_step"]) == (alone_us, kernels_us)


def test_a_compiled_function_with_a_double_among_its_inputs() -> None:
    assert list(found("f64_compiled")) == ["no-tensor-cores", "slow-cpu-code"]
