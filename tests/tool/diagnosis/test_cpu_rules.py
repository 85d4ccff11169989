"""Rules on traces without GPU work: loops over elements and parameters, float64, slow Python, slow datasets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import PythonFunction, Trace
from tests.tool.diagnosis.traces import BY_NAME, cannot_tell, found, function, nothing, work, written
from tests.tool.events import Event, annotation, launch, op, step

NODE = "autograd::engine::evaluate_function: SelectBackward0"
ADAM = "Optimizer.step#Adam.step"
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def token_loop(
    calls: int, us: float = 4.0, steps: int = 2, *, functions: Sequence[PythonFunction] = (), is_marked: bool = True
) -> Trace:
    """Steps of 20 ms: `calls` elements in a loop, each an operator with one inside and 2 us of Python; a large product;
    then as many nodes of the backward pass, one after another. The 1.2 ms before these, in which autograd orders
    the graph, are a part of the loop."""
    events: list[Event] = []
    for number in range(steps):
        at = 20_000.0 * number
        events += [step(number, at, 20_000.0)] if is_marked else []
        for index in range(calls):
            start = at + 100.0 + index * (us + 2.0)
            events += [op("aten::select", start, us), op("aten::as_strided", start + 1.0, 1.0)]
        events.append(op("aten::mm", at + 10_000.0, 3_000.0))
        events += [op(NODE, at + 14_200.0 + us * index, us) for index in range(calls)]
        events.append(op("aten::sum", at + 18_450.0, 50.0))
    return written(*events, functions=functions)


def test_a_loop_over_elements() -> None:
    """1,000 selects and 1,000 nodes of 4 us, 999 x 2 us of Python: 9,998 us. The ceiling leaves a call of each (8 us),
    and adds the 100 us before the first of two loops, 1,200 us before the nodes and 250 us after them; other pauses of
    over 1 ms are not the loop's."""
    stacks = [function("loss.py(7): loss", at, 9_000.0) for at in (50.0, 20_050.0)]
    finding = found(BY_NAME["tiny-operators"], token_loop(1000, functions=stacks))
    assert finding.title == (
        "2,000 short operators per step, 4.00 µs each, take 10.0 ms (50 %) with the Python between them: "
        "aten::select 1,000 times, SelectBackward0 1,000 times"
    )
    assert finding.where == "loss.py(7): loss"
    assert (finding.evidence_us_per_step, finding.advice) == (9_998.0, "")
    assert finding.saving_us_per_step == 8_000.0 - 8.0 + 999 * 2.0 + 1_200.0 + 250.0 + 100.0 / 2
    bare = found(BY_NAME["tiny-operators"], token_loop(1000))
    assert bare.where == "aten::select"
    assert bare.advice.startswith("with_stack=True shows the line that calls them.")


@pytest.mark.parametrize(
    ("trace", "is_found"),
    [
        (token_loop(1000), True),
        (token_loop(199), False),  # layers may repeat so often
        (token_loop(200, 15.0), True),
        (token_loop(200, 40.0, steps=1), False),  # operators that work
        (token_loop(600, 6.0), True),
        (token_loop(1000, is_marked=False), True),
        (token_loop(300, 1.0), False),  # 5 % of a step
        (written(step(0, 0.0, 20_000.0), *(op("aten::mm", 60.0 * i, 50.0) for i in range(300))), False),
        (written(step(0, 0.0, 40_000.0), *(op("aten::mm", 60.0 * i, 50.0) for i in range(600))), True),
        (written(*(op("aten::mm", 60.0 * i, 50.0) for i in range(600))), False),  # how many steps are there?
    ],
)
def test_how_many_and_how_short(trace: Trace, is_found: bool) -> None:
    assert nothing(BY_NAME["tiny-operators"], trace) != is_found


@pytest.mark.parametrize("name", ["tiny-operators", "slow-python"])
def test_a_trace_of_a_gpu_has_other_rules(name: str) -> None:
    loop = [op("aten::select", 10.0 + 4 * i, 3.0) for i in range(400)]
    assert nothing(BY_NAME[name], written(step(1, 0.0, 5000.0), *loop, *work(1, 4000.0, 4010.0, 10.0)))
    assert nothing(BY_NAME[name], written(step(1, 0.0, 5000.0), *loop, launch(1, 4000.0))), "its kernels are lost"
    assert not nothing(BY_NAME[name], written(step(1, 0.0, 5000.0), *loop))


def adam(parameters: int, name: str = "aten::addcdiv_", inside: str = "") -> Trace:
    """A step of 10 ms: an optimizer with an operator of 10 us for each parameter, and 5 us of Python after each."""
    events = [step(1, 0.0, 10_000.0), op("aten::mm", 0.0, 2_000.0), annotation(ADAM, 3_000.0, 6_000.0)]
    for index in range(parameters):
        events.append(op(name, 3_100.0 + 15 * index, 10.0))
        events += [op(inside, 3_101.0 + 15 * index, 8.0)] if inside else []
    return written(*events)


def test_an_optimizer_that_loops_on_the_cpu() -> None:
    finding = found(BY_NAME["optimizer-loop"], adam(60))
    assert finding.title == (
        "The optimizer runs 60 operators per step, each for one tensor: 895 µs (9 %) with the Python between them"
    )
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (895.0, 885.0)
    assert finding.where == ADAM
    assert "Construct the optimizer with `fused=True`" in finding.advice
    beside_a_gpu = msgspec.structs.replace(adam(60), devices=({"name": "NVIDIA H200"},))
    assert found(BY_NAME["optimizer-loop"], beside_a_gpu).advice == "", "that of the rule, for any device"
    assert nothing(BY_NAME["optimizer-loop"], adam(49))
    assert nothing(BY_NAME["optimizer-loop"], adam(60, "aten::_foreach_add_", "aten::add_"))
    assert nothing(BY_NAME["tiny-operators"], adam(300))


def typed(kind: str, shape: list[int], share: float = 0.2) -> Trace:
    """A step of 1 ms with 800 us of operators; `share` of it is a product with inputs of type `kind`, inside another
    operator with the same inputs."""
    at, lasts = 800.0 * (1 - share), 800.0 * share
    return written(
        step(1, 0.0, 1000.0),
        op("aten::mm", 0.0, at, dims=[[8, 8], [8, 8]], types=["float", "float"]),
        op("aten::matmul", at, lasts, dims=[[8, 8], shape], types=["float", kind]),
        op("aten::mul", at + 10.0, lasts - 20.0, dims=[[8, 8], shape], types=["float", kind]),
    )


def test_float64_on_the_cpu() -> None:
    finding = found(BY_NAME["float64-kernels"], typed("double", [8, 8]))
    assert finding.title == "2 operators in float64: 160 µs per step, the longest aten::mul"
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (160.0, 160.0)
    assert nothing(BY_NAME["float64-kernels"], typed("float", [8, 8]))
    assert nothing(BY_NAME["float64-kernels"], typed("double", [])), "a Python float"
    assert nothing(BY_NAME["float64-kernels"], typed("double", [8, 8], 0.95)), "on purpose"
    unable = cannot_tell(BY_NAME["float64-kernels"], written(step(1, 0.0, 1000.0), op("aten::mm", 0.0, 400.0)))
    assert (unable.reason, unable.option) == ("operators have no types", "record_shapes=True")


def test_slow_python_names_the_innermost_own_function() -> None:
    """A step of 10 ms with 3 ms of Python: `log` calls json for 2 ms."""
    functions = [
        function("train.py(3): main", 0.0, 10_000.0),
        function("train.py(40): log", 5_000.0, 3_000.0),
        function("lib/python3.11/json/__init__.py(183): dumps", 5_500.0, 2_000.0),
    ]
    events = [step(1, 0.0, 10_000.0), op("aten::mm", 100.0, 4_900.0), op("aten::mm", 8_000.0, 1_900.0)]
    finding = found(BY_NAME["slow-python"], written(*events, functions=functions))
    assert finding.title == "Code outside operators takes 3.00 ms per step (30 %), 1 time of at least 1 ms"
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (3_000.0, 3_000.0)
    assert (finding.where, finding.evidence[0].name) == ("train.py(40): log", "train.py(40): log")
    sleeping = [functions[0], function("<built-in function sleep>", 5_500.0, 2_000.0)]
    assert found(BY_NAME["slow-python"], written(*events, functions=sleeping)).where == "train.py(3): main"
    bare = found(BY_NAME["slow-python"], written(*events))
    assert (bare.where, bare.evidence[0].name) == ("", "outside operators")
    assert bare.advice.startswith("with_stack=True shows which functions run.")
    assert nothing(BY_NAME["slow-python"], written(*events[:2], op("aten::mm", 5_400.0, 4_500.0)))


def pausing(pauses_us: Sequence[float], after: str = "aten::relu") -> Trace:
    """A step for each pause, with an operator of 10 ms before it and one of 10 us after it."""
    events, at = [], 0.0
    for number, us in enumerate(pauses_us):
        events += [step(number, at, 10_010.0 + us), op("aten::mm", at, 10_000.0), op(after, at + 10_000.0 + us, 10.0)]
        at += 10_010.0 + us
    return written(*events)


@pytest.mark.parametrize(
    ("trace", "is_found"),
    [
        (pausing([3_000.0, 3_000.0]), True),
        (pausing([3_000.0, 0.0]), False),  # once in two steps
        (pausing([3_000.0, 0.0, 0.0, 3_000.0, 0.0, 0.0]), True),  # every third step
        (pausing([3_000.0, *[0.0] * 30, 3_000.0, *[0.0] * 30]), False),
        (pausing([3_000.0, 3_000.0], "autograd::engine::evaluate_function: MulBackward0"), False),
    ],
)
def test_a_pause_by_chance_is_not_slow_code(trace: Trace, is_found: bool) -> None:
    assert nothing(BY_NAME["slow-python"], trace) != is_found


def test_a_thread_that_waits_for_others_is_not_slow() -> None:
    """A gradient is reduced on a thread of its own, while the loop's thread waits."""
    events = [step(1, 0.0, 10_000.0), annotation("gloo:all_reduce", 500.0, 9_000.0, tid=7)]
    unable = cannot_tell(BY_NAME["slow-python"], written(*events, op("aten::empty", 12_000.0, 5.0)))
    assert unable.reason == "no step has an operator on its own thread"
    assert nothing(BY_NAME["slow-python"], written(*events, op("aten::mm", 0.0, 490.0)))


def test_the_slow_line_of_a_dataset() -> None:
    """The comprehension takes most of the fetch, with the tokenizer of a library that it calls."""
    functions = [
        function("train.py(3): main", 0.0, 1000.0),
        function("torch/utils/data/dataloader.py(700): __next__", 10.0, 390.0),
        function("data.py(20): __getitem__", 20.0, 370.0),
        function("data.py(22): <listcomp>", 40.0, 300.0),
        function("site-packages/tokenizers/encode.py(9): encode", 60.0, 250.0),
    ]
    events = [step(1, 0.0, 1000.0), annotation(FETCH, 5.0, 400.0), op("aten::mm", 450.0, 500.0)]
    finding = found(BY_NAME["loader-stall"], written(*events, functions=functions))
    assert finding.where == f"{FETCH} at data.py(22): <listcomp>"
    assert "num_workers" in finding.advice
    assert not {"pin_memory", "GPU"} & set(finding.advice.replace("=", " ").split())


def test_what_only_a_gpu_shows_has_one_reason() -> None:
    facts = Facts(token_loop(10))
    unknown = [result for rule in RULES if isinstance(result := rule.check(facts), CannotTell)]
    reasons = {each.reason for each in unknown if "GPU" in each.option or "CUDA" in each.option}
    assert reasons == {"no step has GPU work"}
