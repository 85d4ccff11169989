"""The model and the experiments of decoder on the CPU, at small and odd sizes."""

from __future__ import annotations

import pytest
import torch

from snippets.decoder import experiments, model
from snippets.lab.experiment import NeedsGpu

ODD = {"rows": 5, "dim": 7}


def test_each_row_has_the_root_mean_square_of_the_weight() -> None:
    x = torch.tensor([[3.0, 4.0], [30.0, -40.0]], dtype=torch.float64)
    result = model.rms_norm(x, torch.ones(2, dtype=torch.float64), eps=0.0)
    expected = torch.tensor([[3.0, 4.0], [3.0, -4.0]], dtype=torch.float64) / 12.5**0.5
    torch.testing.assert_close(result, expected)
    weighted = model.rms_norm(x, torch.tensor([1.0, 2.0], dtype=torch.float64), eps=0.0)
    torch.testing.assert_close(weighted[:, 1], expected[:, 1] * 2)


def test_a_step_agrees_with_its_reference() -> None:
    torch.manual_seed(0)
    subject = experiments.eager("cpu", **ODD)
    (x,) = subject.inputs()
    assert (x.shape, x.dtype) == ((5, 7), torch.bfloat16)
    expected = subject.reference(x)
    error = float((subject.step(x).double() - expected).norm() / expected.norm())
    assert 0 < error < subject.tolerance


def test_the_kernel_needs_a_gpu() -> None:
    with pytest.raises(NeedsGpu, match="run decoder/eager"):
        experiments.fused("cpu", **ODD)


def test_work_is_each_number_once() -> None:
    work = experiments.forward_work(**ODD)
    assert (work.bytes, work.flops) == (2 * (35 + 7 + 35), 4 * 35)


def test_the_variants_are_timed_interleaved() -> None:
    assert [(one.name, one.group) for one in experiments.EXPERIMENTS] == [("eager", "forward"), ("fused", "forward")]
