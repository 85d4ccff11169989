"""Steps of the experiments on fusion, on the CPU at small sizes."""

from __future__ import annotations

import pytest
import torch

from snippets.lab.capture.checking import relative_error
from snippets.regimes.experiments.caching import rounds_of
from snippets.regimes.experiments.fusing import written_out
from snippets.regimes.experiments.layer import layer_subjects, layer_work
from snippets.regimes.experiments.modules import stack_of
from snippets.regimes.findings.fusing import has_bias


@pytest.mark.parametrize("variant", ["linear", "eager"])
def test_a_step_is_its_reference(variant: str) -> None:
    subject = layer_subjects("cpu", 5, 32, 64)[variant]
    assert relative_error(subject, "cpu")[0] <= 1e-2


def test_written_out_is_the_stack() -> None:
    stack = stack_of("cpu", 8, 16, "float32")
    x = torch.randn(3, 8)
    assert torch.allclose(written_out(*stack.parameters())(x), stack(x), atol=1e-5)


def test_work_has_each_tensor_once() -> None:
    assert layer_work(2, 3, 5).bytes == 2 * (6 + 15 + 5 + 10)


def test_rounds_turn_the_order_of_sizes() -> None:
    products = {tokens: lambda tokens=tokens: torch.ones(tokens, 8) for tokens in (2, 3)}
    ran = rounds_of(products, torch.ones(4), rounds=2)
    ops, whens = ("gelu", "negation"), ("after", "flushed")
    assert ran == [(op, tokens, when) for tokens in (2, 3, 3, 2) for op in ops for when in whens]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", True),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", False),
        ("triton_poi_fused_add_gelu_0", True),
        ("triton_poi_fused_gelu_0", False),
    ],
)
def test_a_name_tells_of_a_bias(name: str, expected: bool) -> None:
    assert has_bias(name) is expected
