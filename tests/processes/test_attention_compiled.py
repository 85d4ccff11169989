"""What the compiler makes of attention on a CPU; a C++ compiler runs for each."""

from __future__ import annotations

import pytest
import torch

from snippets.attention import experiments
from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import find

SMALL = {"batch": 1, "heads": 2, "tokens": 65, "keys": 65, "head_dim": 64}
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
    assert experiments.compiled_code(TorchInstruments(), "cpu", 1, 2, 64, 64) == {
        "fused_attention": 0,
        "calls": ["extern_kernels.bmm", fused, "extern_kernels.bmm"],
        "kernels": [],
    }
