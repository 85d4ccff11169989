"""Where GPU work comes from."""

from __future__ import annotations

import time

import msgspec
import pytest

from snippets.lab.diagnosis.diagnose import diagnose
from snippets.lab.diagnosis.places import MAX_DEPTH, around, place
from snippets.lab.diagnosis.rules import RULES
from snippets.lab.trace.events import PythonFunction
from snippets.lab.trace.kineto import read_trace
from tests.lab.diagnosis.gpu_work import MUL, Work, facts
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
