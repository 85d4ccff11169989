"""Every loop of the chapter on a CPU, small: before and after its mend, its losses are those of float32."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator

import pytest
import torch

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop, open_loop, profile_loop
from snippets.lab.capture.profiling import chrome_trace
from snippets.lab.experiment import Experiment, NeedsGpu, find
from snippets.lab.trace.kineto import read_trace
from snippets.training_step import faults
from snippets.training_step.compiling import lengths, warnings_of, with_own_precision
from snippets.training_step.data import Texts, Varied
from snippets.training_step.experiments import step_work
from snippets.training_step.model import Tokens
from snippets.training_step.probes import profiler_costs, ten_lines

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup:UserWarning"),
]
SMALL = {"vocab": 64, "dim": 32, "heads": 2, "layers": 1, "seq": 32, "batch": 2}
LOOPS = [one for one in find("training_step") if one.loop is not None]
COMPILED = ("recompile_before", "recompile_after", "tiny_compiled", "tiny_after")
ON_A_GPU = ("pageable_after",)
PLAIN = [one for one in LOOPS if one.name not in (*COMPILED, *ON_A_GPU)]
instruments = TorchInstruments()


@pytest.mark.parametrize("experiment", PLAIN, ids=lambda experiment: experiment.name)
def test_a_loop_is_right_and_traced(experiment: Experiment) -> None:
    vocab = 1000 if experiment.group == "vocabulary" else SMALL["vocab"]  # padded to 1024, the losses differ little
    with open_loop(experiment.at(**{**SMALL, "vocab": vocab}), "cpu") as loop:
        error, dtype, _ = check_loop(loop, "cpu")
        assert 0 <= error < loop.tolerance
        assert dtype == "float32"
        trace = read_trace(chrome_trace(profile_loop(experiment, loop, "cpu")))
    assert len(trace.steps) == experiment.schedule.active
    for step in trace.steps:
        assert step.find_annotation("train_step")
        for phase in ("forward", "loss", "backward", "clip", "optimizer"):
            assert step.find_annotation(phase), phase
    assert bool(trace.functions) == bool(trace.memory) == (experiment.name == "healthy_stacks")


def test_losses_fall() -> None:
    (healthy,) = find("training_step/healthy")
    with open_loop(healthy.at(**SMALL), "cpu") as loop:
        losses = [next(loop.losses).item() for _ in range(30)]
    assert losses[-1] < losses[0] - 0.1


def test_a_copy_on_its_own_stream_needs_a_gpu() -> None:
    (after,) = find("training_step/pageable_after")
    with pytest.raises(NeedsGpu, match="pageable_before runs here"), open_loop(after, "cpu"):
        pass


@pytest.mark.parametrize("name", ["clocks", "memory"])
def test_probes_of_a_gpu_say_so(name: str) -> None:
    (experiment,) = find(f"training_step/{name}")
    assert experiment.probe is not None
    with pytest.raises(NeedsGpu, match="training_step/healthy runs here"):
        experiment.probe(instruments, "cpu", **experiment.parameters)


def calls(name: str, operator: str) -> int:
    """Calls of an operator in a traced step."""
    (experiment,) = find(f"training_step/{name}")
    with open_loop(experiment.at(**SMALL), "cpu") as loop:
        next(loop.losses)  # the healthy loop prints its first loss
        step = read_trace(chrome_trace(profile_loop(experiment, loop, "cpu"))).steps[0]
    return sum(op.name == operator for op in step.ops)


def test_what_each_fault_calls_and_its_mend_does_not() -> None:
    assert calls("item_before", "aten::item") - calls("item_after", "aten::item") == 3
    assert calls("layout_before", "aten::contiguous") - calls("layout_after", "aten::contiguous") >= 3
    assert calls("attention_before", "aten::softmax") - calls("attention_after", "aten::softmax") == 1
    counts = [calls(f"optimizer_{name}", "aten::addcdiv_") for name in ("before", "foreach", "after")]
    assert counts[0] > 8 > counts[2] == 0
    assert calls("optimizer_after", "aten::_fused_adamw_") >= 1


def test_a_text_is_its_tokens() -> None:
    tokens, texts = Tokens(64, 32), Texts(64, 32)
    for index in (0, 1, 17):
        assert torch.equal(tokens[index], texts[index])


def test_lengths_vary_and_repeat_after_twelve() -> None:
    varied = Varied(**SMALL)
    seen = [varied[index].shape[1] for index in range(24)]
    assert len(set(seen)) == 12
    assert seen[:12] == seen[12:]
    assert max(seen) == SMALL["seq"] + 1


def test_the_work_of_a_step() -> None:
    work = step_work(vocab=10, dim=4, heads=2, layers=3, seq=8, batch=2)
    linear = 3 * 12 * 16 + 4 * 10
    assert work.flops == 3 * 2 * (16 * linear + 3 * 2 * 16 * 8 * 4 // 2)
    assert work.bytes == 32 * (linear + 40)


def test_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the right one waits, before and after."""
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
    assert faults.timing_before(lambda: log.append("phase")) >= 0
    assert faults.timing_after(lambda: log.append("phase")) >= 0
    assert log == ["phase", "wait", "phase", "wait"]


def test_what_the_ten_lines_print() -> None:
    found = ten_lines(instruments, "cpu", **SMALL)
    assert "Self CPU %" in found["printed"]
    assert "Input Shapes" in found["printed"]
    assert found["trace_bytes"] > 1000


def test_the_price_of_the_profilers_options() -> None:
    sizes = json.dumps(SMALL)
    found = profiler_costs(instruments, "cpu", rounds=2, active=1, tiny=sizes, healthy=sizes)
    for loop in found.values():
        assert list(loop) == ["without", "none", "record_shapes", "profile_memory", "with_stack", "all three"]
        assert all(len(entry["us"]) == 2 for entry in loop.values())
        assert loop["none"]["bytes"] < loop["with_stack"]["bytes"] < loop["all three"]["bytes"]


def test_warnings_are_collected_and_the_logger_is_left_as_it_was() -> None:
    import logging

    logger = logging.getLogger("training_step.test")
    with warnings_of(logger.name) as lines:
        logger.warning("the last %s", "reason")
        logger.info("too quiet")
    assert lines == ["the last reason"]
    assert (logger.propagate, logger.handlers, logger.level) == (True, [], logging.NOTSET)


@pytest.fixture
def quick_compiler() -> Iterator[None]:
    """Dynamo without Inductor: what is compiled how often is the same."""
    compile_model = torch.nn.Module.compile

    def eager(self: torch.nn.Module, **options: object) -> None:
        options.pop("mode", None)
        compile_model(self, backend="aot_eager", **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.nn.Module, "compile", eager)
        yield


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled:UserWarning")
def test_lengths_are_compiled_until_the_limit_or_once() -> None:
    found = lengths(instruments, "cpu", iterations=12, **SMALL)
    assert {variant: each["graphs"][-1] for variant, each in found.items()} == {"before": 8, "after": 1, "padded": 1}
    assert found["before"]["graphs"] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8]
    assert sum("recompile_limit" in line for line in found["before"]["warnings"]) == 1
    assert all(len(each["us"]) == 12 for each in found.values())


def test_a_loop_keeps_its_precision_to_itself() -> None:
    outside = torch.get_float32_matmul_precision()
    seen: list[str] = []

    def loop() -> Generator[int, None, None]:
        torch.set_float32_matmul_precision("high")
        for step in range(3):
            seen.append(torch.get_float32_matmul_precision())
            yield step

    losses = with_own_precision(loop())
    for _ in range(2):
        next(losses)
        assert torch.get_float32_matmul_precision() == outside
    losses.close()
    assert outside != "high"
    assert seen == ["high", "high"]
