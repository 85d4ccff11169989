"""The chapter linear's model and experiments, run on the CPU at small and odd sizes."""

from __future__ import annotations

import pytest
import torch

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Work
from snippets.linear import experiments, model

ODD = {"batch": 5, "in_dim": 3, "out_dim": 7}


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-15), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
def test_the_layer_is_a_product_with_the_transpose_and_a_sum(dtype: torch.dtype, tolerance: float) -> None:
    layer = model.linear(3, 7).to(dtype)
    x = torch.randn(5, 3, dtype=dtype)
    assert layer.weight.shape == (7, 3)
    expected = x.double() @ layer.weight.double().t() + layer.bias.double()
    assert relative(layer(x).detach(), expected.detach()) < tolerance


def test_a_transpose_changes_the_walk_and_not_the_memory() -> None:
    assert model.strides() == {
        "m": ((3, 2), (2, 1)),
        "m.t()": ((2, 3), (1, 2)),
        "same memory": True,
        "m.t().flatten()": [0, 2, 4, 1, 3, 5],
    }


def test_the_eager_step_agrees_with_its_reference() -> None:
    subject = experiments.eager("cpu", **ODD)
    inputs = subject.inputs()
    found = subject.step(*inputs)
    assert [(one.shape, one.dtype) for one in inputs] == [((5, 3), torch.bfloat16)]
    assert (found.shape, found.requires_grad) == ((5, 7), False)
    assert 0 < relative(found, subject.reference(*inputs)) < subject.tolerance


def test_inputs_are_drawn_anew() -> None:
    subject = experiments.eager("cpu", **ODD)
    assert not torch.equal(subject.inputs()[0], subject.inputs()[0])


def test_the_reference_sees_weight_and_bias() -> None:
    subject = experiments.eager("cpu", **ODD)
    (x,) = subject.inputs()
    at_zero, at_x = subject.reference(torch.zeros_like(x)), subject.reference(x)
    assert at_zero.dtype == torch.float64
    assert (at_zero != 0).all(), "the bias alone"
    assert not torch.equal(at_zero, at_x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on importing its compiler
def test_the_compiled_step_agrees_and_new_strides_are_compiled_for() -> None:
    subject = experiments.compiled("cpu", **ODD)
    (x,) = subject.inputs()
    assert relative(subject.step(x), subject.reference(x)) < subject.tolerance

    found = experiments.new_strides(TorchInstruments(), "cpu", **ODD)
    assert found["strides"] == [[3, 1], [1, 5]]
    assert found["graphs"] == [1, 2]
    assert found["raised"] == ""
    assert found["largest_difference"] < 1e-2


def test_work_is_each_number_once() -> None:
    assert experiments.linear_work(**ODD) == Work(bytes=2 * (15 + 21 + 7 + 35), matmuls=((5, 3, 7),))
    assert experiments.linear_work(**ODD).flops == 2 * 105
    assert experiments.linear_work(**experiments.POST) == Work(bytes=200_832, matmuls=((1024, 32, 64),))
    assert experiments.linear_work(**experiments.WIDE).flops == 536_870_912


def test_the_experiments_of_a_shape_are_timed_in_turns() -> None:
    by_group: dict[str, list[str]] = {}
    for one in experiments.EXPERIMENTS:
        by_group.setdefault(one.group, []).append(one.name)
    assert by_group == {
        "post": ["eager", "compiled"],
        "wide": ["eager_wide", "compiled_wide"],
        "sweep": ["sweep_eager", "sweep_compiled"],
        "": ["new_strides"],
    }
