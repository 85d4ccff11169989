"""Tokens with and without the kernels: `LOCAL_KERNELS=profiling-pytorch/llama-decode-kernels=$PWD pytest tests`."""

import copy
from types import MethodType

import kernels
import pytest
import torch

package = kernels.get_kernel(
    "profiling-pytorch/llama-decode-kernels", version=1
)


@pytest.fixture
def device() -> str:
    """The GPU, which these tests need."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return "cuda"


@pytest.mark.kernels_ci
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_logits(device, cache, batch):
    """A token after a prompt: not further from float64 than twice the model's own bfloat16."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1408, num_hidden_layers=2,
        vocab_size=1000, num_attention_heads=8, num_key_value_heads=2,
    )  # fmt: skip
    plain = transformers.LlamaForCausalLM(config).to(device, torch.bfloat16)
    plain.eval()
    ours, exact = copy.deepcopy(plain), copy.deepcopy(plain).double()
    forward = package.layers.DecodeLayer.forward
    for layer in ours.model.layers:
        layer.forward = MethodType(forward, layer)
    ids = torch.randint(3, 1000, (batch, 20), device=device)

    def logits(model):
        kept = transformers.DynamicCache(config=config)
        if cache == "static":
            kept = transformers.StaticCache(config=config, max_cache_len=32)
        with torch.no_grad():
            model(ids[:, :-1], past_key_values=kept)
            return model(ids[:, -1:], past_key_values=kept).logits.double()

    expected = logits(exact)
    error, error_of_plain = (
        (logits(model) - expected).norm() for model in (ours, plain)
    )
    assert 0 < error <= 2 * error_of_plain
