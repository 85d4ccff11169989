"""Operator, module and line around an event."""

from __future__ import annotations

import random

import msgspec
import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.sites import Site, find_sites, is_own_code
from kinetoscope.trace.events import PythonFunction
from tests.tool.diagnosis.gpu_work import MUL, Work, facts
from tests.tool.diagnosis.traces import MAIN, function, written
from tests.tool.events import HOST, annotation, op

TRACE = written(
    annotation("forward", 0.0, 100.0),
    op("CompiledFunction", 1.0, 98.0),
    op("aten::to", 10.0, 80.0),
    op("aten::copy_", 20.0, 50.0),
    op("other_thread", 0.0, 100.0, tid=7),
    functions=[
        function("train.py(1): <module>", 0.0, 100.0),
        function("nn.Module: Net_0", 2.0, 90.0),
        function("lib/python3.12/site-packages/torch/nn/modules/module.py(1): _call_impl", 3.0, 80.0),
        function("model.py(7): forward", 5.0, 60.0),
        function("<built-in method to of Tensor object at 0x7f00>", 10.0, 50.0),
    ],
)


def test_a_site() -> None:
    inside, after, outside, elsewhere = find_sites(TRACE, [(MAIN, 30.0), (MAIN, 70.0), (MAIN, 100.0), ("412/7", 30.0)])
    assert (inside.op, inside.outer) == (TRACE.cpu_ops[4], TRACE.cpu_ops[3])
    assert inside.text == "aten::to in nn.Module: Net_0 at model.py(7): forward"
    assert after.text == "aten::to in nn.Module: Net_0 at train.py(1): <module>"
    assert outside == Site()
    assert elsewhere.text == "other_thread"


def test_many_questions_get_the_answers_of_one() -> None:
    dice = random.Random(0)
    queries = [(dice.choice([MAIN, "412/7", "nobody"]), dice.uniform(-5, 110)) for _ in range(300)]
    assert find_sites(TRACE, queries) == [find_sites(TRACE, [query])[0] for query in queries]
    assert find_sites(TRACE, []) == []


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
    assert Facts(trace).place(trace.activities[0]) == expected


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
    assert Facts(stacked).place(trace.activities[0]) == "aten::mul in nn.Module: MLP_0 at model.py(30): forward"


def test_nowhere() -> None:
    trace = facts(Work(MUL, 5.0)).trace
    bare = msgspec.structs.replace(trace.activities[0], op=None, launch=None)
    assert Facts(trace).place(bare) == ""


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("train.py(12): step", True),
        ("/home/me/train.py(12): step", True),
        ("transformers/models/bert/modeling_bert.py(181): forward", True),
        ("torch/nn/functional.py(1): linear", False),
        ("contextlib.py(81): inner", False),
        ("/tmp/torchinductor_me/ab/cab.py(9): call", False),
        ("torchinductor_me/ab/cab.py(9): call", False),
        (r"C:\Users\me\train.py(12): step", True),
        (r"C:\venv\Lib\site-packages\x.py(1): f", False),
        (r"torch\nn\functional.py(1): linear", False),
        (r"C:\Temp\torchinductor_me\ab\cab.py(9): call", False),
        ("nn.Module: Linear_0", False),
        ("<built-in function collect>", False),
        ("", False),
    ],
)
def test_own_code(name: str, own: bool) -> None:
    assert is_own_code(name) is own
