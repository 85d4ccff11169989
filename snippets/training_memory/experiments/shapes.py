"""The tensors that a forward keeps for backward, derived from shapes: shown next to the measured bytes."""

from __future__ import annotations

SIZE = {"float32": 4, "bfloat16": 2}
"""Type -> bytes of a number."""


# --8<-- [start:kept]
def kept_by_block(tokens, dim, hidden, number, autocast=False):
    """Operation that keeps a tensor for the backward of one block -> its bytes,
    where a number has `number` bytes."""
    narrow, wide = tokens * dim * number, tokens * hidden * number
    casts = 2 if autocast else 1  # gate's and up's own
    weights = 3 * dim * hidden * number if autocast else 0
    return {
        "norm: a mean and a deviation per token": 2 * tokens * 4,
        "gate and up: their input": casts * narrow,
        "gelu: its input": wide,
        "gelu times up: both factors": 2 * wide,
        "down: its input": wide,
        "three products: weights, cast": weights,
    }


# --8<-- [end:kept]


def kept_bytes(
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
    layers: int,
    dtype: str = "float32",
    autocast: bool = False,
    recomputes: int = 0,
) -> dict[str, int]:
    """Operation that keeps a tensor for the backward of a whole forward -> its bytes.

    Every `recomputes`-th block keeps no inner tensor. The first block's input is the batch, which exists anyway.
    """
    tokens = batch * seq
    number = SIZE["bfloat16" if autocast else dtype]
    block = kept_by_block(tokens, dim, hidden, number, autocast)
    recomputed = len(range(0, layers, recomputes)) if recomputes else 0
    return {
        "blocks: their inputs": (layers - 1) * tokens * dim * SIZE[dtype],
        **{name: (layers - recomputed) * each for name, each in block.items()},
        "loss: its input": tokens * dim * SIZE["float32"],
    }
