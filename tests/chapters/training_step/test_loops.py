"""The parts of the chapter's loops, small on a CPU. tests/processes/test_training_loops.py runs each loop."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import torch

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import open_loop
from snippets.lab.experiment import NeedsGpu, find
from snippets.training_step import faults
from snippets.training_step.data import Texts, Varied
from snippets.training_step.experiments import step_work
from snippets.training_step.experiments.compiling import warnings_of, with_own_precision
from snippets.training_step.model import Tokens
from snippets.training_step.probes import ten_lines

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Profiler won't be using warmup:UserWarning"),
]
SMALL = {"vocab": 64, "dim": 32, "heads": 2, "layers": 1, "seq": 32, "batch": 2}
instruments = TorchInstruments()


def test_losses_fall() -> None:
    (healthy,) = find("training_step/healthy")
    with open_loop(healthy.at(**SMALL), "cpu") as loop:
        losses = [next(loop.losses).item() for _ in range(30)]
    assert losses[-1] < losses[0] - 0.1


def test_a_copy_on_its_own_stream_needs_a_gpu() -> None:
    (after,) = find("training_step/pageable_after")
    with pytest.raises(NeedsGpu, match="pageable_before runs here"), open_loop(after, "cpu"):
        pass


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


def test_warnings_are_collected_and_the_logger_is_left_as_it_was() -> None:
    import logging

    logger = logging.getLogger("training_step.test")
    with warnings_of(logger.name) as lines:
        logger.warning("the last %s", "reason")
        logger.info("too quiet")
    assert lines == ["the last reason"]
    assert (logger.propagate, logger.handlers, logger.level) == (True, [], logging.NOTSET)


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
