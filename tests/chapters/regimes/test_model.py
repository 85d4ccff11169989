"""The stack on the CPU, against its reference; its work; what needs a GPU says so."""

from __future__ import annotations

import pytest
import torch

from snippets.lab.experiment import NeedsGpu
from snippets.regimes.experiments.subjects import geglu, gelu, gelu_work, stack, stack_step, stack_work
from snippets.regimes.model import Stack, stack_reference


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_stack_and_its_reference(blocks: int) -> None:
    module = Stack(32, 64, blocks).double()
    x = torch.randn(5, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(module(x), stack_reference(x, list(module.parameters())))


def test_blocks_keep_the_size_of_the_numbers() -> None:
    module, x = Stack(256, 1024, 8), torch.randn(64, 256)
    with torch.no_grad():
        y = module(x)
    assert 0.2 < y.std(dim=0).mean() < 2, "the result no longer depends on the input"


@pytest.mark.parametrize("blocks", [1, 8])
def test_a_subject_is_right_on_the_cpu(blocks: int) -> None:
    subject = stack("cpu", "eager", tokens=4, dim=32, hidden=64, blocks=blocks)
    inputs = subject.inputs()
    result, expected = subject.step(*inputs).double(), subject.reference(*inputs)
    assert (result - expected).norm() / expected.norm() < subject.tolerance
    assert not result.requires_grad


def test_the_other_subjects_are_right_on_the_cpu() -> None:
    for subject in (geglu("cpu", tokens=4, dim=32, hidden=64), gelu("cpu", tokens=4, hidden=64)):
        inputs = subject.inputs()
        result, expected = subject.step(*inputs).double(), subject.reference(*inputs)
        assert (result - expected).norm() / expected.norm() < subject.tolerance


@pytest.mark.parametrize("variant", ["fused", "graphed", "fused_graphed", "reduce_overhead"])
def test_what_needs_a_gpu(variant: str) -> None:
    with pytest.raises(NeedsGpu, match=variant):
        stack_step(variant, Stack(8, 16), torch.zeros(2, 8))


def test_an_unknown_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        device = torch.device("cuda")

    with pytest.raises(ValueError, match="no variant 'quick'"):
        stack_step("quick", Stack(8, 16), OnGpu())  # type: ignore[arg-type]


def test_the_work_of_a_step() -> None:
    """Two tokens, 3 wide, 5 between: 12 numbers in and out; for each of two blocks 30 weights, 8 biases."""
    work = stack_work(tokens=2, dim=3, hidden=5, blocks=2)
    assert work.bytes == 2 * (12 + 2 * 38)
    assert work.matmuls == ((2, 3, 5), (2, 5, 3)) * 2
    assert work.flops == 2 * (2 * 60 + 100)
    assert gelu_work(tokens=2, hidden=5).bytes == 40
