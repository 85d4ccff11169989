"""A stack of Linears with a GELU between each two: the subject of the chapter regimes."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F


# --8<-- [start:stack]
class Stack(nn.Module):
    """Blocks of Linear, GELU, Linear. x is (tokens, dim), as is the result of
    each block; the tensors between are (tokens, hidden)."""

    def __init__(self, dim: int, hidden: int, blocks: int = 1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(mlp_block(dim, hidden) for _ in range(blocks))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.blocks(x)
        return result


def mlp_block(dim: int, hidden: int) -> nn.Sequential:
    """One block, whose weights keep the magnitude of the activations."""
    up, down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
    nn.init.normal_(up.weight, std=dim**-0.5)
    nn.init.normal_(down.weight, std=(2 / hidden) ** 0.5)
    return nn.Sequential(up, nn.GELU(approximate="tanh"), down)


# --8<-- [end:stack]


def stack_reference(
    x: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The same stack in float64. `parameters` has four tensors for each block:
    weight and bias of its first Linear, then of its second."""
    x = x.double()
    for start in range(0, len(parameters), 4):
        up, up_bias, down, down_bias = (
            tensor.double() for tensor in parameters[start : start + 4]
        )
        x = F.gelu(x @ up.t() + up_bias, approximate="tanh")
        x = x @ down.t() + down_bias
    return x


# --8<-- [start:graphed]
def graphed(
    step: Callable[[torch.Tensor], torch.Tensor], example: torch.Tensor
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Record one call of a step as a CUDA graph and replay it on new inputs.

    Inputs have the shape of `example`. Each call overwrites the result of
    the call before.
    """
    x = example.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # libraries choose kernels and allocate memory
            step(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(x)

    def replay(new: torch.Tensor) -> torch.Tensor:
        x.copy_(new)
        graph.replay()
        return result

    return replay


# --8<-- [end:graphed]
