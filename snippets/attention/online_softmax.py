"""The softmax of rows that arrive in blocks, which lets attention run in one kernel."""

from collections.abc import Sequence

import torch
from torch import Tensor


# --8<-- [start:online_softmax]
def online_softmax(scores: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The largest score of each row, and its sum of exp(score - largest)."""
    largest = torch.full_like(scores[..., 0], float("-inf"))
    total = torch.zeros_like(largest)
    for part in scores.split(block, dim=-1):
        larger = torch.maximum(largest, part.amax(dim=-1))
        shrink = (largest - larger).exp()  # 1 if this block has no larger score
        total = total * shrink + (part - larger[..., None]).exp().sum(dim=-1)
        largest = larger
    return largest, total


# --8<-- [end:online_softmax]


def after_each_block(
    row: Sequence[float], block: int
) -> list[tuple[float, float]]:
    """The largest score and the sum of a row, of its first block, of its first two, and so on."""
    seen = (
        torch.tensor(row[: start + block])
        for start in range(0, len(row), block)
    )
    return [
        (float(largest), float(total))
        for largest, total in (online_softmax(each, block) for each in seen)
    ]
