"""Weights of gate and up in one storage, so that one product takes both."""

from __future__ import annotations

import torch
from torch import Tensor, nn


# --8<-- [start:joined]
def share_storage(gate: nn.Linear, up: nn.Linear) -> None:
    """Move both weights into one storage, one after the other, so that one
    product takes both.

    The parameters stay the same objects with the same values, so optimizers and
    state dicts do not notice; a CUDA graph captured before reads the old
    addresses. `deepcopy` separates the weights again, and there are two
    products.
    """
    both = torch.stack([gate.weight.detach(), up.weight.detach()])
    gate.weight.data, up.weight.data = both[0], both[1]


def are_joined(gate: nn.Module, up: nn.Module) -> bool:
    """Whether `share_storage` has joined their weights. The layers may be of
    any kind."""
    first, second = (getattr(one, "weight", None) for one in (gate, up))
    return (
        type(first) is nn.Parameter
        and type(second) is nn.Parameter
        and joined(first, second) is not None
    )


def joined(gate: Tensor, up: Tensor) -> Tensor | None:
    """Both weights as one matrix (2 * hidden, dim), if `up` follows `gate` in
    one storage, otherwise None."""
    if (
        gate.is_contiguous()
        and up.is_contiguous()
        and up.data_ptr() == gate.data_ptr() + gate.nbytes
        and up.untyped_storage().data_ptr() == gate.untyped_storage().data_ptr()
    ):
        hidden, dim = gate.shape
        return gate.detach().as_strided((2 * hidden, dim), (dim, 1))
    return None


# --8<-- [end:joined]
