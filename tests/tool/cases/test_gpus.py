"""Traces of others about GPUs: several of a process, copies that no kernel hides, types of a compiled function."""

from __future__ import annotations

from functools import cache

import pytest

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from tests.tool.trace.public import PROJECT

CASES = PROJECT.parent / "shared" / "traces" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no cases in ../shared/traces/cases")


@cache
def case(name: str) -> DiagnosedTrace:
    return read_diagnosed(CASES / f"{name}.json")


def test_a_compiled_function_with_a_double_among_its_inputs() -> None:
    rules = [finding.rule.name for finding in case("f64_compiled").diagnosis.findings]
    assert rules == ["no-tensor-cores", "slow-cpu-code"]
