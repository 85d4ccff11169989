"""A model whose work is easy to count: blocks of a norm and an MLP.

A forward multiplies each token with each weight once, a backward twice: 2 and 4
FLOPs for each token and weight.
"""

import torch
import torch.nn.functional as F
from torch import nn


# --8<-- [start:model]
class Block(nn.Module):
    """A norm and an MLP; the input is added to their result."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):  # (tokens, width)
        return x + self.down(F.gelu(self.up(self.norm(x))))


def build(width, blocks):
    return nn.Sequential(*(Block(width) for _ in range(blocks)))


# --8<-- [end:model]


def parameter_count(width, blocks):
    """All parameters: two matrices, their biases, and the gain and the bias of
    the norm."""
    return blocks * (8 * width**2 + 7 * width)


def random_model(width, blocks, device, dtype, seed=0):
    """The same random weights on every rank; the blocks together add about as
    much to x as one block alone."""
    with torch.device("meta"):
        model = build(width, blocks).to(dtype)
    model.to_empty(device=device)
    draw = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if each.dim() == 2:
                share = blocks if name.endswith("down.weight") else 1
                std = (share * each.shape[1]) ** -0.5
                each.normal_(std=std, generator=draw)
            else:
                each.fill_(1.0 if name.endswith("norm.weight") else 0.0)
    return model
