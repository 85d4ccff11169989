"""A model whose weights, gradients and optimizer state are split over the
GPUs by PyTorch's FSDP2.

Each function shards a `Stack` in place over the ranks of a one-dimensional
mesh. Before a group of weights is used, an all-gather makes it whole. In the
backward, a reduce-scatter adds its gradients and leaves each GPU a part.
"""

from itertools import pairwise

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from .blocks import Stack


# --8<-- [start:per_block]
def per_block(model: Stack, mesh, dtype=torch.bfloat16, **options):
    """A group of weights for each block. The GPU multiplies with one group
    while it gathers the next."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, **options)
    return fully_shard(model, mesh=mesh, mp_policy=policy, **options)


# --8<-- [end:per_block]


# --8<-- [start:variants]
def root_only(model: Stack, mesh, dtype=torch.bfloat16):
    """One group of all weights: nothing to compute while it is gathered."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def kept(model: Stack, mesh, dtype=torch.bfloat16):
    """Weights stay whole from the forward to the backward, which then gathers
    nothing."""
    return per_block(model, mesh, dtype, reshard_after_forward=False)


def ahead(model: Stack, mesh, dtype=torch.bfloat16):
    """Each block asks for the weights of the next, before its own forward."""
    per_block(model, mesh, dtype)
    blocks: list = list(model.blocks)
    for block, following in pairwise(blocks):
        block.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([block])
    return model


# --8<-- [end:variants]


# --8<-- [start:bytes]
def bytes_sent(weights: int, passes: int, world: int, item: int = 2) -> float:
    """The bytes that one GPU sends in a step. In each pass, it sends
    (n - 1) / n of all weights."""
    return passes * item * weights * (world - 1) / world


def state_bytes(weights: int, world: int) -> float:
    """Of one GPU, in float32: weights and two moments of AdamW."""
    return 3 * 4 * weights / world


# --8<-- [end:bytes]
