"""The kernels against float64: `LOCAL_KERNELS=profiling-pytorch/geglu-kernels=$PWD pytest tests`."""

import kernels
import pytest
import torch
from torch.nn import functional as F

geglu = kernels.get_kernel("profiling-pytorch/geglu-kernels", version=1)
ACTIVATIONS = {
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "gelu": F.gelu,
    "silu": F.silu,
}


@pytest.fixture
def device() -> str:
    """The GPU, which these tests need."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return "cuda"


def gated(x, gate, up, down, activation):
    """The MLP in plain PyTorch."""
    return F.linear(
        ACTIVATIONS[activation](F.linear(x, gate)) * F.linear(x, up), down
    )


def distance(found, expected) -> float:
    """Relative, of all elements together."""
    return ((found.double() - expected).norm() / expected.norm()).item()


@pytest.mark.kernels_ci
@pytest.mark.parametrize(
    ("tokens", "dtype", "activation"),
    [
        (1, torch.bfloat16, "silu"),
        (17, torch.float16, "gelu"),
        (500, torch.bfloat16, "gelu_tanh"),
    ],
)
def test_results_and_gradients(device, tokens, dtype, activation):
    """Nearer to float64 than twice eager's distance; dim and hidden are no multiples of a tile."""
    torch.manual_seed(0)
    tensors = [
        (scale * torch.randn(*shape, device=device)).to(dtype).requires_grad_()
        for scale, shape in (
            (1, (tokens, 200)),
            (0.07, (328, 200)),
            (0.07, (328, 200)),
            (0.05, (200, 328)),
        )
    ]
    d_out = torch.randn(tokens, 200, device=device, dtype=dtype)

    def results(function, inputs, d_out):
        out = function(*inputs, activation)
        return [out, *torch.autograd.grad(out, inputs, d_out)]

    exact = results(
        gated,
        [tensor.detach().double().requires_grad_() for tensor in tensors],
        d_out.double(),
    )
    eager, ours = (
        results(function, tensors, d_out)
        for function in (gated, geglu.gated_mlp)
    )
    for expected, plain, found in zip(exact, eager, ours, strict=True):
        assert found.dtype == dtype
        assert distance(found, expected) <= 2 * distance(plain, expected)
    with torch.no_grad():
        assert distance(
            geglu.gated_mlp(*tensors, activation), exact[0]
        ) <= 2 * distance(eager[0], exact[0])
