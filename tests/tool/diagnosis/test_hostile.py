"""Hostile shapes and depths break no rule and take no time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.diagnosis.sites import MAX_DEPTH, around
from kinetoscope.trace.kineto import read_trace
from tests.tool.diagnosis.gpu_work import (
    BF16,
    CONVERT,
    COPY,
    F32,
    F64,
    FOREACH,
    GEMM,
    H200,
    MUL,
    MUL_F64,
    SGEMM,
    SOFTMAX,
    V100,
    Work,
    facts,
)
from tests.tool.events import kernel, launch, op, step, trace_bytes


def test_thousands_of_operators_around_thousands_of_kernels_take_no_time() -> None:
    count = 2000
    ops = [op("aten::clone", 0.001 * index, 1000.0 - 0.002 * index) for index in range(count)]
    work = [
        each for index in range(count) for each in (launch(index + 1, 3.0), kernel(MUL, index + 1, 5.0 * index, 4.0))
    ]
    trace = read_trace(trace_bytes(step(1, 0.0, 2000.0), *ops, *work))
    assert len(list(around(trace.activities[0]))) == MAX_DEPTH
    start = time.process_time()
    diagnose(trace, RULES)
    assert time.process_time() - start < 2.0


HOSTILE = [(), (0,), (-5, 3), (10**400, 7), (10**400, -7), (2,) * 100]


@pytest.mark.parametrize("device", [H200, V100, None])
def test_no_shape_breaks_a_rule(device: dict[str, Any] | None) -> None:
    kernels = [(MUL, "aten::mul"), (MUL_F64, "aten::mul"), (CONVERT, "aten::copy_"), (COPY, "aten::copy_")]
    kernels += [(GEMM, "aten::bmm"), (SOFTMAX, "aten::_softmax"), (SGEMM, "aten::mm"), (FOREACH, "aten::_fused_adam_")]
    works = [
        Work(name, us, op_name, (shape, other), types, ("aten::clone",))
        for shape in HOSTILE
        for other in (shape, (10**400, 7))
        for types, us in (((F32, BF16), 40.0), ((F64, F64), 0.0), (("", "nonsense"), 7.0), ((F32, F32), 9.0))
        for name, op_name in kernels
    ]
    diagnosis = diagnose(facts(*works, device=device).trace, RULES)
    total_us = sum(work.us + work.gap_us for work in works)
    assert {type(found.saving_us_per_step) for found in diagnosis.findings} == {float}
    assert all(0 < found.saving_us_per_step <= total_us for found in diagnosis.findings)
