"""The fact check's experiments on a CPU: the article's layer, its table, and the block in all its forms."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from snippets.fact_check import experiments
from snippets.fact_check.experiments import TOKENS, block_subjects, matmul_precision
from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Instruments, Subject, WrongAnswer
from snippets.lab.recording.schema import Timing

pytestmark = pytest.mark.filterwarnings("ignore:CUDA is not available")
instruments = TorchInstruments()


def test_the_articles_table_can_still_be_printed() -> None:
    found = experiments.article_table(instruments, "cpu")
    names = [row["name"] for row in found["rows"]]
    assert {"linear_forward", "aten::linear", "aten::t", "aten::addmm"} <= set(names)
    assert not any(row["is_kernel"] for row in found["rows"])
    assert found["activities"] == []
    assert "aten::addmm" in found["table"]


def test_the_layer_of_other_sizes() -> None:
    subject = experiments.article_linear("cpu", 3, 5, 7)
    assert subject.step(*subject.inputs()).shape == (3, 7)
    assert relative_error(subject, "cpu")[0] < 1e-5


@pytest.mark.parametrize(("arithmetic", "limit"), [("float32", 1e-3), ("tf32", 1e-3), ("bfloat16", 1e-2)])
def test_every_form_of_the_block_is_right(arithmetic: str, limit: float) -> None:
    """On a CPU, the product with an epilogue takes GELU by erf: within a thousandth."""
    subjects = block_subjects("cpu", arithmetic, 8, 16, 32)
    assert list(subjects) == ["linear", "gelu", "block", "epilogue"]
    assert all(relative_error(each, "cpu")[0] < limit for each in subjects.values())


def test_tf32_ends_with_its_block() -> None:
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_sizes_rise_and_begin_with_the_articles_batch() -> None:
    for sizes in TOKENS.values():
        assert sizes[0] == experiments.ARTICLE["batch"]
        assert list(sizes) == sorted(set(sizes))


class Bench:
    """Instruments whose every time is 10 us, and for which one subject is wrong."""

    def __init__(self, wrong: Subject) -> None:
        self.wrong = wrong

    def relative_error(self, subject: Subject, device: str) -> tuple[float, str, int]:
        if subject is self.wrong:
            raise WrongAnswer("relative error 1e+00\nmore")
        return 0.001, "float64", 0

    def prepare(self, subject: Subject) -> Subject:
        return subject

    def time_prepared(self, variants: dict[str, Subject], rounds: int) -> dict[str, Timing]:
        return {name: Timing.from_samples([10.0] * rounds) for name in variants}


def test_a_wrong_answer_is_noted_and_not_timed() -> None:
    subjects = block_subjects("cpu", "float32", 8, 16, 32)
    found: dict[str, Any] = {"failed": {}}
    samples, errors = experiments._timed(
        cast(Instruments, Bench(subjects["gelu"])), subjects, found, "float32, 8 tokens"
    )
    assert found["failed"] == {"float32, 8 tokens, gelu": "WrongAnswer: relative error 1e+00"}
    assert list(samples) == list(errors) == ["linear", "block", "epilogue"]
    assert samples["block"] == [10.0] * experiments.ROUNDS
