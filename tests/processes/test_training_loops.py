"""Every loop of training_step on a CPU, small: traced, its losses those of float32; its loaders start processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop, open_loop, profile_loop
from snippets.lab.capture.profiling import chrome_trace
from snippets.lab.experiment import Experiment, find
from snippets.training_step.experiments.compiling import graph_breaks, lengths, tuning
from snippets.training_step.probes import profiler_costs

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup:UserWarning"),
]
SMALL = {"vocab": 64, "dim": 32, "heads": 2, "layers": 1, "seq": 32, "batch": 2}
LOOPS = [one for one in find("training_step") if one.loop is not None]
COMPILED = ("breaks_before", "breaks_after", "recompile_before", "recompile_after", "tiny_compiled", "tiny_after")
ON_A_GPU = ("pageable_after",)
PLAIN = [one for one in LOOPS if one.name not in (*COMPILED, *ON_A_GPU)]
instruments = TorchInstruments()


@cache
def checked_and_traced(name: str) -> Trace:
    """The trace of a loop whose losses are those of float32."""
    (experiment,) = find(f"training_step/{name}")
    vocab = 1000 if experiment.group == "vocabulary" else SMALL["vocab"]  # padded to 1024, the losses differ little
    with open_loop(experiment.at(**{**SMALL, "vocab": vocab}), "cpu") as loop:
        error, dtype, _ = check_loop(loop, "cpu")
        assert 0 <= error < loop.tolerance
        assert dtype == "float32"
        return read_trace(chrome_trace(profile_loop(experiment, loop, "cpu")))


@pytest.mark.parametrize("experiment", PLAIN, ids=lambda experiment: experiment.name)
def test_a_loop_is_right_and_traced(experiment: Experiment) -> None:
    trace = checked_and_traced(experiment.name)
    assert len(trace.steps) == experiment.schedule.active
    for step in trace.steps:
        assert step.find_annotation("train_step")
        for phase in ("forward", "loss", "backward", "clip", "optimizer"):
            assert step.find_annotation(phase), phase
    assert bool(trace.functions) == bool(trace.memory) == (experiment.name == "healthy_stacks")


def calls(name: str, operator: str) -> int:
    """Calls of an operator in a traced step."""
    return sum(op.name == operator for op in checked_and_traced(name).steps[0].ops)


def test_what_each_fault_calls_and_its_mend_does_not() -> None:
    assert calls("item_before", "aten::item") - calls("item_after", "aten::item") == 3
    assert calls("layout_before", "aten::contiguous") - calls("layout_after", "aten::contiguous") >= 3
    assert calls("attention_before", "aten::softmax") - calls("attention_after", "aten::softmax") == 1
    counts = [calls(f"optimizer_{name}", "aten::addcdiv_") for name in ("before", "foreach", "after")]
    assert counts[0] > 8 > counts[2] == 0
    assert calls("optimizer_after", "aten::_fused_adamw_") >= 1


def test_the_price_of_the_profilers_options() -> None:
    sizes = json.dumps(SMALL)
    found = profiler_costs(instruments, "cpu", rounds=2, active=1, tiny=sizes, healthy=sizes)
    for loop in found.values():
        assert list(loop) == ["without", "none", "record_shapes", "profile_memory", "with_stack", "all three"]
        assert all(len(entry["us"]) == 2 for entry in loop.values())
        assert loop["none"]["bytes"] < loop["with_stack"]["bytes"] < loop["all three"]["bytes"]


@pytest.fixture
def compiled() -> Iterator[list[torch.fx.GraphModule]]:
    """Dynamo alone: it decides what is compiled how often. Collects the graphs."""
    compile_model, graphs = torch.nn.Module.compile, list[torch.fx.GraphModule]()

    def collect(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    def without_inductor(self: torch.nn.Module, **options: object) -> None:
        options.pop("mode", None)
        compile_model(self, backend=collect, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.nn.Module, "compile", without_inductor)
        yield graphs


@pytest.mark.usefixtures("compiled")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled:UserWarning")
def test_lengths_are_compiled_until_the_limit_or_once() -> None:
    found = lengths(instruments, "cpu", iterations=12, **SMALL)
    assert {variant: each["graphs"][-1] for variant, each in found.items()} == {"before": 8, "after": 1, "padded": 1}
    assert found["before"]["graphs"] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8]
    assert sum("recompile_limit" in line for line in found["before"]["warnings"]) == 1
    assert all(len(each["us"]) == 12 for each in found.values())


@pytest.mark.usefixtures("compiled")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_check_in_each_block_breaks_the_graph() -> None:
    found = graph_breaks(instruments, "cpu", **SMALL)
    assert found["before"]["graphs"] > found["after"]["graphs"] == 1
    assert any("data-dependent" in reason.lower() for reason in found["before"]["breaks"])
    assert found["after"]["breaks"] == []


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled:UserWarning")
def test_each_of_the_first_iterations_is_a_profile(compiled: list[torch.fx.GraphModule]) -> None:
    steps = tuning(instruments, "cpu", iterations=3, **SMALL)["steps"]
    assert len(compiled) == 1, "the first iteration compiles, the others don't"
    assert all(step["us"] > 0 for step in steps)
    assert [(step["kernels"], step["busy_us"], step["names"]) for step in steps] == [(0, 0.0, {})] * 3
