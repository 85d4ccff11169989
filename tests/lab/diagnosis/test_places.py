"""Where GPU work comes from."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from snippets.lab.diagnosis.diagnose import diagnose
from snippets.lab.diagnosis.places import MAX_DEPTH, around, place
from snippets.lab.diagnosis.rules import RULES
from snippets.lab.trace.events import PythonFunction
from snippets.lab.trace.kineto import read_trace
from tests.lab.diagnosis.gpu_work import (
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
from tests.lab.events import HOST, kernel, launch, op, step, trace_bytes


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ((), "aten::mul"),
        (("@layer", "aten::linear"), "aten::linear in layer"),
        (("autograd::engine::evaluate_function: MulBackward0", "MulBackward0"), "MulBackward0"),
        (("@layer", "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph f6 ##"), "aten::mul in layer"),
    ],
)
def test_place(inside: tuple[str, ...], expected: str) -> None:
    trace = facts(Work(MUL, 5.0, "aten::mul", inside=inside)).trace
    assert place(trace.activities[0], trace) == expected


def test_place_with_the_stack() -> None:
    trace = facts(Work(MUL, 5.0, "aten::mul", inside=("@layer",))).trace
    thread = f"{HOST}/{HOST}"
    functions = tuple(
        PythonFunction(name, start, duration, other)
        for name, start, duration, other in [
            ("train.py(12): step", 0.0, 100.0, thread),
            ("nn.Module: MLP_0", 1.0, 99.0, thread),
            ("model.py(30): forward", 2.0, 98.0, thread),
            ("lib/site-packages/torch/nn/functional.py(9): gelu", 3.0, 97.0, thread),
            ("ended.py(1): f", 4.0, 1.0, thread),
            ("other.py(1): f", 5.0, 95.0, "1/1"),
        ]
    )
    stacked = msgspec.structs.replace(trace, functions=functions)
    assert place(trace.activities[0], stacked) == "aten::mul in nn.Module: MLP_0, model.py(30): forward"


def test_nowhere() -> None:
    trace = facts(Work(MUL, 5.0)).trace
    assert place(msgspec.structs.replace(trace.activities[0], op=None), trace) == ""


def test_thousands_of_operators_around_thousands_of_kernels_take_no_time() -> None:
    count = 2000
    ops = [op("aten::clone", 0.001 * index, 1000.0 - 0.002 * index) for index in range(count)]
    work = [
        each for index in range(count) for each in (launch(index + 1, 3.0), kernel(MUL, index + 1, 5.0 * index, 4.0))
    ]
    trace = read_trace(trace_bytes(step(1, 0.0, 2000.0), *ops, *work))
    assert len(list(around(trace.activities[0]))) == MAX_DEPTH
    start = time.perf_counter()
    diagnose(trace, RULES)
    assert time.perf_counter() - start < 2.0


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
    assert {type(found.ceiling_us_per_step) for found in diagnosis.findings} == {float}
    assert all(0 < found.ceiling_us_per_step <= total_us for found in diagnosis.findings)
