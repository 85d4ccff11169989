"""The compiler's code for attention on a CPU; a C++ compiler runs for each."""

from __future__ import annotations

import pytest
import torch

from snippets.attention import model
from snippets.attention.experiments import others
from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import find
from tests.chapters.attention.test_model import BF16, COMPILED, attention, drawn, error

SMALL = {"batch": 2, "heads": 3, "tokens": 65, "keys": 65, "head_dim": 64}
"""Shapes of `drawn`: what is compiled for one test is there for another."""
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@pytest.mark.parametrize("name", ["compiled", "flex", "training_compiled", "decode_compiled", "decode_flex"])
def test_it_is_right_here(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    (experiment,) = find(f"attention/{name}")
    assert experiment.make is not None
    subject = experiment.make("cpu", **{key: SMALL[key] for key in experiment.parameters})
    error, dtype, _ = relative_error(subject, "cpu")
    assert 0 < error < 7e-3
    assert (dtype, subject.in_graph, subject.notes) == ("float64", True, {})


def test_what_the_compiler_makes_of_it() -> None:
    """Two products with one fused loop between them: it does not see that this is attention."""
    fused = "cpp_fused__softmax_masked_fill_mul_view_0"
    assert others.compiled_code(TorchInstruments(), "cpu", 1, 2, 64, 64) == {
        "fused_attention": 0,
        "calls": ["extern_kernels.bmm", fused, "extern_kernels.bmm"],
        "kernels": [],
    }


@pytest.mark.parametrize(("masked", "met"), [(True, 0), (False, 1)])
def test_inductor_meets_attention_without_a_mask_only(masked: bool, met: int) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    q, k, v = (torch.randn(1, 2, 16, 8, dtype=torch.bfloat16) for _ in range(3))
    torch._dynamo.reset()
    counters.clear()
    with torch.no_grad(), fresh_cache():  # code out of the cache counts no patterns
        torch.compile(model.naive, dynamic=False)(q, k, v, model.future(16, "cpu") if masked else None)
    assert counters["inductor"]["fuse_attention"] == met


@pytest.mark.parametrize("variant", COMPILED)
def test_compiled_and_flex_are_exact(variant: str) -> None:
    """Causal, and a decode step: one query that sees all keys."""
    torch._dynamo.reset()
    with torch.no_grad():
        tensors = drawn(65, 64)
        found = attention(variant, "cpu", 65)(*tensors)
        assert error(found, model.reference(*tensors, model.future(65, "cpu"))) < BF16
        one_query = (tensors[0][:, :, :1].contiguous(), *tensors[1:])
        found = attention(variant, "cpu", 65, causal=False)(*one_query)
        assert error(found, model.reference(*one_query)) < BF16
